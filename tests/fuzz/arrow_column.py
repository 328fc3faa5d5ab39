"""Columns of Arrow with any offsets and views, within their buffers, given to the tokenizer (tokenizer/native/bind).

- The ids are those of the texts as a list; a column of ids is read back as it was made.
- A row that is null, or a text whose begin, end or buffer contradict each other, is an InputError.

Offsets beyond their buffer are left out: Arrow's C interface doesn't say how long it is, so its producer is trusted.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import pyarrow as pa
from choices import Choices

from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer, Vocabulary

TYPES = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()]
_MOST_ROWS = 20

Texts = list[bytes | None]
"""The texts of a column's rows; None for a row that is null or damaged."""


def check(data: bytes) -> None:
    choices = Choices(data)
    type_ = TYPES[choices.below(len(TYPES))]
    chunks, texts = [], []
    for _ in range(1 + choices.below(3)):
        make = _views if type_ in TYPES[4:] else _offsets
        try:
            chunk, rows = make(choices, type_)
        except pa.ArrowInvalid:  # pyarrow compares the last offset with the buffer
            return
        begin, n_rows = choices.below(len(rows) + 1), choices.below(len(rows) + 1)
        chunks.append(chunk.slice(begin, n_rows))
        texts += rows[begin : begin + n_rows]
    column = chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, type_)
    threads = 1 + choices.below(2)
    try:
        ids = _tokenizer().encode_arrow(column, threads)
    except InputError:
        assert None in texts
        return
    assert None not in texts
    assert pa.array(ids).to_pylist() == _tokenizer().encode_batch(texts)


def _offsets(choices: Choices, type_: Any) -> tuple[Any, Texts]:
    """Return an array with any offsets from -2 to the end of its bytes, and its texts."""
    n_rows, data = choices.below(_MOST_ROWS), choices.take(choices.below(256))
    is_sorted = choices.below(4) > 0
    offsets = [choices.below(len(data) + 3) - 2 for _ in range(n_rows + 1)]
    if is_sorted:
        offsets = sorted(max(0, offset) for offset in offsets)
    form = "q" if type_ in TYPES[2:4] else "i"
    texts: Texts = [
        data[begin:end] if 0 <= begin <= end else None for begin, end in zip(offsets, offsets[1:], strict=False)
    ]
    validity, texts = _validity(choices, texts)
    buffers = [validity, pa.py_buffer(struct.pack(f"<{n_rows + 1}{form}", *offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, n_rows, buffers), texts


def _views(choices: Choices, type_: Any) -> tuple[Any, Texts]:
    """Return an array with any views, and its texts."""
    n_rows, blocks = choices.below(_MOST_ROWS), [choices.take(choices.below(64)) for _ in range(choices.below(3))]
    views, texts = b"", []
    for _ in range(n_rows):
        length, buffer, begin = choices.below(40) - 3, choices.below(len(blocks) + 2) - 1, choices.below(64) - 2
        inline = choices.take(max(0, min(length, 12))).ljust(12, b"\0")
        if length <= 12:
            views += struct.pack("<i", length) + inline
            texts.append(inline[:length] if length >= 0 else None)
        else:
            views += struct.pack("<i4sii", length, inline[:4], buffer, begin)
            is_sound = 0 <= buffer < len(blocks) and begin >= 0 and begin + length <= len(blocks[buffer])
            texts.append(blocks[buffer][begin : begin + length] if is_sound else None)
    validity, rows = _validity(choices, texts)
    return pa.Array.from_buffers(type_, n_rows, [validity, pa.py_buffer(views), *map(pa.py_buffer, blocks)]), rows


def _validity(choices: Choices, texts: Texts) -> tuple[Any, Texts]:
    """Return a buffer with a bit per row, or None, and the texts of the rows that are valid."""
    bits = choices.take(-(-len(texts) // 8)).ljust(-(-len(texts) // 8), b"\xff")
    if choices.below(4):
        return None, texts
    return pa.py_buffer(bits), [text if bits[i // 8] >> i % 8 & 1 else None for i, text in enumerate(texts)]


@functools.cache
def _tokenizer() -> Tokenizer:
    pairs = [bytes([a, b]) for a in b" aest\xc3\xe4" for b in b" aest\xa9\xb8"]
    tokens = [*(bytes([byte]) for byte in range(256)), *pairs]
    return Tokenizer(Vocabulary(tokens=tokens, merges=None, whole_pieces=True))
