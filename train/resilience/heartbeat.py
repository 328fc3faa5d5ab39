"""A heartbeat of each process of a run, so that an error can name the one that hangs while all others wait for it.

torchrun notices only processes that end. Gloo's timeout doesn't say for which process it waited, and NCCL's flight
recorder leaves a file per process, to be compared later. So a thread of each process writes its progress into the store
that all share. After `ROUNDS` rounds without any it compares: a process that no longer writes hangs, or else the one
that is behind the others. The first process to find out reports it and ends; nothing else ends a wait in a collective.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from torch.distributed import Store  # type: ignore[attr-defined]

from webtext.base.console import Console
from webtext.base.errors import WebtextError

ROUNDS = 20  # without progress, before a process looks for the cause; counted, because a machine may sleep or swap
PATIENCE = 3  # rounds in which another process must write: with fewer, a busy one would count as dead
RECORDER = "TORCH_NCCL_DUMP_ON_TIMEOUT"  # 1 where a user wants the record that NCCL writes at its own limit
RESUME = "rerun the same command to resume from the last checkpoint; 'torchrun --max-restarts N' does so by itself"


@dataclass(slots=True)
class Beat:
    """A process's progress. All enter the same activities in the same order, so `entered` and `done` are comparable."""

    rank: int = 0
    pid: int = 0
    host: str = ""
    n: int = 0  # of this beat, counted per process
    step: int = 0
    entered: int = 0
    done: int = 0  # parts of the activity entered last: microbatches, held-out batches
    what: str = "starts"
    where: str = ""  # the line of Python at which it waits; empty while it makes progress
    counts: bool = True  # whether a round without progress does; not while code is compiled, which may take any time

    def enter(self, what: str, step: int | None = None, *, counts: bool | None = None) -> None:
        """Record that every process begins an activity; `what` is a verb phrase for the error if one hangs in it."""
        self.entered, self.done, self.what = self.entered + 1, 0, what
        self.step = self.step if step is None else step
        self.counts = self.counts if counts is None else counts

    def advance(self) -> None:
        """Record that a part of the activity is done."""
        self.done += 1


class Heartbeat:
    """The beats of one process of `size`. `store` is this thread's own connection to the store that all share."""

    def __init__(self, now: Beat, size: int, store: Store) -> None:
        self.now, self.size, self.store = now, size, store
        self._seen, self._rounds, self._main = (-1, -1), 0, threading.main_thread().ident

    def beat(self) -> int:
        """Write the main thread's progress and return the number of rounds without any."""
        here = (self.now.entered, self.now.done)
        self._rounds = self._rounds + 1 if here == self._seen and self.now.counts else 0
        self._seen, self.now.n = here, self.now.n + 1
        self.now.where = _where(self._main) if self._rounds else ""
        self.store.set(f"beat/{self.now.rank}", json.dumps(asdict(self.now)))
        return self._rounds

    def read(self) -> list[Beat | None]:
        """Return the last beat of each process, by rank; None for one that has not written."""
        keys = [f"beat/{rank}" for rank in range(self.size)]
        return [Beat(**json.loads(self.store.get(key))) if self.store.check([key]) else None for key in keys]


def verdict(before: list[Beat | None], after: list[Beat | None], waited: str) -> WebtextError:
    """Return an error that names the process that hangs, from two readings of all beats `PATIENCE` rounds apart.

    It names those that did not write in between, or else those that are behind, or else none in particular.
    """
    beats = [beat for beat in after if beat is not None]
    step = f"step {1 + max((beat.step for beat in beats), default=0):,}"
    silent = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if b is None or (a and a.n == b.n)]
    least = min(((beat.entered, beat.done) for beat in beats), default=None)
    those = silent or [beat.rank for beat in beats if (beat.entered, beat.done) == least]
    first, more = after[those[0]], f", and {len(those) - 1} more" if len(those) > 1 else ""
    name = f"rank {those[0]}" + (f" (process {first.pid} on '{first.host}')" if first else "")
    if silent or first is None:
        return WebtextError(f"{name} hangs in {step}{more}: it shows no sign of life", waited, RESUME)
    doing = f"{first.what}, at {first.where}" if first.where else first.what
    if len(those) == len(after):
        message = f"all {len(after)} processes hang in {step} while each {doing}"
        return WebtextError(message, f"{waited}: none is behind, so check the network and the devices", RESUME)
    return WebtextError(f"{name} hangs in {step} while it {doing}{more}", waited, RESUME)


@contextlib.contextmanager
def watched(heartbeat: Heartbeat, timeout: float, end: Callable[[int], None] = os._exit) -> Iterator[None]:
    """Beat from a thread, `ROUNDS` times in `timeout` seconds; `end` this process after `timeout` without progress."""
    over, pause = threading.Event(), timeout / ROUNDS

    def watch() -> None:
        with contextlib.suppress(RuntimeError):  # the store's process is gone, which the collectives report
            while not over.is_set():
                before = heartbeat.read() if heartbeat.beat() >= ROUNDS else None
                if before and all(not over.wait(pause) and heartbeat.beat() for _ in range(PATIENCE)):
                    error = verdict(before, heartbeat.read(), f"the others waited for {timeout:,.0f} s (hang_timeout)")
                    if heartbeat.store.add("reported", 1) == 1:  # the others are silent
                        Console("quiet").error(error)
                    if os.environ.get(RECORDER) == "1":
                        over.wait(2 * timeout)  # that limit (`join_world`); NCCL then ends the process
                    end(1)
                    break
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
