"""Ranges of tokens fetched ahead of their use, by threads that end with their process.

The sampler says which ranges it reads now and which it reads next; they are fetched in that order, each once, and
forgotten when it has gone on. On local disks fetching means reading the range into the kernel's page cache in one sweep.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

LOOKS = 64
"""Places of a range that are looked at to see whether it lies in the page cache."""
SWEEP_BYTES = 1 << 20

Range = tuple[int, int]
"""Start and number of tokens, in the whole split."""


class _Slot(Generic[T]):
    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: T | None = None
        self.error: BaseException | None = None


class Resident(Generic[T]):
    """Keeps `fetch(range)` of the ranges in use, and of those to come, with `n_threads` fetching at a time."""

    def __init__(self, fetch: Callable[[Range], T], n_threads: int) -> None:
        self._fetch = fetch
        self._n_threads = n_threads
        self._slots: dict[Range, _Slot[T]] = {}
        self._waiting: deque[Range] = deque()
        self._forget_all()

    def hold(self, ranges: Sequence[Range]) -> None:
        """From now on these ranges are held, fetched in this order, and no others."""
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
        """What was fetched of a range that is held: waits for it, raises what its fetching raised."""
        self._check_process()
        slot = self._slots[wanted]
        if not slot.done.is_set():
            with self._changed:
                if wanted in self._waiting:  # what is needed first is fetched first
                    self._waiting.remove(wanted)
                    self._waiting.appendleft(wanted)
            slot.done.wait()
        if slot.error is not None:
            raise slot.error
        return slot.value  # type: ignore[return-value]

    def close(self) -> None:
        """End the threads, each after the range at hand."""
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
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                slot.error = error
            slot.done.set()

    def _check_process(self) -> None:
        if self._process != os.getpid():  # threads do not survive a fork
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
    """Bring a range of a local file into the page cache, in one sweep; where a few looks find it there, it is left alone."""
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
    """Whether a byte can be read without waiting for a disk; False where the system cannot tell."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    try:
        return os.preadv(file, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError:
        return False


def memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
