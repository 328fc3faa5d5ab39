"""The engine: maps a function over tasks in worker processes and survives records that crash or hang a worker.

A worker notes the record it is working on (`base/workers/attempt.py`). If it dies, stalls or uses too much memory during that
record, the record is retried alone in a fresh worker:

    it kills the worker again  the record is set aside, and the part is retried without it
    it survives alone          the entire part is retried; if the record kills the worker again, it is set aside

A death outside any record is charged to the part: the part is retried once, then it fails.

SIGKILL and SIGTERM that the engine didn't send say nothing about the record: an operator may have sent them, or the
kernel when the machine ran out of memory. They count only if a record is killed KILLS_ALONE times while it is retried
alone, with growing pauses in between. Otherwise the part is retried up to MAX_RETRIES_PER_PART times.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, TypeVar

from webtext.base.errors import ConfigError, MachineError
from webtext.base.storage import Folder
from webtext.base.workers.attempt import FIRST_FILE, Attempt
from webtext.base.workers.process import Death, WorkerProcess
from webtext.base.workers.worker import Done, Order, Raised

T = TypeVar("T")
R = TypeVar("R")

POLL_SECONDS = 0.05  # how late a hang or too much memory may be noticed; answers of workers don't wait for it
MAX_RETRIES_PER_PART = 64  # each record that kills a worker costs two, so a part may contain about thirty of them
KILLS_ALONE = 3
PAUSE_SECONDS, PAUSE_GROWTH, MAX_PAUSE_SECONDS = 1.0, 4.0, 60.0  # before a part that was killed from outside is retried
MAX_FAILED_STARTS = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """WorkerLimits of one worker. `memory_bytes` bounds private resident memory, which doesn't include mapped files."""

    record_seconds: float = 120.0  # without progress, on a record or a batch of them
    idle_seconds: float = 1800.0  # without progress outside records: reading, sorting, publishing a part
    memory_bytes: int = 2 << 30
    tasks_per_worker: int = 64  # then a fresh process: libraries leak, and heaps of small objects don't shrink

    def __post_init__(self) -> None:
        for name in ("record_seconds", "idle_seconds", "memory_bytes", "tasks_per_worker"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", "it must be above 0")


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A part that failed as a whole: the index of its task and the error."""

    index: int
    error: str


def ignore(*_: object) -> None:
    """Do nothing."""


class LocalEngine:
    """Worker processes on this machine, started when first needed and kept between maps."""

    def __init__(self, workers: int | None = None, limits: WorkerLimits | None = None, *, quiet: bool = False) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"workers is {workers}", "it must be at least 1")
        self.workers = workers or available_cores()
        self.limits = limits or WorkerLimits()
        self._quiet = quiet
        self._idle: list[WorkerProcess] = []

    def map(
        self,
        function: Callable[[Attempt, T], R],
        tasks: Sequence[T],
        *,
        on_done: Callable[[int, R], None],
        set_aside: Mapping[int, Mapping[int, str]] | None = None,
        on_set_aside: Callable[[int, int, str], None] = ignore,
        on_records: Callable[[int], None] = ignore,
        writes: Sequence[Folder] = (),
    ) -> list[TaskFailure]:
        """Call function(attempt, task) for each task and return the tasks that failed, in order.

        `function` must be importable by name. `on_done(index, result)` is called in this process as tasks finish, in
        any order. `set_aside` maps a task index to the records known to kill workers and their causes;
        `on_set_aside(index, position, cause)` is called for each new one before its part is retried. `on_records(n)`
        is called now and then with the number of records finished so far, also in unfinished tasks. A bad input or
        setting (exit codes 2 and 3) and a machine that lacks something (a full disk) stop the map and are raised here.
        `writes` are the folders that the tasks write: an error of a full disk names the first, and an engine of several
        machines checks that all of them see them.
        """
        check_importable(function)
        known = set_aside or {}
        waiting = deque(_Attempt(_Part(index, dict(known.get(index, {})))) for index in range(len(tasks)))
        place = writes[0].url if writes else None
        return _Map(self, function, tasks, on_done, on_set_aside, on_records, place, waiting).run()

    def limited(self, limits: WorkerLimits) -> LocalEngine:
        """Return another engine of this kind with these limits; close it after use."""
        return type(self)(self.workers, limits, quiet=self._quiet)

    def close(self) -> None:
        for worker in self._idle:
            worker.kill()
        self._idle.clear()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at interpreter shutdown, when modules that `close` needs are gone
            return

    def take(self) -> WorkerProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            worker.kill()
        return WorkerProcess(self.limits.memory_bytes, quiet=self._quiet)

    def give_back(self, worker: WorkerProcess) -> None:
        """Keep a worker for the next task, unless it has done `tasks_per_worker` tasks or still uses much memory."""
        used_up = worker.n_tasks >= self.limits.tasks_per_worker
        if used_up or worker.private_bytes() > self.limits.memory_bytes // 2:
            worker.kill()
        else:
            self._idle.append(worker)


@dataclass(slots=True)
class _Part:
    """The state of one task while its map runs."""

    index: int
    set_aside: dict[int, str]
    crashed: set[int] = field(default_factory=set)  # records that killed a worker once
    survived_alone: set[int] = field(default_factory=set)
    kills_alone: Counter[int] = field(default_factory=Counter)  # outside kills during a retry alone, by record
    n_kills: int = 0  # outside kills at any record
    died_outside_records: bool = False
    n_retries: int = 0


@dataclass(slots=True, eq=False)
class _Attempt:
    part: _Part
    only: int | None = None  # retry of this record alone
    not_before: float = 0.0  # on the monotonic clock
    watched_steps: int = -1
    stalled_seconds: float = 0.0


@dataclass(slots=True)
class _Map:
    """One call of `map`: the parts that wait, run and failed."""

    engine: LocalEngine
    function: Callable[[Attempt, Any], Any]
    tasks: Sequence[Any]
    on_done: Callable[[int, Any], None]
    on_set_aside: Callable[[int, int, str], None]
    on_records: Callable[[int], None]
    writes: str | None
    waiting: deque[_Attempt]
    running: dict[WorkerProcess, _Attempt] = field(default_factory=dict)
    failures: list[TaskFailure] = field(default_factory=list)
    n_records: int = 0  # in finished tasks
    n_failed_starts: int = 0

    def run(self) -> list[TaskFailure]:
        try:
            looked = time.monotonic()
            while self.waiting or self.running:
                self._start_waiting()
                ready = set(wait([worker.connection for worker in self.running], timeout=POLL_SECONDS))
                for worker in [worker for worker in self.running if worker.connection in ready]:
                    self._hear(worker)
                # At most a second per iteration: a run that was suspended (Ctrl-Z) hasn't stalled.
                elapsed, looked = min(time.monotonic() - looked, 1.0), time.monotonic()
                for worker in list(self.running):
                    self._watch(worker, elapsed)
                self.on_records(self.n_records + sum(worker.heartbeat.records for worker in self.running))
            return sorted(self.failures, key=lambda failure: failure.index)
        finally:  # after any error, including Ctrl-C, no worker may keep running
            for worker in self.running:
                worker.kill()

    def _start_waiting(self) -> None:
        now = time.monotonic()
        while len(self.running) < self.engine.workers:
            attempt = next((attempt for attempt in self.waiting if attempt.not_before <= now), None)
            if attempt is None:
                return
            self.waiting.remove(attempt)
            worker = self.engine.take()
            self.running[worker] = attempt
            part = attempt.part
            # Pickled just before it is sent, so that memory never contains all tasks twice.
            call = pickle.dumps((self.function, self.tasks[part.index]), protocol=pickle.HIGHEST_PROTOCOL)
            worker.heartbeat.reset()
            worker.send(Order(list(sys.path), call, dict(part.set_aside), attempt.only, self.writes))

    def _hear(self, worker: WorkerProcess) -> None:
        """Handle a worker whose socket is readable: it has sent a message, or it has died."""
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            self._died(worker, worker.death())
            return
        if message is None:
            worker.started = True
            return
        self.n_failed_starts = 0
        attempt = self.running.pop(worker)
        worker.n_tasks += 1
        self.engine.give_back(worker)
        if attempt.only is not None:  # whatever the answer is, the record didn't kill the worker
            attempt.part.survived_alone.add(attempt.only)
            self._retry(attempt.part, None)
        elif isinstance(message, Raised):
            log.debug("part %d failed\n%s", attempt.part.index, message.traceback)
            if message.stops:
                raise message.stops
            self.failures.append(TaskFailure(attempt.part.index, message.error))
        else:
            assert isinstance(message, Done), message
            self.n_records += worker.heartbeat.records
            self.on_done(attempt.part.index, message.result)

    def _watch(self, worker: WorkerProcess, elapsed: float) -> None:
        """Kill a worker that makes no progress or uses too much memory."""
        attempt = self.running[worker]
        if worker.private_bytes() > self.engine.limits.memory_bytes:
            self._died(worker, Death(worker.heartbeat.position, worker.memory_cause))
            return
        steps, position = worker.heartbeat.steps, worker.heartbeat.position
        if steps != attempt.watched_steps:
            attempt.watched_steps, attempt.stalled_seconds = steps, 0.0
            return
        attempt.stalled_seconds += elapsed
        is_record = position is not None and position < FIRST_FILE
        limits = self.engine.limits
        bound = limits.record_seconds if is_record else limits.idle_seconds
        if attempt.stalled_seconds > bound:
            self._died(worker, Death(position, f"no progress for {bound:g} s"))

    def _died(self, worker: WorkerProcess, death: Death) -> None:
        """Charge a death to a record or to the part, and schedule the retry."""
        attempt = self.running.pop(worker)
        worker.kill()
        part = attempt.part
        is_first = attempt.only is None and not self.n_records and not worker.heartbeat.records
        begun = worker.started and not (worker.is_confined and is_first)
        if not begun and not death.from_outside:  # an interpreter or an import that fails: not the record's fault
            self._failed_to_start(part, attempt.only, worker, death.cause)
            return
        log.debug("part %d: worker ended at record %s (%s)", part.index, death.position, death.cause)
        if death.from_outside:
            self._killed(attempt, death)
        elif death.position is None:
            if part.died_outside_records:
                self._fail(part, f"the worker ended outside any record: {death.cause}")
            else:
                part.died_outside_records = True
                self._retry(part, attempt.only)
        elif death.position not in part.crashed:
            part.crashed.add(death.position)
            self._retry(part, death.position)
        else:
            self._set_aside(part, death.position, death.cause)

    def _killed(self, attempt: _Attempt, death: Death) -> None:
        """Retry after a kill from outside: after a pause, and alone to find out whether the record is the cause."""
        part, position = attempt.part, death.position
        part.n_kills += 1
        pause = pause_seconds(part.n_kills)
        if position is not None and position == attempt.only:
            part.kills_alone[position] += 1
            if part.kills_alone[position] >= KILLS_ALONE:
                self._set_aside(part, position, f"{death.cause}, {KILLS_ALONE} times alone")
                return
        only = attempt.only if position is None else position
        # A record that has survived alone isn't the cause, so it isn't retried alone again: the whole part is.
        self._retry(part, None if only in part.survived_alone else only, pause)

    def _set_aside(self, part: _Part, position: int, cause: str) -> None:
        part.set_aside[position] = cause
        if position >= 0:  # a negative position is a batch, which is now processed row by row
            self.on_set_aside(part.index, position, cause)
        self._retry(part, None)

    def _retry(self, part: _Part, only: int | None, pause: float = 0.0) -> None:
        part.n_retries += 1
        if part.n_retries > MAX_RETRIES_PER_PART:
            n_set_aside = sum(position >= 0 for position in part.set_aside)
            self._fail(part, f"given up after {MAX_RETRIES_PER_PART} retries: {n_set_aside} records set aside")
        else:
            self.waiting.appendleft(_Attempt(part, only, time.monotonic() + pause if pause else 0.0))

    def _fail(self, part: _Part, error: str) -> None:
        self.failures.append(TaskFailure(part.index, error))

    def _failed_to_start(self, part: _Part, only: int | None, worker: WorkerProcess, cause: str) -> None:
        self.n_failed_starts += 1
        if self.n_failed_starts >= MAX_FAILED_STARTS:
            remedy = "raise the limit on their address space (ulimit -v)"
            raise MachineError(
                f"worker processes cannot start ({cause})",
                remedy if worker.is_confined else "see their message above, on stderr",
            )
        self.waiting.appendleft(_Attempt(part, only))


def check_importable(function: Callable[..., Any]) -> None:
    """Raise ConfigError for a function of the main script."""
    if getattr(function, "__module__", None) == "__main__":
        raise ConfigError(
            f"the function '{function.__qualname__}' is in the main script, where workers cannot import it",
            "move it to a module of its own",
        )


def pause_seconds(n_kills: int) -> float:
    """Return how long to wait before a part is retried that was killed from outside `n_kills` times."""
    return min(PAUSE_SECONDS * PAUSE_GROWTH ** min(n_kills - 1, 8), MAX_PAUSE_SECONDS)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
