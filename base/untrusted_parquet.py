"""Parquet files that somebody else wrote: rows in bounded memory, where a bad string costs its row alone.

A dictionary page holds a long value once, however many rows refer to it, so 188 KB can decode to gigabytes. The size of
the decoded rows is therefore measured first, with dictionaries left as they are, and decides how many rows a batch has.
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
"""How many times its own size a file may decode to."""
MIN_LIMIT_BYTES = 16 << 20  # what even the smallest file may decode to
BATCH_BYTES = 16 << 20
BATCH_ROWS = 256
BUFFER_BYTES = 1 << 20  # of a column that are read ahead; otherwise Arrow holds all of a row group's
_LONG_BYTES = 16 << 10
_MEASURED_ROWS = 4096  # every batch copies its dictionary, so fewer and larger ones


class Expands(ValueError):
    """The rows of a file decode to more bytes than its size allows."""


def parquet_batches(opened: BinaryIO, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns in batches of at most BATCH_BYTES or one row. Expands is raised before the first batch.

    Other errors are Arrow's (damaged files). Memory: a few times the largest of BATCH_BYTES, a row and a dictionary.
    """
    largest = _largest_row(opened, columns)
    n_rows = min(BATCH_ROWS, max(BATCH_BYTES // max(largest, 1), 1))
    # Arrow would check the strings of columns that were written as dictionaries, and reject the whole batch.
    written = [field.name for field in pq.ParquetFile(opened).schema_arrow if pa.types.is_dictionary(field.type)]
    as_written = [name for name in written if name in columns]
    file = pq.ParquetFile(opened, read_dictionary=as_written, pre_buffer=False, buffer_size=BUFFER_BYTES)
    batches: Iterator[pa.RecordBatch] = file.iter_batches(n_rows, columns=list(columns))
    return batches


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any] | Exception]:
    """Each row's values. A row that Python cannot hold is an error instead.

    It is a UnicodeDecodeError for a string that is not UTF-8, however nested, and another one for a time out of range.
    """
    try:
        return list(batch.to_pylist())
    except (ValueError, OverflowError) as error:
        if batch.num_rows == 1:
            return [error]
    return [rows_of(batch.slice(place, 1))[0] for place in range(batch.num_rows)]


def _largest_row(opened: BinaryIO, columns: Sequence[str]) -> int:
    """Bytes of the largest row; Expands when all rows together have too many."""
    limit = max(opened.seek(0, 2) * MAX_EXPANSION, MIN_LIMIT_BYTES)
    file = pq.ParquetFile(opened)
    as_dictionary = {field.name for field in file.schema_arrow if field.name in columns and _is_text(field.type)}
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    named = [(chunk.path_in_schema.partition(".")[0], chunk) for chunk in chunks]
    read = [(name, chunk) for name, chunk in named if name in columns]
    for name, chunk in read:
        if chunk.total_uncompressed_size > limit:
            raise Expands(f"column '{name}' takes {chunk.total_uncompressed_size:,} bytes, more than {limit:,}")
        # Arrow makes a dictionary of what was written without one: of long values that takes a row group's memory.
        is_long = chunk.total_uncompressed_size > _LONG_BYTES * chunk.num_values
        if "DELTA_BYTE_ARRAY" in chunk.encodings or is_long:
            as_dictionary.discard(name)
    # Of a chunk that is read without its dictionary any row may hold all bytes.
    divided = {name for name, chunk in read if name in as_dictionary or not chunk.physical_type.endswith("BYTE_ARRAY")}
    undivided = max((chunk.total_uncompressed_size for name, chunk in read if name not in divided), default=0)
    n_rows = min(_MEASURED_ROWS, max(BATCH_BYTES // max(undivided, 1), 1))
    total = largest = 0
    file = pq.ParquetFile(opened, read_dictionary=sorted(as_dictionary), pre_buffer=False, buffer_size=BUFFER_BYTES)
    with contextlib.suppress(OSError, pa.ArrowException):  # damage: whoever reads the batches meets it again
        for batch in file.iter_batches(n_rows, columns=list(columns)):
            sizes = sum(map(_sizes, batch.columns), np.zeros(batch.num_rows, np.int64))
            total, largest = total + int(sizes.sum()), max(largest, int(sizes.max(initial=0)))
            if total > limit:
                raise Expands(f"its rows take more than {limit:,} bytes")
    return largest


def _sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each value; those of a nested column all count as the first row's."""
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
