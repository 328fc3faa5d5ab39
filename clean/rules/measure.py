"""documents/ to signals/: the stage that measures every rule's value for every document, part for part, row for row."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from webtext.base.partset import PartSet
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import SIGNALS
from webtext.base.stage import PartContext, PartTask, run_parts
from webtext.clean import _signals
from webtext.clean.dedup.sign import texts_of
from webtext.clean.inputs import SetName

CODE_VERSION = 2
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
            versions={"unicode": _signals.UNICODE_VERSION},
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
        context.main.counts.keep(batch.num_rows)
        context.main.write_table(signals_table(batch))


def signals_table(documents: pa.RecordBatch | pa.Table) -> pa.Table:
    """The 'signals' rows of documents, whose COLUMNS are read: no value becomes a Python object."""
    texts = documents["text"]
    measured = _signals.measure(*texts_of(texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts))
    columns = [measured[name] if name in measured else documents[name] for name in SIGNALS.names]
    return pa.table(columns, schema=SIGNALS)
