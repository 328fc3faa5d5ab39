"""Documents to signals: measures every rule's value for every document, part for part and row for row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import SIGNALS
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.journal import Failed, Journal
from webtext.clean import _signals
from webtext.clean.text.arrays import max_text_bytes, shortened, texts_of
from webtext.clean.text.clean_text import MAX_TEXT_BYTES

CODE_VERSION = 3  # 3: failed; words of scripts without spaces
COLUMNS = ["id", "text", "language", "language_score"]
BATCH_ROWS = 256


def measure_signals(documents: PartSet, out: str, run: Run) -> PartSet:
    """Write the signals set `out` of `documents`. It takes no settings: values don't depend on thresholds."""
    name = SetName.of(documents)
    return run_parts(
        _measure_part,
        [
            PartTask(index=part.index, sources=(documents.source(i),), payload=(name, i))
            for i, part in enumerate(documents.parts)
        ],
        recipe=_recipe(),
        outputs={"signals": (out, "signals")},
        parents=[documents],
        run=run,
        label="clean.signals",
    )["signals"]


def find_signals(documents: PartSet, out: str | None, run: Run) -> PartSet | None:
    """Return the signals of `documents` in out/signals, else next to the documents; None if they must be measured."""
    beside = Folder.split(documents.folder.url)[0].url
    for place in (out, beside):
        signals = _open_signals(documents, f"{place}/signals") if place else None
        if signals is not None:
            run.console.say(f"reading the signals in '{signals.folder.url}'")
            return signals
    run.console.say(f"'{documents.folder.url}' has no signals yet: measuring {documents.records:,} documents")
    return None


def read_signals(
    documents: PartSet, signals: PartSet | None, part: int, columns: Sequence[str], journal: Journal
) -> Iterator[pa.Table]:
    """Yield the signals of a part's documents, read or measured now."""
    if signals is not None:
        yield signals.table(part, columns)
        return
    for measured, _ in _measured(documents, part, journal.apply_to_batches):
        yield measured.select(list(columns))


def _recipe() -> Recipe:
    return Recipe(
        stage="clean.signals", code_version=CODE_VERSION, settings={}, versions={"unicode": _signals.UNICODE_VERSION}
    )


def _open_signals(documents: PartSet, url: str) -> PartSet | None:
    """Return the signals set at `url` if it was made from these documents by this version of the code."""
    try:
        signals = PartSet.open(url, "signals")
    except InputError:
        return None
    parents = [parent["hash"] for parent in signals.manifest["parents"]]
    return signals if signals.recipe == _recipe().to_json() and parents == [documents.hash] else None


def _measure_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    name, part = task.payload
    for signals, failed in _measured(name.open(), part, context.apply_to_batches):
        context.main.counts.keep(0 if failed else signals.num_rows)  # a failed row is counted already
        context.main.write_table(signals)


def _measured(documents: PartSet, part: int, apply: Callable[..., Iterator[Any]]) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the signals of a part's documents, and whether they are a placeholder's for one document that failed."""
    limit = max_text_bytes(documents)
    batches = documents.batches(part, COLUMNS, BATCH_ROWS)
    for rows, signals in apply(lambda batch: signals_table(batch, limit), batches):
        failed = isinstance(signals, Failed)
        yield pa.Table.from_pylist([_unmeasured(rows, signals)], schema=SIGNALS) if failed else signals, failed


def _unmeasured(document: pa.RecordBatch, failed: Failed) -> dict[str, Any]:
    about: dict[str, Any] = document.select(["id", "language", "language_score"]).to_pylist()[0]
    return dict.fromkeys(SIGNALS.names, 0) | about | {"failed": failed.reason}


def signals_table(documents: pa.RecordBatch | pa.Table, max_bytes: int = MAX_TEXT_BYTES) -> pa.Table:
    """Return the rows of the schema SIGNALS for documents with COLUMNS; no text becomes a Python object."""
    texts = documents["text"]
    texts, failed = shortened(texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts, max_bytes)
    measured = _signals.measure(*texts_of(texts)) | {"failed": failed}
    is_unspaced = np.isnan(measured["mean_word_length"])
    for name in ("mean_word_length", "n_stop_words"):
        measured[name] = pa.array(measured[name], mask=is_unspaced)
    columns = [measured[name] if name in measured else documents[name] for name in SIGNALS.names]
    return pa.table(columns, schema=SIGNALS)
