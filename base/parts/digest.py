"""A digest of records that doesn't depend on how they are stored: equal values have equal digests.

File bytes change with library versions and row-group sizes. This digest covers only the values, so it proves that two
machines have the same records.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.parts.identifiers import KEY_DIGITS

Keys = npt.NDArray[np.uint64]

DIGEST_ROWS = 1024
DIGEST_BYTES = 16 << 20
"""A block is DIGEST_ROWS rows, or fewer if they reach DIGEST_BYTES (`row_bytes`). Part of the digest's definition."""


class RecordDigest:
    """SHA-256 over blocks of DIGEST_ROWS rows, column by column: nulls, then lengths, then values."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, block: pa.Table) -> None:
        """Add one block; every block except the last must have the length that `block_rows` returns."""
        for name in block.column_names:
            self._hash.update(name.encode() + b"\0")
            self._column(block.column(name).combine_chunks())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def _column(self, array: Any) -> None:
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
        self._hash.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)).tobytes())
        if pa.types.is_struct(array.type):
            for field, values in zip(array.type, array.flatten(), strict=True):
                self._hash.update(field.name.encode() + b"\0")
                self._column(values)
        elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            self._hash.update(_numbers(pc.list_value_length(array), pa.int64()))
            self._column(array.flatten())
        elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or pa.types.is_binary(array.type):
            self._hash.update(_numbers(pc.binary_length(array), pa.int64()))
            self._hash.update(_text(array))
        elif pa.types.is_boolean(array.type):
            self._hash.update(_numbers(array.cast(pa.int8()), pa.int8()))
        else:
            self._hash.update(_numbers(array, array.type))


def block_rows(n_bytes: np.ndarray) -> int:
    """Return how many rows make up the next block, given the `row_bytes` of pending rows; 0 if they don't fill one."""
    reached = int(np.searchsorted(np.cumsum(n_bytes[:DIGEST_ROWS]), DIGEST_BYTES)) + 1
    return min(reached, DIGEST_ROWS) if min(reached, DIGEST_ROWS) <= len(n_bytes) else 0


def row_bytes(table: pa.Table) -> np.ndarray:
    """Return each row's size (int64): its strings in UTF-8, 64 bytes per list item, nothing for numbers."""
    total = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            total += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        elif pa.types.is_list(column.type):
            total += 64 * pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    return total


def _text(array: Any) -> memoryview | bytes:
    """Return the concatenated values without copying them; a null adds nothing."""
    if array.null_count:
        array = pc.fill_null(array, pa.scalar("").cast(array.type))
    _, offsets, values = array.buffers()
    if not len(array) or values is None:
        return b""
    is_large = pa.types.is_large_string(array.type)
    ends = np.frombuffer(offsets, np.int64 if is_large else np.int32)[array.offset : array.offset + len(array) + 1]
    return memoryview(values)[ends[0] : ends[-1]]


def _numbers(array: Any, type_: pa.DataType) -> bytes:
    return bytes(pc.fill_null(array.cast(type_), 0).to_numpy(zero_copy_only=False).tobytes())


def link_keys(link_ids: pa.Array | pa.ChunkedArray) -> Keys:
    """Return the `link_key` of each link_id, in order.

    >>> [hex(key) for key in link_keys(pa.array(["0123456789abcdef" * 2, "f" * 32]))]
    ['0x123456789abcdef', '0xffffffffffffffff']
    """
    array = link_ids.combine_chunks() if isinstance(link_ids, pa.ChunkedArray) else link_ids
    padded = pc.utf8_lpad(pc.utf8_slice_codeunits(array, 0, KEY_DIGITS), KEY_DIGITS, "0")
    text = np.frombuffer(padded.cast(pa.binary()).cast(pa.binary(KEY_DIGITS)).buffers()[1], np.uint8)
    digits = (text[: len(array) * KEY_DIGITS] & 15) + 9 * (text[: len(array) * KEY_DIGITS] >> 6)
    return (digits[0::2] << 4 | digits[1::2]).view(">u8").astype(np.uint64)
