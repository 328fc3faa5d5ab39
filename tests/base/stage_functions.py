"""Part functions for the tests of stages: workers import them by name."""

from __future__ import annotations

import ctypes
import errno
import time
from pathlib import Path
from typing import Any

from webtext.base.errors import InputError, missing_extra
from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.workers.attempt import Failed


def judge(number: int) -> int:
    """Process a record; some records are planted to fail."""
    if number == 1000:
        ctypes.string_at(0)
    if number == 1001:
        raise ValueError("a bad record")
    if number == 1002:
        raise InputError("a part was altered", "make it again")
    if number == 1003:
        raise OSError(errno.ENOSPC, "No space left on device", "/full/disk")
    if number == 1004:
        raise missing_extra("lxml", "build")
    return number * 2


def double(context: PartContext, task: PartTask) -> None:
    """Keep even numbers and drop odd ones."""
    kept, dropped = context.output("kept"), context.output("dropped")
    for _, number, result in context.apply(judge, enumerate(task.payload["numbers"]), identify=str):
        if isinstance(result, Failed):
            continue
        row = decision(number, result)
        if number % 2:
            dropped.write([row])
            kept.counts.drop("odd")
        else:
            kept.write([row])
            kept.counts.keep()
    if task.index in task.payload.get("endless", ()):
        time.sleep(600)
    if task.payload.get("breaks"):
        raise RuntimeError("the part breaks")


def decision(number: int, value: float) -> dict[str, Any]:
    """Return a row of the kind 'dropped', which is the simplest one."""
    return {"id": str(number), "stage": "filter", "reason": "planted", "value": float(value), "text_start": ""}


def files(folder: Path) -> dict[str, bytes]:
    """Return the bytes of each file in a folder, by its path there, except what a run says of itself."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }
