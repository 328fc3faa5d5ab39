"""Part functions for the tests of killed workers; workers import them by name."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.workers.attempt import Failed

BETWEEN_RECORDS = -1  # not the number of any record


def wait_to_be_killed(context: PartContext, task: PartTask) -> None:
    """Write a row per number; each is marked as begun in `folder` and waits for the kills that `kills` has left."""
    folder, kills = Path(task.payload["folder"]), task.payload["kills"]

    def begin(number: int) -> int:
        begun, own = 0, folder / f"{os.getpid()}.tmp"
        own.write_text(str(os.getpid()))
        while True:
            try:  # a link, which two workers can't both make
                os.link(own, folder / f"{number}-{begun}")
                break
            except FileExistsError:
                begun += 1
        if begun < kills.get(number, 0):
            time.sleep(600)
        return number * 2

    if BETWEEN_RECORDS in kills:
        begin(BETWEEN_RECORDS)
    for _, number, result in context.apply(begin, enumerate(task.payload["numbers"]), identify=str):
        if not isinstance(result, Failed):
            context.main.counts.keep()
            context.main.write([row(number, result)])


def row(number: int, value: float) -> dict[str, Any]:
    """Return a row of the kind 'dropped', which is the simplest one."""
    return {"id": str(number), "stage": "filter", "reason": "planted", "value": float(value), "text_start": ""}
