"""Tables larger than memory, partitioned into buckets by a hash of one column, so that rows with equal keys are read together.

Whenever the buffer is full it goes to one Arrow file, whose record batch i has the rows of bucket i. So there are few files,
however many buckets there are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

ROWS_PER_BUCKET = 1 << 17
"""Expected rows per bucket; one bucket of each side is in memory."""
BUFFER_BYTES = 32 << 20


class Buckets:
    """Rows of one schema, partitioned by the hash of the column `key`, a non-null string."""

    def __init__(self, folder: Path, schema: pa.Schema, key: str, n_buckets: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._schema = schema
        self._key = key
        self._n_buckets = n_buckets
        self._held: list[pa.Table] = []
        self._n_bytes = 0
        self._n_files = 0
        self.n_rows = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows; their order is kept within a bucket."""
        if rows.num_rows:
            self._held.append(rows)
            self.n_rows += rows.num_rows
            self._n_bytes += rows.nbytes
            if self._n_bytes >= BUFFER_BYTES:
                self._spill()

    def tables(self) -> Iterator[pa.Table]:
        """Yield one table per bucket, in order, including empty ones."""
        self._spill()
        for bucket in range(self._n_buckets):
            batches = []
            for number in range(self._n_files):
                with pa.OSFile(str(self._path(number))) as file, pa.ipc.open_file(file) as reader:
                    batches.append(reader.get_batch(bucket))
            yield pa.Table.from_batches(batches, self._schema)

    def _spill(self) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held).combine_chunks()
        self._held, self._n_bytes = [], 0
        keys = (zlib.crc32(key.encode()) for key in rows[self._key].to_pylist())
        bucket_of = np.fromiter(keys, np.uint32, len(rows)) % self._n_buckets
        order = np.argsort(bucket_of, kind="stable")
        bounds = np.searchsorted(bucket_of[order], np.arange(self._n_buckets + 1))
        with pa.ipc.new_file(str(self._path(self._n_files)), self._schema) as writer:
            for first, last in zip(bounds[:-1], bounds[1:], strict=True):
                of_bucket = rows.take(pa.array(order[first:last])).combine_chunks()
                writer.write_batch(
                    of_bucket.to_batches()[0] if len(of_bucket) else pa.RecordBatch.from_pylist([], self._schema)
                )
        self._n_files += 1

    def _path(self, number: int) -> Path:
        return self._folder / str(number)


def buckets_for(n_rows: int) -> int:
    """Return the number of buckets for `n` rows.

    >>> buckets_for(0), buckets_for(131_073)
    (1, 2)
    """
    return max(1, -(-n_rows // ROWS_PER_BUCKET))
