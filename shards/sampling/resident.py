"""Prefetching of token ranges by daemon threads.

The sampler passes the ranges that it reads now and next. They are fetched in this order, each once, and released when
the sampler no longer needs them. For local disks, fetching means reading the range into the kernel's page cache.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

LOOKS = 64
"""Number of places in a range that are tested to find out whether it is in the page cache."""
SWEEP_BYTES = 1 << 20

Range = tuple[int, int]
"""Start and number of tokens, in the entire split."""


class _Slot(Generic[T]):
    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: T | None = None
        self.error: BaseException | None = None


class Resident(Generic[T]):
    """Keeps the results of `fetch(range)` for the current and next ranges; `n_threads` threads fetch them."""

    def __init__(self, fetch: Callable[[Range], T], n_threads: int) -> None:
        self._fetch = fetch
        self._n_threads = n_threads
        self._slots: dict[Range, _Slot[T]] = {}
        self._waiting: deque[Range] = deque()
        self._forget_all()

    def hold(self, ranges: Sequence[Range]) -> None:
        """Fetch these ranges in this order and keep them; release all others."""
        self._check_process()
        with self._changed:
            self._slots = {each: self._slots.get(each) or _Slot() for each in ranges}
            self._waiting = deque(each for each in ranges if each not in self._begun)
            self._begun &= self._slots.keys()
            self._changed.notify_all()
        while len(self._threads) < min(self._n_threads, len(ranges)):
            thread = threading.Thread(target=self._run, name="webtext-blocks", daemon=True)
            self._threads.append(thread)
            thread.start()

    def get(self, wanted: Range) -> T:
        """Return the result for a range that was passed to `hold`; waits for it, and raises what `fetch` raised."""
        self._check_process()
        slot = self._slots[wanted]
        if not slot.done.is_set():
            with self._changed:
                if wanted in self._waiting:  # needed now, so fetch it first
                    self._waiting.remove(wanted)
                    self._waiting.appendleft(wanted)
            slot.done.wait()
        if slot.error is not None:
            raise slot.error
        return slot.value  # type: ignore[return-value]

    def close(self) -> None:
        """Stop the threads, each after its current range."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                wanted = self._waiting.popleft()
                self._begun.add(wanted)
                slot = self._slots[wanted]
            try:
                slot.value = self._fetch(wanted)
            except BaseException as error:  # noqa: BLE001 - raised by `get`
                slot.error = error
            slot.done.set()

    def _check_process(self) -> None:
        if self._process != os.getpid():  # threads don't survive a fork
            held = list(self._slots)
            self._forget_all()
            self.hold(held)

    def _forget_all(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._slots = {}
        self._waiting = deque()
        self._begun: set[Range] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False


def read_ahead(path: str, offset: int, length: int) -> None:
    """Read a range of a local file into the page cache, unless a few samples show that it is already there."""
    file = os.open(path, os.O_RDONLY)
    try:
        looks = range(offset, offset + length, max(1, length // LOOKS))
        if all(_is_cached(file, at) for at in looks):
            return
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)
        buffer = bytearray(SWEEP_BYTES)
        end = offset + length
        while offset < end and (n := os.preadv(file, [memoryview(buffer)[: end - offset]], offset)):
            offset += n
    finally:
        os.close(file)


def _is_cached(file: int, offset: int) -> bool:
    """Whether a byte can be read without waiting for a disk; False if the system can't tell."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    try:
        return os.preadv(file, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError:
        return False


def memory_bytes() -> int:
    """Return the size of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
