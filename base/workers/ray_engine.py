"""The Ray engine: maps a function over tasks on the machines of a Ray cluster, as Ray Core tasks.

Each Ray task runs one task in a LocalEngine with one worker on its node, so a record that crashes, hangs or uses too much
memory costs itself alone, as on one machine. Calls and results are small; parts travel through storage that all nodes see.

    a worker or a node is lost    the task is sent again after a pause, MAX_LOSSES times
    a record is set aside         ends the Ray task: this process notes the record, and sends the task again without it
    an error stops the map        it is raised in this process, and all other tasks are cancelled
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import logging
import os
import pickle
import pkgutil
import platform
import re
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import webtext
from webtext.base.errors import ConfigError, MachineError, NetworkError, WebtextError
from webtext.base.storage import TEMPORARY_SUFFIX, Folder
from webtext.base.workers.attempt import Attempt
from webtext.base.workers.local_engine import (
    MAX_RETRIES_PER_PART,
    POLL_SECONDS,
    LocalEngine,
    TaskFailure,
    WorkerLimits,
    check_importable,
    ignore,
    pause_seconds,
)
from webtext.base.workers.worker import call_pickled

# Ray reads these when it is imported: it reports its use to nobody, and leaves this process's output alone.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}

import ray  # noqa: E402
from ray.exceptions import RayError, RayTaskError  # noqa: E402

T = TypeVar("T")
R = TypeVar("R")

MAX_LOSSES = 8  # of one task, with pauses of five minutes in all
MAX_SET_ASIDE = MAX_RETRIES_PER_PART // 2  # new records of one task; a LocalEngine retries a part twice for each
MAX_MESSAGE_BYTES = 64 << 20  # of a pickled call or result; larger data belongs in a part
CONNECT_SECONDS, CANCEL_SECONDS = 10.0, 30.0
LOSSES = {
    "WorkerCrashedError": "a Ray worker was killed",
    "NodeDiedError": "a node was lost",
    "OutOfMemoryError": "Ray killed a worker because its node ran out of memory",
}


class RayEngine:
    """The CPUs of a Ray cluster, connected to when first needed. This machine has to be one of its nodes."""

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        limits: WorkerLimits | None = None,
        *,
        quiet: bool = False,
        warn: Callable[[str], None] = ignore,
    ) -> None:
        """`address` is HOST:PORT; None means the cluster that runs on this machine. `workers` bounds the CPUs in use.

        `warn` is called with a line about tasks that were lost and are sent again.
        """
        self.limits, self.quiet, self.warn = limits or WorkerLimits(), quiet, warn
        self._address, self._max_workers = address, workers
        self._connected = False

    @property
    def workers(self) -> int:
        """How many tasks can run at the same time now; nodes come and go."""
        self._connect()
        return max(1, min(_cpus(), self._max_workers or _cpus()))

    @property
    def max_in_flight(self) -> int:
        """How many tasks the cluster may have: twice its CPUs, so that none of them waits for this process."""
        return max(1, self._max_workers or 2 * _cpus())

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
        """See `LocalEngine.map`. `on_records` is not called: the heartbeats are in the memory of other machines."""
        check_importable(function)
        self._connect()
        parts = deque(_Part(index, dict((set_aside or {}).get(index, {}))) for index in range(len(tasks)))
        token = f".seen-{os.urandom(8).hex()}{TEMPORARY_SUFFIX}"
        seen = [folder.local_path(token).absolute() for folder in writes if folder.is_local]
        return _Map(self, function, tasks, on_done, on_set_aside, parts, seen).run()

    def limited(self, limits: WorkerLimits) -> RayEngine:
        """Return another engine of this kind with these limits; close it after use."""
        return RayEngine(self._address, self._max_workers, limits, quiet=self.quiet, warn=self.warn)

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        try:
            if self._address:  # `ray.init` would wait forever for a host that doesn't answer
                host, _, port = self._address.rpartition(":")
                socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
            ray.init(address=self._address or "auto", log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, OverflowError, RuntimeError) as error:
            raise NetworkError(
                f"no Ray cluster at {self._address or 'this machine'}: {' '.join(str(error).split())[:200]}",
                "start it with 'ray start --head', and 'ray start --address=HOST:6379' on each other machine,",
                "then rerun the command on one of them, with --address HOST:6379 unless it is HOST",
            ) from None
        self._connected = True

    def close(self) -> None:
        if self._connected:
            ray.shutdown()
            self._connected = False

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@dataclass(slots=True)
class _Part:
    """The state of one task while its map runs."""

    index: int
    set_aside: dict[int, str]
    n_set_aside: int = 0  # in this map
    n_losses: int = 0
    not_before: float = 0.0  # on the monotonic clock


@dataclass(frozen=True, slots=True)
class _Place:
    """Settings of this process that a node adopts before it runs a task, and the folders that both should see."""

    folder: str  # relative paths start here
    path: list[str]
    limits: WorkerLimits
    quiet: bool
    seen: list[str]  # an empty file in each local folder that the tasks write


@dataclass(slots=True)
class _Map:
    """One call of `map`: the tasks that wait, run and failed."""

    engine: RayEngine
    function: Callable[[Attempt, Any], Any]
    tasks: Sequence[Any]
    on_done: Callable[[int, Any], None]
    on_set_aside: Callable[[int, int, str], None]
    waiting: deque[_Part]
    seen: list[Path]
    running: dict[Any, _Part] = field(default_factory=dict)  # by the reference to the Ray task's answer
    failures: list[TaskFailure] = field(default_factory=list)

    def run(self) -> list[TaskFailure]:
        try:
            for file in self.seen:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
            while self.waiting or self.running:
                self._send_waiting()
                lost = Counter(cause for answer in self._answers() if (cause := self._hear(answer)))
                for cause, n in lost.items():
                    self.engine.warn(f"{cause}; sending {n:,} of its tasks again")
            return sorted(self.failures, key=lambda failure: failure.index)
        finally:  # after any error, including Ctrl-C, no task may keep running
            for answer in self.running:
                ray.cancel(answer, force=True)
            if self.running:
                ray.wait(list(self.running), num_returns=len(self.running), timeout=CANCEL_SECONDS)
            for file in self.seen:
                file.unlink(missing_ok=True)

    def _send_waiting(self) -> None:
        now, room = time.monotonic(), self.engine.max_in_flight - len(self.running)
        for part in [part for part in self.waiting if part.not_before <= now][: max(room, 0)]:
            self.waiting.remove(part)
            # Pickled just before it is sent, so that memory never contains all tasks twice.
            call = _checked(pickle.dumps((self.function, self.tasks[part.index]), protocol=pickle.HIGHEST_PROTOCOL))
            limits, quiet = self.engine.limits, self.engine.quiet
            place = _Place(os.getcwd(), sys.path, limits, quiet, [str(file) for file in self.seen])
            self.running[_run_on_a_node.remote(_software(), place, call, part.set_aside)] = part

    def _answers(self) -> list[Any]:
        """Return the answers that have come, after waiting for the first one, half a second at most."""
        if not self.running:
            time.sleep(POLL_SECONDS)
            return []
        answers = list(self.running)
        ray.wait(answers, num_returns=1, timeout=10 * POLL_SECONDS)
        return list(ray.wait(answers, num_returns=len(answers), timeout=0)[0])

    def _hear(self, answer: Any) -> str:
        """Handle the end of a Ray task. Return the cause if its worker or node was lost."""
        part = self.running.pop(answer)
        try:
            kind, node, value = ray.get(answer)
        except RayTaskError as error:  # raised outside the function, e.g. by an import
            cause = str(error).strip().rpartition("\n")[2][:300]
            raise MachineError(f"a node cannot run tasks: {cause}", "install the same webtext on every node") from None
        except RayError as error:
            return self._lost(part, error)
        match kind:
            case "done":
                self.on_done(part.index, pickle.loads(value))
            case "failed":
                self.failures.append(TaskFailure(part.index, f"{value} (on {node})"))
            case "set aside":
                self._set_aside(part, *value)
            case "not seen":
                raise MachineError(
                    f"the node {node} does not see the folder '{os.path.dirname(value)}' of this machine",
                    "choose an --out on storage that all nodes share, or at an s3:// URL",
                )
            case "differs":
                raise MachineError(
                    f"the node {node} has other software than this machine: {value}",
                    "its records could differ: install the same webtext, Python and libraries on every node",
                )
            case _:
                raise type(value)(f"{value.lines[0]} (on {node})", *value.lines[1:])
        return ""

    def _lost(self, part: _Part, error: RayError) -> str:
        cause = LOSSES.get(type(error).__name__, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
        part.n_losses += 1
        if part.n_losses > MAX_LOSSES:
            self.failures.append(TaskFailure(part.index, f"given up after {part.n_losses} losses: {cause}"))
        else:
            self._send_again(part, pause_seconds(part.n_losses))
        return cause

    def _set_aside(self, part: _Part, position: int, cause: str) -> None:
        part.set_aside[position] = cause
        part.n_set_aside += 1
        self.on_set_aside(part.index, position, cause)
        if part.n_set_aside > MAX_SET_ASIDE:
            self.failures.append(TaskFailure(part.index, f"given up: {part.n_set_aside} records set aside"))
        else:
            self._send_again(part)

    def _send_again(self, part: _Part, pause: float = 0.0) -> None:
        part.not_before = time.monotonic() + pause
        self.waiting.appendleft(part)


def _run(software: dict[str, str], place: _Place, call: bytes, set_aside: dict[int, str]) -> tuple[str, str, Any]:
    """Run one call on this node. Return the kind of the answer, the node's name and the answer itself."""
    node = platform.node()
    ours = _software()
    if differ := [name for name in software if software[name] != ours.get(name)]:
        return "differs", node, ", ".join(f"{name} {ours.get(name)} instead of {software[name]}" for name in differ[:3])
    with suppress(OSError):  # without it, all paths that the call names may still be absolute, or URLs
        os.chdir(place.folder)
    for file in place.seen:
        if not os.path.exists(file):
            return "not seen", node, file
    sys.path += [entry for entry in place.path if entry not in sys.path]
    results: list[bytes] = []
    try:
        failures = _local_engine(place.limits, place.quiet).map(
            call_pickled,
            [call],
            on_done=lambda _, result: results.append(result),
            set_aside={0: set_aside},
            on_set_aside=_leave,
            writes=[Folder(os.path.dirname(file)) for file in place.seen],
        )
        return ("failed", node, failures[0].error) if failures else ("done", node, _checked(results[0]))
    except _SetAside as record:
        return "set aside", node, record.args
    except WebtextError as error:
        return "stops", node, error


