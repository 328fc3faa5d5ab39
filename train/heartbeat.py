"""A sign of life from each process of a run, so that one that hangs is named while all others wait for it.

A collective says at most that it waited too long, never for whom; NCCL's ends the process without a word of Python. So a
thread of each process writes into the store how far the process has come, and counts the rounds in which it came no
further. After so many it compares: a process that no longer writes hangs, or else the one that is behind the others.
The first process to see that says so, and all of them end: nothing else ends a wait in a collective.
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
"""Rounds in which a process comes no further, before it looks for the cause. They are counted and not timed: a machine that
sleeps or swaps is slow in its rounds too."""
PATIENCE = 3
"""Rounds in which another process must write; fewer would take a busy one for dead."""
GO_ON = "the same command goes on from the last checkpoint; 'torchrun --max-restarts N' gives it by itself"


@dataclass(frozen=True, slots=True)
class Beat:
    """What a process last wrote. All processes enter the same things in the same order, so `entered` and `done` compare."""

    rank: int
    pid: int
    host: str
    n: int
    """Which one of the process's beats it is."""
    step: int
    entered: int
    done: int
    """Parts of what it entered last that are done: microbatches, held-out batches."""
    what: str
    where: str = ""
    """The line of Python at which it stands; empty while it goes on."""

    @property
    def name(self) -> str:
        """The process, as errors name it."""
        return f"rank {self.rank} (process {self.pid} on '{self.host}')"


class Heartbeat:
    """The beats of one process; `size` of them share a `store`, which this thread has for itself."""

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank, self.size, self.store = rank, size, store
        self._step, self._entered, self._done, self._what = 0, 0, 0, "starts"
        self._n, self._seen, self._rounds = 0, (-1, -1), 0
        self.counts = True
        """Whether a round without progress counts. Code that is compiled takes as long as it takes, in every process."""
        self._host, self._main = socket.gethostname(), threading.main_thread().ident

    def enter(self, what: str, step: int | None = None) -> None:
        """The main thread begins something that every process of the run begins too."""
        self._entered, self._done, self._what = self._entered + 1, 0, what
        self._step = self._step if step is None else step

    def advance(self) -> None:
        """A part of it is done."""
        self._done += 1

    def beat(self) -> int:
        """Write how far the main thread has come; returns the rounds in which that was no further."""
        here = (self._entered, self._done)
        self._rounds = self._rounds + 1 if here == self._seen and self.counts else 0
        self._seen, self._n = here, self._n + 1
        where = _where(self._main) if self._rounds else ""
        beat = Beat(self.rank, os.getpid(), self._host, self._n, self._step, *here, self._what, where)
        self.store.set(f"beat/{self.rank}", json.dumps(asdict(beat)))
        return self._rounds

    def read(self) -> list[Beat | None]:
        """The last beat of each process, by rank."""
        keys = [f"beat/{rank}" for rank in range(self.size)]
        return [Beat(**json.loads(self.store.get(key))) if self.store.check([key]) else None for key in keys]

    def is_first(self) -> bool:
        """Whether no other process has asked: one of them talks."""
        return self.store.add("told", 1) == 1


def verdict(before: list[Beat | None], after: list[Beat | None], waited: str) -> WebtextError:
    """Who hangs, by two readings of all beats with `PATIENCE` rounds between them.

    Those that did not write in between; else those that are the least far; else nobody in particular.
    """
    step = f"step {1 + max((beat.step for beat in after if beat is not None), default=0):,}"
    pairs = enumerate(zip(before, after, strict=True))
    silent = [(rank, now) for rank, (then, now) in pairs if now is None or (then is not None and then.n == now.n)]
    if silent:
        rank, beat = silent[0]
        who = f"rank {rank}" if beat is None else beat.name
        return WebtextError(f"{who} hangs in {step}{_more(silent)}: it gives no sign of life", waited, GO_ON)
    beats = [beat for beat in after if beat is not None]
    least = min((beat.entered, beat.done) for beat in beats)
    behind = [beat for beat in beats if (beat.entered, beat.done) == least]
    first = behind[0]
    doing = f"{first.what}, at {first.where}" if first.where else first.what
    if len(behind) == len(beats):
        said = f"all {len(beats)} processes hang in {step}, as each {doing}"
        return WebtextError(said, f"{waited}: none is behind, so look at the network and the devices", GO_ON)
    return WebtextError(f"{first.name} hangs in {step}, as it {doing}{_more(behind)}", waited, GO_ON)


def _more(them: Sequence[object]) -> str:
    return f", and {len(them) - 1} more" if len(them) > 1 else ""


@contextlib.contextmanager
def watched(heartbeat: Heartbeat, timeout: float, end: Callable[[int], None] = os._exit) -> Iterator[None]:
    """Beat from a thread, `ROUNDS` times in `timeout` seconds; where this process stands still for so long, `end` the process."""
    over, pause = threading.Event(), timeout / ROUNDS

    def hangs() -> bool:
        """Whether this process still stood still when the cause was looked for, and told."""
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
        with contextlib.suppress(RuntimeError):  # the store is gone, and who held it: that the collectives tell
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
