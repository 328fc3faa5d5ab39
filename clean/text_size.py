"""Drops documents whose text is too long for a worker's memory.

Extraction and import drop them already (`max_text_bytes`), but a documents set that webtext didn't make may contain
some.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.parts.partset import PartSet
from webtext.base.parts.schemas import DECISION
from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.text import MAX_TEXT_BYTES

START_CHARACTERS = 200


def max_text_bytes(documents: PartSet) -> int:
    """Return the limit that the documents were made with; MAX_TEXT_BYTES for a set that doesn't record one."""
    limit = documents.recipe["settings"].get("max_text_bytes")
    return limit if isinstance(limit, int) else MAX_TEXT_BYTES


def shortened(texts: pa.Array, max_bytes: int) -> tuple[pa.Array, pa.Array]:
    """Return the texts with "" for each that is too long, and for each text TOO_MANY_BYTES if too long, else null."""
    large = pc.greater(pc.binary_length(texts), max_bytes)
    if large.true_count:
        texts = pc.if_else(large, "", texts)
    return texts, pc.if_else(large, TOO_MANY_BYTES, pa.scalar(None, pa.string()))


def without_too_long(documents: pa.RecordBatch, max_bytes: int) -> tuple[pa.RecordBatch, pa.Table]:
    """Return the documents whose text is within the limit, and the rows of `dropped` for the others."""
    n_bytes = pc.binary_length(documents["text"])
    large = pc.greater(n_bytes, max_bytes)
    found = documents.filter(large)
    columns = {name: pa.nulls(found.num_rows, DECISION.field(name).type) for name in DECISION.names}
    columns |= {"id": found["id"], "url": found["url"], "value": n_bytes.filter(large).cast(pa.float64())}
    for name, value in (("stage", "filter"), ("reason", TOO_MANY_BYTES), ("threshold", float(max_bytes))):
        columns[name] = pa.repeat(value, found.num_rows)
    columns["text_start"] = pc.utf8_slice_codeunits(found["text"], 0, START_CHARACTERS)
    return documents.filter(pc.invert(large)), pa.table(columns, schema=DECISION)
