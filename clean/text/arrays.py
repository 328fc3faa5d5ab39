"""Columns of documents as arrays: their texts within bounds, and the bytes of the texts.

Apart from `clean_text.py`, because a verb's help imports that and has to load no pyarrow. Extraction and import drop texts that
are too long for a worker's memory (MAX_TEXT_BYTES), but a documents set that webtext didn't make may contain some.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.text.clean_text import MAX_TEXT_BYTES


def shortened(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the texts with "" for each that is too long, and for each text TOO_MANY_BYTES if too long, else null."""
    large = pc.greater(pc.binary_length(texts), MAX_TEXT_BYTES)
    if large.true_count:
        texts = pc.if_else(large, "", texts)
    return texts, pc.if_else(large, TOO_MANY_BYTES, pa.scalar(None, pa.string()))


def texts_of(column: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of a string array and the offsets [n + 1] of its texts, the form that the native core takes."""
    _, offsets, data = column.buffers()
    if len(column) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    ends = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return np.frombuffer(data or b"", np.uint8), ends
