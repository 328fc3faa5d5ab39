"""Tables with one row of ids per document: Parquet files, and the Arrow files that `datasets` saves.

The ids are a list column, called `input_ids` by Hugging Face's trainers; the string column `id` has the document's id.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.shards.converting.cutting import cut
from webtext.shards.format import Tokens
from webtext.shards.reading.reader import TokenShards

COLUMNS = ("input_ids", "tokens", "ids")
"""Possible names of the column with the ids; the first one that exists is used."""
BATCH_ROWS = 256


def read_table(path: Path, vocab_size: int, eot_id: int) -> Iterator[tuple[str | None, Tokens]]:
    """Yield (id or None, tokens) for each document of a Parquet or Arrow file, row by row."""
    with contextlib.ExitStack() as stack:
        try:
            for batch in _batches(path, stack):
                yield from _documents(path, batch, eot_id)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"'{path}' is not a valid Parquet or Arrow file: {error!s:.200}", "check whether it is damaged"
            ) from None


def write_table(shards: TokenShards, folder: Folder) -> list[str]:
    """Write a Parquet file for each shard, with columns id and input_ids (i32, or u32 above 2^31); return the names.

    Each document ends with end-of-text.
    """
    kind = pa.int32() if shards.vocab_size <= 1 << 31 else pa.uint32()
    schema = pa.schema([pa.field("id", pa.string()), pa.field("input_ids", pa.list_(kind))])
    names = []
    for i in range(len(shards)):
        name, file = f"{shards.split}-{i:05d}.parquet", shards.file(i)
        ids = shards.document_ids(i)
        with folder.scratch(name) as path, pq.ParquetWriter(path, schema, compression="zstd") as table:
            for first in range(0, len(ids), BATCH_ROWS):
                bounds = file.index[first : first + BATCH_ROWS + 1].astype(np.int64)
                opened = file.tokens[bounds[0] : bounds[-1]]
                tokens = np.roll(opened, -1).astype(np.dtype(kind.to_pandas_dtype()))
                lists = pa.ListArray.from_arrays(pa.array(bounds - bounds[0], pa.int32()), pa.array(tokens, kind))
                table.write_batch(pa.record_batch([ids[first : first + BATCH_ROWS], lists], schema=schema))
        names.append(name)
    return names


def _batches(path: Path, stack: contextlib.ExitStack) -> Iterator[Any]:
    if path.suffix == ".parquet":
        yield from stack.enter_context(pq.ParquetFile(path)).iter_batches(batch_size=BATCH_ROWS)
        return
    source = stack.enter_context(pa.memory_map(str(path)))
    yield from stack.enter_context(pa.ipc.open_stream(source))


def _documents(path: Path, batch: Any, eot_id: int) -> Iterator[tuple[str | None, Tokens]]:
    names = batch.schema.names
    column = next((name for name in COLUMNS if name in names), None)
    if column is None:
        raise InputError(f"'{path}' has no column {' or '.join(COLUMNS)}", f"its columns: {', '.join(names)}")
    lists = batch.column(column)
    of_lists = pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)
    if not of_lists or not pa.types.is_integer(lists.type.value_type) or lists.flatten().null_count:
        raise InputError(f"column {column} of '{path}' is {lists.type}", "expected lists of integers without nulls")
    ids = batch.column("id").to_pylist() if "id" in names else [None] * batch.num_rows
    for identifier, row in zip(ids, lists, strict=True):
        tokens = row.values.to_numpy(zero_copy_only=False) if row.is_valid else np.zeros(0, np.int64)
        parts = list(cut(tokens, eot_id, np.array([len(tokens)])))
        for n, part in enumerate(parts):
            name = None if identifier is None else str(identifier)
            yield (name if n == 0 or name is None else f"{name}:{n}"), part
