"""The one function that produces a document's text (`Document.text`), whatever its source.

The result is valid UTF-8 without NUL, surrogates or C0 controls other than `\\n` and `\\t`. Lines end in `\\n`, with at
most two in a row, without trailing blanks; the text doesn't begin or end with empty lines. Nothing else changes: the
text isn't Unicode-normalised (only dedup keys are), and indentation is kept.

Also columns of documents as arrays: texts within bounds, their bytes, keys of links. Extraction and import drop texts that
are too long for a worker's memory, but a documents set that webtext didn't make may contain some.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.inputs.identity import has_surrogates
from webtext.clean.reasons import TOO_MANY_BYTES

MAX_TEXT_BYTES = 10_000_000
KEY_DIGITS = 16
"""Hex digits of a link's id that are compared: a wrong link is included by chance once in 10^12 times."""
Keys = npt.NDArray[np.uint64]
_LINE_ENDS = tuple(end.encode() for end in ("\r\n", "\x85", "\u2028", "\u2029"))
_TO_LINE_END = bytes.maketrans(b"\r\x0b\x0c", b"\n\n\n")
_CONTROLS = bytes({*range(0x20)} - {*b"\t\n\r\x0b\x0c"})
_EMPTY_LINES = re.compile(r"\n{3,}")


def is_longer(text: str) -> bool:
    """Return whether a text has more than MAX_TEXT_BYTES bytes in UTF-8."""
    most = MAX_TEXT_BYTES
    return len(text) > most or (4 * len(text) > most and len(text.encode("utf-8", "replace")) > most)


def clean_text(text: str) -> str:
    """Return the text as documents store it. Idempotent, in linear time.

    Surrogate pairs become their character, lone surrogates U+FFFD.

    >>> clean_text("def f():\\r\\n    return 1  \\r\\n\\r\\n\\r\\n\\x00end\\n")
    'def f():\\n    return 1\\n\\nend'
    """
    if has_surrogates(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    data = text.encode()  # as bytes: a regex takes ten times as long
    for end in _LINE_ENDS:
        data = data.replace(end, b"\n")
    text = data.translate(_TO_LINE_END, _CONTROLS).decode()
    # Not a regex: `[^\S\n]+$` takes quadratic time on a long run of blanks inside a line.
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    return (_EMPTY_LINES.sub("\n\n", text) if "\n\n\n" in text else text).strip("\n")


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


def id_keys(identifiers: pa.Array | pa.ChunkedArray) -> Keys:
    """Return 64 bits of each link's id as uint64, in order."""
    heads = pc.utf8_lpad(pc.utf8_slice_codeunits(identifiers, 0, KEY_DIGITS), KEY_DIGITS, "0")
    return np.frombuffer(bytes.fromhex("".join(heads.to_pylist())), ">u8").astype(np.uint64)


def id_key(identifier: str) -> int:
    """Return the first 64 bits of a link's id."""
    return int(identifier[:KEY_DIGITS], 16)