_run_on_a_node: Any = ray.remote(num_cpus=1, max_retries=0)(_run)  # it is the driver that sends a lost task again


class _SetAside(Exception):
    """Ends a Ray task when a record is set aside. Its arguments are the record's position and the cause."""


def _leave(_: int, position: int, cause: str) -> None:
    raise _SetAside(position, cause)


@functools.cache
def _local_engine(limits: WorkerLimits, quiet: bool) -> LocalEngine:
    """Return this Ray worker's engine, whose process serves all its tasks and ends with it."""
    return LocalEngine(1, limits, quiet=quiet)


@functools.cache
def _software() -> dict[str, str]:
    """Return the versions that decide records: of Python, this package's files, and the libraries that it needs."""
    code = hashlib.sha256()
    for package in pkgutil.iter_modules(webtext.__path__):
        spec = importlib.util.find_spec(f"webtext.{package.name}") if package.ispkg else None
        for root in map(Path, (spec and spec.submodule_search_locations) or ()):
            for file in sorted(file for file in root.rglob("*") if file.suffix in (".py", ".so")):
                code.update(f"{package.name}/{file.relative_to(root)}".encode() + file.read_bytes())
    versions = {"Python": platform.python_version(), "webtext": f"{webtext.__version__} ({code.hexdigest()[:12]})"}
    for requirement in metadata.requires("webtext") or ():
        if "extra ==" not in requirement or re.search(r"""extra == .build.""", requirement):
            name = re.split(r"[^\w.-]", requirement)[0]
            with suppress(metadata.PackageNotFoundError):
                versions[name] = metadata.version(name)
    return versions


def _checked(message: bytes) -> bytes:
    if len(message) > MAX_MESSAGE_BYTES:
        raise ConfigError(
            f"a task or its result has {len(message):,} bytes; Ray carries {MAX_MESSAGE_BYTES:,} at most",
            "use --engine local",
        )
    return message


def _cpus() -> int:
    return int(ray.cluster_resources().get("CPU", 0))
