"""Functions that tasks on a Ray cluster run; its nodes import them by this module's name."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from webtext.base.errors import InputError
from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.workers.attempt import Attempt, Failed


def number(context: PartContext, task: PartTask) -> None:
    """Write the numbers of a task, after it has left a mark and waited for the file that its payload names, if any."""
    payload = task.payload
    if payload.get("waits_for"):
        mark(Path(payload["marks"]), task.index)
        while not Path(payload["waits_for"]).exists():
            time.sleep(0.05)
    for _, value, result in context.apply(checked, enumerate(payload["numbers"]), identify=str):
        if not isinstance(result, Failed):
            context.main.counts.keep()
            context.main.write([row(value)])


def checked(value: int) -> int:
    if value == 13:
        os._exit(3)
    return value


def row(value: int) -> dict[str, Any]:
    """Return a row of the kind 'dropped', which is the simplest one."""
    return {"id": str(value), "stage": "filter", "reason": "planted", "value": float(value), "text_start": ""}


def mark(folder: Path, index: int) -> None:
    """Note the task, the process that runs it, and the raylet of its node."""
    (folder / f"{index} {os.getpid()} {os.environ['RAY_RAYLET_PID']}").touch()


def marks(folder: Path) -> list[tuple[int, int, int]]:
    """Return (task, process, raylet) of each mark."""
    return sorted(tuple(map(int, path.name.split())) for path in folder.iterdir())  # type: ignore[misc]


def wait_or_stop(attempt: Attempt, task: tuple[str, int]) -> None:
    """Leave a mark and wait forever; task 0 waits for the marks of two others and raises an error that stops the map."""
    folder, index = task
    while index == 0:
        if len(marks(Path(folder))) == 2:
            raise InputError("'a/part-00000.parquet' was altered", "make it again")
        time.sleep(0.05)
    mark(Path(folder), index)
    time.sleep(600)


def large(attempt: Attempt, n_bytes: int) -> bytes:
    return bytes(n_bytes)


def where(attempt: Attempt, name: str) -> tuple[str, bool]:
    """Return the working folder and whether a file is there."""
    return os.getcwd(), os.path.exists(name)
