"""Functions that the engine's tests run in workers; workers import them by this module's name."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from webtext.base.errors import InputError
from webtext.base.workers.attempt import Attempt, Failed


class Heard:
    """What an engine reported."""

    def __init__(self) -> None:
        self.results: dict[int, Any] = {}
        self.set_aside: dict[tuple[int, int], str] = {}
        self.warnings: list[str] = []

    def map(self, engine: Any, function: Callable[..., Any], tasks: list[Any], **more: Any) -> Any:
        return engine.map(function, tasks, on_done=self._done, on_set_aside=self._aside, **more)

    def _done(self, index: int, result: Any) -> None:
        assert index not in self.results, "a part was published twice"
        self.results[index] = result

    def _aside(self, index: int, position: int, cause: str) -> None:
        assert (index, position) not in self.set_aside
        self.set_aside[index, position] = cause


def process(attempt: Attempt, records: Sequence[str]) -> list[str]:
    """Return each processed record; some records do harm instead."""
    answers = []
    for _, record in attempt.watch(enumerate(records)):
        harm(record)
        answers.append(record.upper())
    return answers


def harm(record: str) -> None:
    kind, _, argument = record.partition(" ")
    if kind == "segfault":
        ctypes.string_at(0)
    elif kind == "hang":
        if argument:
            Path(argument).touch()
        time.sleep(600)
    elif kind == "eat":
        eaten = []
        while True:
            eaten.append(bytearray(b"x" * (1 << 20)))
    elif kind == "jump":
        bytearray(1 << 40)
    elif kind == "exit":
        os._exit(3)
    elif kind.endswith("_once") and not Path(argument).exists():
        Path(argument).touch()
        harm(kind.removesuffix("_once"))
    elif kind == "wait":
        time.sleep(float(argument))


def die_between_records(attempt: Attempt, marker: str) -> str:
    for _, _ in attempt.watch(enumerate("ab")):
        pass
    if not marker or not Path(marker).exists():
        if marker:
            Path(marker).touch()
        os._exit(4)
    return "survived"


def stall_between_records(attempt: Attempt, begun: str) -> None:
    for _, _ in attempt.watch(enumerate("ab")):
        pass
    with open(begun, "a") as file:
        file.write(".")
    time.sleep(600)


def process_batches(attempt: Attempt, records: Sequence[str]) -> list[str]:
    """Return the result for each range of rows, or in brackets why a row failed; a batch has four rows."""
    rows = pa.RecordBatch.from_pydict({"record": records})
    batches = [rows.slice(start, 4) for start in range(0, rows.num_rows, 4)]
    answers = []
    for _, answer in attempt.apply_to_batches(joined, batches):
        answers.append(f"({answer.cause})" if isinstance(answer, Failed) else answer)
    return answers


def joined(rows: pa.RecordBatch) -> str:
    records = rows["record"].to_pylist()
    for record in records:
        harm(record)
    return "".join(records)


def die_alone_never(attempt: Attempt, record: int) -> int:
    """Die at position 1, unless that record is retried alone."""
    for position, _ in attempt.watch(enumerate("abc")):
        if position == 1 and attempt.only is None:
            os._exit(3)
    return record


def die_at_every_record(attempt: Attempt, n_records: int) -> None:
    for _ in attempt.watch(enumerate(range(n_records))):
        os._exit(3)


def work_under_the_engine_s_eyes(attempt: Attempt, folder: str) -> int:
    """Note five records in `folder`, each of which lasts until the engine has read its clock six times."""
    with open(Path(folder) / "begun", "ab") as begun:
        begun.write(b".")
    n_done = 0
    for _, record in attempt.watch(enumerate(range(5))):
        (Path(folder) / f"record-{record}").touch()
        until = readings(folder) + 6
        while readings(folder) < until:
            time.sleep(0.005)
        n_done += 1
    return n_done


def readings(folder: str) -> int:
    return (Path(folder) / "readings").stat().st_size


def raise_error(attempt: Attempt, kind: str) -> str:
    if kind == "value":
        raise ValueError("two\nlines")
    if kind == "input":
        raise InputError("part 'a' is not what it was", "make it again")
    if kind == "space":
        raise OSError(errno.ENOSPC, "No space left on device", "/full/disk")
    if kind == "space, unnamed":
        raise OSError(errno.ENOSPC, "No space left on device")
    if kind == "unpicklable":
        return lambda: None  # type: ignore[return-value]
    if kind == "exit":
        sys.exit(5)
    return kind


def pid_of_worker(attempt: Attempt, task: object) -> int:
    return os.getpid()


def hold_memory(attempt: Attempt, n_bytes: int) -> int:
    hold_memory.__dict__["held"] = bytearray(b"x") * n_bytes
    return os.getpid()


def free_arrow_memory(attempt: Attempt, n_mib: int) -> int:
    [pa.array([bytes(1 << 20)]) for _ in range(n_mib)].clear()
    return os.getpid()


def meet(attempt: Attempt, own_and_other: tuple[str, str]) -> bool:
    """Return whether the other task was running at the same time."""
    own, other = map(Path, own_and_other)
    own.touch()
    deadline = time.monotonic() + 120
    while not other.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def announce_and_sleep(attempt: Attempt, folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)


def surroundings(attempt: Attempt, task: object) -> dict[str, object]:
    print("printed by a library")
    os.write(1, b"written by a C library\n")
    return {
        "arrow_threads": pa.cpu_count(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "set_order": list({"one", "two", "three", "four"}),
        "children": subprocess.run(["true"], check=True).returncode,
    }
