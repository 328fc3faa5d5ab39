"""Reader for untrusted Parquet files: bounded memory, and a bad string costs only its own row.

A dictionary page stores a long value once, however many rows refer to it, so 188 KB can decode to gigabytes. The size
of the decoded rows is therefore measured first, without expanding dictionaries, and determines the rows per batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MAX_EXPANSION = 128
"""Maximum ratio of decoded size to file size."""
MIN_LIMIT_BYTES = 16 << 20  # decoded size that is allowed even for the smallest file
BATCH_BYTES = 16 << 20
BATCH_ROWS = 256
BUFFER_BYTES = 1 << 20  # read ahead per column; otherwise Arrow keeps the entire row group in memory
_LONG_BYTES = 16 << 10
_SIGNATURE_BYTES = 28  # of the footer of a file in which columns are encrypted (parquet-format/Encryption.md)
_MEASURED_ROWS = 4096  # every batch copies its dictionary, so use few large batches


class Expands(ValueError):
    """Raised if the rows of a file decode to more bytes than its size allows."""


def open_parquet(opened: BinaryIO) -> pq.ParquetFile:
    """Open a file; raises OSError, beside Arrow's errors, if columns are encrypted: their description aborts Arrow."""
    file = pq.ParquetFile(opened)
    opened.seek(-8, 2)
    if int.from_bytes(opened.read(4), "little") - file.metadata.serialized_size == _SIGNATURE_BYTES:
        raise OSError("some of its columns are encrypted")
    return file


def parquet_batches(opened: BinaryIO, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Return an iterator over `columns` in batches of at most BATCH_BYTES, or of one row if that is larger.

    Raises Expands before the first batch; a damaged file raises Arrow's errors. Memory: a few times the largest of
    BATCH_BYTES, a row and a dictionary.
    """
    largest = _largest_row(opened, columns)
    n_rows = min(BATCH_ROWS, max(BATCH_BYTES // max(largest, 1), 1))
    # Otherwise Arrow checks the strings of columns written as dictionaries and rejects the entire batch.
    written = [field.name for field in pq.ParquetFile(opened).schema_arrow if pa.types.is_dictionary(field.type)]
    as_written = [name for name in written if name in columns]
    file = pq.ParquetFile(opened, read_dictionary=as_written, pre_buffer=False, buffer_size=BUFFER_BYTES)
    batches: Iterator[pa.RecordBatch] = file.iter_batches(n_rows, columns=list(columns), use_threads=False)
    return batches


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any] | Exception]:
    """Return each row's values, or an exception for a row that can't be converted to Python.

    A string that isn't UTF-8, however deeply nested, gives a UnicodeDecodeError; a time that is out of range gives a
    ValueError or OverflowError, and one in an unknown time zone a KeyError.
    """
    try:
        return list(batch.to_pylist())
    except (ValueError, OverflowError, KeyError) as error:
        if batch.num_rows == 1:
            return [error]
    return [rows_of(batch.slice(place, 1))[0] for place in range(batch.num_rows)]


def _largest_row(opened: BinaryIO, columns: Sequence[str]) -> int:
    """Return the bytes of the largest row; raises Expands if all rows together have too many."""
    limit = max(opened.seek(0, 2) * MAX_EXPANSION, MIN_LIMIT_BYTES)
    file = open_parquet(opened)
    as_dictionary = {field.name for field in file.schema_arrow if field.name in columns and _is_text(field.type)}
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    named = [(chunk.path_in_schema.partition(".")[0], chunk) for chunk in chunks]
    read = [(name, chunk) for name, chunk in named if name in columns]
    for name, chunk in read:
        if chunk.total_uncompressed_size > limit:
            raise Expands(f"column '{name}' takes {chunk.total_uncompressed_size:,} bytes, more than {limit:,}")
        # Arrow builds a dictionary for data written without one; for long values that takes a row group's memory.
        is_long = chunk.total_uncompressed_size > _LONG_BYTES * chunk.num_values
        if "DELTA_BYTE_ARRAY" in chunk.encodings or is_long:
            as_dictionary.discard(name)
    # In a chunk that is read without its dictionary, a single row may have all the bytes.
    divided = {name for name, chunk in read if name in as_dictionary or not chunk.physical_type.endswith("BYTE_ARRAY")}
    undivided = max((chunk.total_uncompressed_size for name, chunk in read if name not in divided), default=0)
    n_rows = min(_MEASURED_ROWS, max(BATCH_BYTES // max(undivided, 1), 1))
    total = largest = 0
    file = pq.ParquetFile(opened, read_dictionary=sorted(as_dictionary), pre_buffer=False, buffer_size=BUFFER_BYTES)
    with contextlib.suppress(OSError, pa.ArrowException):  # damage: reported when the batches are read
        for batch in file.iter_batches(n_rows, columns=list(columns), use_threads=False):
            sizes = sum(map(_sizes, batch.columns), np.zeros(batch.num_rows, np.int64))
            total, largest = total + int(sizes.sum()), max(largest, int(sizes.max(initial=0)))
            if total > limit:
                raise Expands(f"its rows take more than {limit:,} bytes")
    return largest


def _sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of each value (int64); for a nested column, all bytes count for the first row."""
    if not _is_text(column.type):
        return np.array([column.nbytes] + [0] * (len(column) - 1), np.int64)[: len(column)]
    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
    else:
        lengths = pc.binary_length(column)
    return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _is_text(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return _is_text(type_.value_type)
    return type_ in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
