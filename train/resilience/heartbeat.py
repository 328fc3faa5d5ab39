"""A heartbeat of each process of a run, so that an error can name the one that hangs while all others wait for it.

A collective reports at most that it waited too long, never for which process; NCCL ends the process without any Python
error. So a thread of each process writes the process's progress into the store and counts the rounds without progress.
After `ROUNDS` of them it compares: a process that no longer writes hangs, or else the one that is behind the others.
The first process to find out reports it, and all of them end: nothing else ends a wait in a collective.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch.distributed import Store  # type: ignore[attr-defined]

from webtext.base.console import Console
from webtext.base.errors import WebtextError

ROUNDS = 20
"""Rounds without progress before a process looks for the cause. They are counted, not timed, because a machine that
sleeps or swaps is slow in its rounds too."""
PATIENCE = 3
"""Rounds in which another process must write. With fewer, a busy process would count as dead."""
RESUME = "rerun the same command to resume from the last checkpoint; 'torchrun --max-restarts N' does so by itself"


@dataclass(frozen=True, slots=True)
class Beat:
    """The progress that a process last wrote.

    All processes enter the same activities in the same order, so `entered` and `done` can be compared.
    """

    rank: int
    pid: int
    host: str
    n: int
    """Number of this beat, counted per process."""
    step: int
    entered: int
    done: int
    """Finished parts of the activity entered last: microbatches, held-out batches."""
    what: str
    where: str = ""
    """The line of Python at which it waits; empty while it makes progress."""

    @property
    def name(self) -> str:
        """Name of the process in errors."""
        return f"rank {self.rank} (process {self.pid} on '{self.host}')"


class Heartbeat:
    """The beats of one process of `size`. `store` is this thread's own connection to the store that all share."""

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank, self.size, self.store = rank, size, store
        self._step, self._entered, self._done, self._what = 0, 0, 0, "starts"
        self._n, self._seen, self._rounds = 0, (-1, -1), 0
        self.counts = True
        """Whether a round without progress counts. It does not while code is compiled, which may take any time."""
        self._host, self._main = socket.gethostname(), threading.main_thread().ident

    def enter(self, what: str, step: int | None = None) -> None:
        """Record that the main thread begins an activity, which every process of the run begins too."""
        self._entered, self._done, self._what = self._entered + 1, 0, what
        self._step = self._step if step is None else step

    def advance(self) -> None:
        """Record that a part of the activity is done."""
        self._done += 1

    def beat(self) -> int:
        """Write the main thread's progress and return the number of rounds without any."""
        here = (self._entered, self._done)
        self._rounds = self._rounds + 1 if here == self._seen and self.counts else 0
        self._seen, self._n = here, self._n + 1
        where = _where(self._main) if self._rounds else ""
        beat = Beat(self.rank, os.getpid(), self._host, self._n, self._step, *here, self._what, where)
        self.store.set(f"beat/{self.rank}", json.dumps(asdict(beat)))
        return self._rounds

    def read(self) -> list[Beat | None]:
        """Return the last beat of each process, by rank; None for one that has not written."""
        keys = [f"beat/{rank}" for rank in range(self.size)]
        return [Beat(**json.loads(self.store.get(key))) if self.store.check([key]) else None for key in keys]

    def is_first(self) -> bool:
        """Return whether no other process has asked, so that only one of them prints the error."""
        return self.store.add("reported", 1) == 1


def verdict(before: list[Beat | None], after: list[Beat | None], waited: str) -> WebtextError:
    """Return an error that names the process that hangs, from two readings of all beats `PATIENCE` rounds apart.

    It names those that did not write in between, or else those that are behind, or else none in particular.
    """
    step = f"step {1 + max((beat.step for beat in after if beat is not None), default=0):,}"
    pairs = enumerate(zip(before, after, strict=True))
    silent = [(rank, now) for rank, (then, now) in pairs if now is None or (then is not None and then.n == now.n)]
    if silent:
        rank, beat = silent[0]
        who = f"rank {rank}" if beat is None else beat.name
        return WebtextError(f"{who} hangs in {step}{_more(silent)}: it shows no sign of life", waited, RESUME)
    beats = [beat for beat in after if beat is not None]
    least = min((beat.entered, beat.done) for beat in beats)
    behind = [beat for beat in beats if (beat.entered, beat.done) == least]
    first = behind[0]
    doing = f"{first.what}, at {first.where}" if first.where else first.what
    if len(behind) == len(beats):
        message = f"all {len(beats)} processes hang in {step} while each {doing}"
        return WebtextError(message, f"{waited}: none is behind, so check the network and the devices", RESUME)
    return WebtextError(f"{first.name} hangs in {step} while it {doing}{_more(behind)}", waited, RESUME)


def _more(them: Sequence[object]) -> str:
    return f", and {len(them) - 1} more" if len(them) > 1 else ""


@contextlib.contextmanager
def watched(heartbeat: Heartbeat, timeout: float, end: Callable[[int], None] = os._exit) -> Iterator[None]:
    """Beat from a thread, `ROUNDS` times in `timeout` seconds; `end` this process after `timeout` without progress."""
    over, pause = threading.Event(), timeout / ROUNDS

    def hangs() -> bool:
        """Look for the cause and report it. Return False if this process makes progress again in the meantime."""
        before = heartbeat.read()
        for _ in range(PATIENCE):
            over.wait(pause)
            if over.is_set() or heartbeat.beat() == 0:
                return False
        error = verdict(before, heartbeat.read(), f"the others waited for {timeout:,.0f} s (hang_timeout)")
        if heartbeat.is_first():
            Console("quiet").error(error)
        return True

    def watch() -> None:
        with contextlib.suppress(RuntimeError):  # the store's process is gone, which the collectives report
            while not over.is_set():
                if heartbeat.beat() >= ROUNDS and hangs():
                    end(1)
                    return
                over.wait(pause)

    thread = threading.Thread(target=watch, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(pause)


def _where(thread: int | None) -> str:
    frame = sys._current_frames().get(thread or 0)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} ({frame.f_code.co_name})" if frame else ""
