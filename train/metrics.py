"""A run's `metrics.jsonl`: one JSON object per line, for each step and each measurement. Needs no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated

import msgspec

from webtext.base.console import Console
from webtext.base.errors import InputError
from webtext.base.storage import Folder, decode_json, no_space_is_an_error

METRICS = "metrics.jsonl"


class MetricsRow(msgspec.Struct, kw_only=True):
    """The fields of a row that readers use; None if the row lacks one, or if it wasn't a finite number."""

    step: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
    loss: float | None = None
    validation_loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    tokens_per_second: float | None = None


@contextlib.contextmanager
def metrics_log(model_dir: Path, step: int, console: Console) -> Iterator[IO[str]]:
    """Open the log of a run that resumes from `step`, without later rows; warn about rows that cannot be read."""
    folder, place = Folder(model_dir), model_dir / METRICS
    with no_space_is_an_error(str(place)):
        rows = folder.read_bytes(METRICS).splitlines(keepends=True) if folder.exists(METRICS) and step else []
        if rows and not rows[-1].endswith(b"\n"):
            rows.pop()  # half written when the run was killed
        steps = [_step_of(row) for row in rows]
        if n := steps.count(None):
            console.warn(f"{n:,} of {len(rows):,} rows of '{place}' cannot be read and are dropped")
        kept = (row for row, of_step in zip(rows, steps, strict=True) if of_step is not None and of_step <= step)
        folder.write_bytes(METRICS, b"".join(kept))
        with open(place, "a", encoding="utf-8", buffering=1) as file:  # so a row can be read as soon as it is written
            yield file


def read_metrics(folder: Folder, remedy: str) -> list[MetricsRow]:
    """Return all rows of a model folder, except one that is being written.

    Raises InputError, with the remedy, if there is no file or a line isn't such a row.
    """
    if not folder.exists(METRICS):
        raise InputError(f"'{folder.url}' contains no {METRICS}", remedy)
    lines = folder.read_bytes(METRICS).splitlines(keepends=True)
    whole = (line for line in lines if line.endswith(b"\n"))
    return [decode_json(line, MetricsRow, f"{folder.location(METRICS)}:{n}", remedy) for n, line in enumerate(whole, 1)]


def steps_made(model_dir: Path) -> int:
    """Return the number of steps that a run has logged so far, from the end of its file; 0 if there is none."""
    try:
        with open(model_dir / METRICS, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 16_384))
            whole = file.read().rpartition(b"\n")[0]
        return _step_of(whole.rpartition(b"\n")[2]) or 0
    except OSError:
        return 0


def _step_of(row: bytes) -> int | None:
    try:
        return msgspec.json.decode(row, type=MetricsRow).step
    except (ValueError, RecursionError):
        return None
