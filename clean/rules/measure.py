"""documents/ to signals/: the stage that measures every rule's value for every document, part for part, row for row."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from webtext.base.partset import PartSet
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.stage import PartContext, PartTask, run_parts
from webtext.clean.inputs import SetName
from webtext.clean.rules.signals import signals_of

CODE_VERSION = 1
COLUMNS = ["id", "text", "language", "language_score"]
BATCH_ROWS = 256


@dataclass(frozen=True, slots=True)
class MeasureTask:
    """One part of a documents set."""

    documents: SetName
    part: int


def measure_signals(documents: PartSet, out: str, run: Run) -> PartSet:
    """Write the signals set `out` of `documents`. It has no settings: a rule's threshold is no part of its value."""
    name = SetName.of(documents)
    return run_parts(
        _measure_part,
        [
            PartTask(index=part.index, sources=(documents.source(i),), payload=MeasureTask(name, i))
            for i, part in enumerate(documents.parts)
        ],
        recipe=Recipe(
            stage="clean.signals",
            code_version=CODE_VERSION,
            settings={},
            versions={"unicode": unicodedata.unidata_version},
        ),
        outputs={"signals": (out, "signals")},
        parents=[documents],
        run=run,
        label="clean.signals",
    )["signals"]


def _measure_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    documents = task.payload.documents.open()
    for batch in documents.batches(task.payload.part, COLUMNS, BATCH_ROWS):
        rows = batch.to_pylist()
        context.main.counts.keep(len(rows))
        context.main.write([row | signals_of(row.pop("text")) for row in rows])
