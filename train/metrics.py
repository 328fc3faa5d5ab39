"""A run's `metrics.jsonl`: one JSON object a line, of each step and of what is measured on the way; known without torch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from webtext.base.console import Console
from webtext.base.errors import InputError
from webtext.base.storage import Folder, json_object, no_space_is_an_error

METRICS = "metrics.jsonl"
_TAIL_BYTES = 1 << 14


class MetricsLog:
    """The file of a run under way; its rows are there as soon as they are told."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def tell(self, row: dict[str, Any]) -> None:
        """One more row."""
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


@contextlib.contextmanager
def metrics_log(model_dir: Path, step: int, console: Console) -> Iterator[MetricsLog]:
    """The log of a run that goes on from `step`, cut back to it; a warning counts rows that cannot be read."""
    folder, place = Folder(model_dir), model_dir / METRICS
    with no_space_is_an_error(str(place)):
        rows = folder.read_bytes(METRICS).splitlines(keepends=True) if folder.exists(METRICS) and step else []
        if rows and not rows[-1].endswith(b"\n"):
            rows.pop()  # half written when the run was killed
        steps = [_step_of(row) for row in rows]
        if n := steps.count(None):
            console.warn(f"{n:,} of {len(rows):,} rows of '{place}' cannot be read: left out")
        kept = (row for row, told in zip(rows, steps, strict=True) if told is not None and told <= step)
        folder.write_bytes(METRICS, b"".join(kept))
        with open(place, "a", encoding="utf-8") as file:
            yield MetricsLog(file)


def read_metrics(folder: Folder, remedy: str) -> list[dict[str, Any]]:
    """All rows of a model folder but one that is being written. InputError, with the remedy, where there are none to read."""
    if not folder.exists(METRICS):
        raise InputError(f"'{folder.url}' holds no {METRICS}", remedy)
    lines = folder.read_bytes(METRICS).splitlines(keepends=True)
    return [json_object(line, folder.location(METRICS), remedy) for line in lines if line.endswith(b"\n")]


def steps_made(model_dir: Path) -> int:
    """The steps that a run has told of by now, by the end of its file; 0 where there is nothing to read."""
    try:
        with open(model_dir / METRICS, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            whole = file.read().rpartition(b"\n")[0]
        return _step_of(whole.rpartition(b"\n")[2]) or 0
    except OSError:
        return 0


def _step_of(row: bytes) -> int | None:
    """The step of a row; None where it is none."""
    try:
        step = json.loads(row)["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) else None
