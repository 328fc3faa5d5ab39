"""Exchange between parts: rows sorted by range, in one attachment of a part, so that a task can read its range of all parts.

    DIR/part-00000.exchange   runs of rows, each sorted by range: an Arrow record batch for each range that has rows
                              then for each range, for each run: offset, bytes (uint64, little-endian), seal (SHA-256)

A stage writes every row to the range of its key; the next stage has a task for each range. How many ranges there are
depends on the data's size only, so the files don't depend on the number of workers. Readers get single ranges, locally
or by range requests, and check each against its seal. That covers the rows' SHA-256, their place and a digest of the
entire file, which the part's entry states, so neither an altered nor a replaced file is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.errors import InputError
from webtext.base.parts.partset import REMAKE, Attachment, Part, PartSet
from webtext.base.parts.partwriter import PartWriter
from webtext.base.storage import no_space_is_an_error

SUFFIX = ".exchange"
RUN_BYTES = 32 << 20
"""Rows are collected in memory up to this size, then sorted and written as a run."""
_PLACE = np.dtype([("offset", "<u8"), ("bytes", "<u8"), ("seal", "u1", 32)])

Ranges = npt.NDArray[np.uint64]


class RangeWriter(contextlib.AbstractContextManager["RangeWriter"]):
    """Writes the exchange of a part; it is complete when the `with` block ends.

    `about` are plain JSON values that the part's entry states about the rows, beside their number (`records`).
    """

    def __init__(self, part: PartWriter, schema: pa.Schema, n_ranges: int) -> None:
        self.about: dict[str, Any] = {}
        self._part, self._schema, self._n_ranges = part, schema, n_ranges
        self._name = f"part-{part.index:05d}{SUFFIX}"
        self._file: BinaryIO = open(part.attach(self._name), "wb")  # noqa: SIM115
        self._pending: list[tuple[Ranges, pa.Table]] = []
        self._pending_bytes = self._records = 0
        self._runs: list[npt.NDArray[Any]] = []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self._finish()

    def add(self, ranges: Ranges, rows: pa.Table) -> None:
        """Add each row to its range, a number below `n_ranges`; within a range, rows keep this order."""
        if rows.num_rows:
            self._pending.append((ranges, rows))
            self._pending_bytes += rows.nbytes
            self._records += rows.num_rows
        if self._pending and self._pending_bytes >= RUN_BYTES:
            self._write_run()

    def _write_run(self) -> None:
        ranges = np.concatenate([ranges for ranges, _ in self._pending])
        rows = pa.concat_tables([rows for _, rows in self._pending]).cast(self._schema).combine_chunks()
        self._pending, self._pending_bytes = [], 0
        if self._n_ranges > 1:
            # numpy sorts uint16 by radix
            order = np.argsort(ranges.astype(np.uint16 if self._n_ranges <= 1 << 16 else np.uint64), kind="stable")
            ranges, rows = ranges[order], rows.take(pa.array(order))
        stops = np.searchsorted(ranges, np.arange(self._n_ranges, dtype=np.uint64), side="right").tolist()
        run = np.zeros(self._n_ranges, _PLACE)
        for place, start, stop in zip(run, [0, *stops], stops, strict=False):
            data = rows.slice(start, stop - start).to_batches()[0].serialize() if start < stop else b""
            place["offset"], place["bytes"] = self._file.tell(), len(data)
            place["seal"] = np.frombuffer(hashlib.sha256(data).digest(), np.uint8)
            with no_space_is_an_error(self._part.folder.location(self._name), len(data)):
                self._file.write(data)
        self._runs.append(run)

    def _finish(self) -> None:
        if self._pending:
            self._write_run()
        places = np.array(self._runs, _PLACE).reshape(len(self._runs), self._n_ranges).T.copy()
        about = {"ranges": self._n_ranges, "runs": len(self._runs), "records": self._records}
        digest = hashlib.sha256(places.data).hexdigest()
        for number, row in enumerate(places):
            for place in row:
                place["seal"] = np.frombuffer(_seal(digest, number, place, place["seal"].tobytes()), np.uint8)
        with no_space_is_an_error(self._part.folder.location(self._name), places.nbytes):
            self._file.write(places.data)
        self._part.describe(self._name, self.about | about | {"digest": digest})


def read_range(opened: PartSet, number: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, from all parts in their order and, within a part, as they were added.

    One batch, of at most about RUN_BYTES, is in memory at a time. Raises InputError if a file has other bytes than were
    written. `schema` must be the writer's.
    """
    for found in map(_attachment, opened.parts):
        n_runs, n_ranges = found.about["runs"], found.about["ranges"]
        start = found.bytes - (n_ranges - number) * n_runs * _PLACE.itemsize
        footer = opened.folder.read_range(found.name, start, start + n_runs * _PLACE.itemsize) if n_runs else b""
        for place in np.frombuffer(footer, _PLACE):
            begin, size = int(place["offset"]), int(place["bytes"])
            data = opened.folder.read_range(found.name, begin, begin + size) if 0 < size <= start - begin else b""
            if _seal(found.about["digest"], number, place, hashlib.sha256(data).digest()) != place["seal"].tobytes():
                raise InputError(
                    f"'{opened.folder.location(found.name)}' was altered: range {number} has other bytes than were "
                    "written",
                    REMAKE,
                )
            if data:
                yield pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def abouts(opened: PartSet) -> list[Mapping[str, Any]]:
    """Return each part's description of its exchange, from its entry, with the number of its rows as `records`."""
    return [_attachment(part).about for part in opened.parts]


def count_ranges(n_records: int, per_range: int) -> int:
    """Return how many ranges to divide so many rows into: up to 64 of `per_range`, then fewer and larger ones.

    With n parts and r ranges there are n * r places to read. So ranges grow like the root of the number of rows.

    >>> count_ranges(0, 10), count_ranges(95, 10), count_ranges(640, 10), count_ranges(1_000_000, 10)
    (1, 10, 64, 2530)
    """
    n_ranges = max(1, -(-n_records // per_range))
    return min(n_ranges, math.ceil(8 * math.sqrt(n_ranges)))


def range_of_hash(keys: npt.NDArray[np.uint64], n_ranges: int) -> npt.NDArray[np.uint64]:
    """Return the range of each 64-bit hash, when all hashes are divided into `n_ranges` (< 2^32) equal ranges.

    >>> range_of_hash(np.array([0, 2**63 - 1, 2**63, 2**64 - 1], np.uint64), 2).tolist()
    [0, 0, 1, 1]
    """
    return (keys >> np.uint64(32)) * np.uint64(n_ranges) >> np.uint64(32)


def _attachment(part: Part) -> Attachment:
    return next(each for each in part.attachments if each.name.endswith(SUFFIX))


def _seal(digest: str, number: int, place: Any, sha256: bytes) -> bytes:
    where = np.array([number, place["offset"], place["bytes"]], "<u8").tobytes()
    return hashlib.sha256(bytes.fromhex(digest) + where + sha256).digest()
