"""Documents to signals: measures every rule's value for every document, part for part and row for row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from webtext.base.workers.journal import Failed
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


def read_signals(documents: PartSet, out: str | None, columns: Sequence[str], run: Run) -> Iterator[pa.Table]:
    """Yield the signals of `documents`: from out/signals, else from next to the documents, else measured now."""
    beside = Folder.split(documents.folder.url)[0].url
    for place in (out, beside):
        signals = _open_signals(documents, f"{place}/signals") if place else None
        if signals is not None:
            run.console.say(f"reading the signals in '{signals.folder.url}'")
            yield from (signals.table(part, columns) for part in signals.parts)
            return
    run.console.say(f"'{documents.folder.url}' has no signals yet: measuring {documents.records:,} documents")
    for part in documents.parts:
        for batch in documents.batches(part, COLUMNS, BATCH_ROWS):
            yield signals_table(batch, max_text_bytes(documents)).select(list(columns))


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
    documents = name.open()
    batches = documents.batches(part, COLUMNS, BATCH_ROWS)
    limit = max_text_bytes(documents)
    for rows, signals in context.apply_to_batches(lambda batch: signals_table(batch, limit), batches):
        if isinstance(signals, Failed):  # counted already; a placeholder row keeps signals aligned with documents
            context.main.write([_unmeasured(rows, signals)])
        else:
            context.main.counts.keep(rows.num_rows)
            context.main.write_table(signals)


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
