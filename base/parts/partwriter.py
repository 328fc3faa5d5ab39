"""Writer for one part of a set: its files are published in the order attachments, Parquet, entry.

Files without an entry don't count. An entry counts while the files that it names have the sizes that it states; readers
compare their bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from webtext.base.parts.counts import Counts
from webtext.base.parts.digest import DIGEST_BYTES, DIGEST_ROWS, RecordDigest, block_rows, row_bytes
from webtext.base.parts.partset import FAILURES, Attachment, FailedRecord, Part, SourcePart, entry_name, part_name
from webtext.base.parts.recipe import sha256_json, with_check
from webtext.base.parts.schemas import SCHEMAS, WIDER
from webtext.base.storage import Folder, file_sha256, no_space_is_an_error

COMPRESSION = "zstd"
COMPRESSION_LEVEL = 3


class PartWriter(contextlib.AbstractContextManager["PartWriter"]):
    """Writer for one part of one set. Use it as a context manager: nothing appears until `publish` is called."""

    def __init__(self, folder: Folder, kind: str, index: int, *, key: str, sources: Sequence[SourcePart] = ()) -> None:
        self.folder = folder
        self.index = index
        self.counts = Counts()
        self._failures: IO[str] | None = None
        self.records = 0
        self._key = key
        self._sources = tuple(sources)
        self._schema = SCHEMAS[kind]
        self._digest = RecordDigest()
        self._rows: list[Mapping[str, Any]] = []  # collected, because a table per row would cost ten times as much
        self._pending: list[pa.Table] = []
        self._n_pending = 0  # number of rows in _rows and _pending
        self._pending_bytes = 0
        self._attached: dict[str, Path] = {}
        self._about: dict[str, Mapping[str, Any]] = {}
        self._path = folder.scratch_path(part_name(index))
        self._scratch = [self._path]
        self._file = self._writer()

    def _writer(self) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._path,
            self._schema,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            write_statistics=True,
        )

    def widen(self, kind: str) -> None:
        """Write the optional columns of the kind as well (`WIDER`); call it before the first row."""
        self._file.close()
        self._schema = WIDER[kind]
        self._file = self._writer()

    def __exit__(self, *_: object) -> None:
        self.discard()

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows; each has every column of the set's schema (nullable columns may be missing)."""
        self._rows += rows
        strings = (value for row in rows for value in row.values() if isinstance(value, str))
        self._added(len(rows), sum(map(len, strings)))

    def write_table(self, table: pa.Table) -> None:
        self._make_table_of_rows()
        self._pending.append(table.cast(self._schema))
        self._added(table.num_rows, table.nbytes)

    def fail(self, identifier: str, reason: str, cause: str) -> None:
        """Count a record that couldn't be processed, and store its id and the cause."""
        self.counts.fail(reason)
        self.name_failures([FailedRecord(identifier, reason, cause)])

    def name_failures(self, failures: Iterable[FailedRecord]) -> None:
        """Store ids and causes of failed records that are already counted, in a file beside the part."""
        for failure in failures:
            if self._failures is None:
                self._failures = open(self.attach(self._failures_name), "w", encoding="utf-8")  # noqa: SIM115
            self._failures.write(json.dumps(asdict(failure)) + "\n")

    @property
    def _failures_name(self) -> str:
        return part_name(self.index).removesuffix(".parquet") + FAILURES

    def attach(self, name: str, finished: Path | None = None) -> Path:
        """Return a local path for a file that will be published beside the part as `name`.

        If the caller already has the `finished` file, on the folder's own disk, that file is published instead. It is
        left in place if the part isn't published.
        """
        path = finished or self.folder.scratch_path(name)
        self._attached[name] = path
        if finished is None:
            self._scratch.append(path)
        return path

    def describe(self, name: str, about: Mapping[str, Any]) -> None:
        """Set further values that the entry states about an attached file, besides size and hash: plain JSON values."""
        self._about[name] = about

    def publish(self, generation: int = 1) -> Part:
        """Publish the attachments, the part and its entry, in this order; return the entry."""
        self._flush(last=True)
        self._file.close()
        if self._failures is not None:
            self._failures.close()
        assert self.counts.balanced, f"records in must be kept + dropped + failed: {self.counts}"
        attachments = [
            Attachment(name, *_size_and_sha256(path), self._about.get(name, {}))
            for name, path in self._attached.items()
        ]
        n_bytes, sha256 = _size_and_sha256(self._path)
        part = Part(
            name=part_name(self.index),
            generation=generation,
            records=self.records,
            bytes=n_bytes,
            sha256=sha256,
            record_digest=self._record_digest(attachments),
            key=self._key,
            sources=self._sources,
            counts=self.counts if self.counts.records_in else Counts(self.records, self.records),
            attachments=tuple(sorted(attachments, key=lambda attachment: attachment.name)),
        )
        self.folder.remove(entry_name(self.index))  # an older entry must not vouch for the new files
        if self._failures is None:
            self.folder.remove(self._failures_name)
        for name, path in self._attached.items():
            self.folder.publish(path, name)
        self.folder.publish(self._path, part.name)
        self.folder.write_object(entry_name(self.index), with_check(part.to_json()))
        return part

    def discard(self) -> None:
        """Remove everything that was written but not published."""
        with contextlib.suppress(Exception):
            self._file.close()
        if self._failures is not None:
            self._failures.close()
        for path in self._scratch:
            path.unlink(missing_ok=True)

    def _record_digest(self, attachments: Iterable[Attachment]) -> str:
        """Return the digest of the rows and of attachments that contain records themselves (token shards)."""
        digest = self._digest.hexdigest()
        tokens = [[a.name, a.sha256] for a in sorted(attachments, key=lambda a: a.name) if a.name.endswith(".tok")]
        return sha256_json([digest, *tokens]) if tokens else digest

    def _added(self, n_rows: int, n_bytes: int) -> None:
        self.records += n_rows
        self._n_pending += n_rows
        self._pending_bytes += n_bytes
        if self._n_pending >= DIGEST_ROWS or self._pending_bytes >= DIGEST_BYTES:
            self._flush(last=False)

    def _make_table_of_rows(self) -> None:
        if self._rows:
            self._pending.append(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []

    def _flush(self, *, last: bool) -> None:
        """Write whole blocks (`base/parts/digest.py`), so that file bytes do not depend on how rows came in."""
        self._make_table_of_rows()
        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        start, sizes = 0, row_bytes(table)
        while n_rows := block_rows(sizes[start:]) or (last and table.num_rows - start):
            block = table.slice(start, n_rows).combine_chunks()
            self._digest.update(block)
            with no_space_is_an_error(self.folder.location(part_name(self.index)), block.nbytes):
                self._file.write_table(block, row_group_size=DIGEST_ROWS)
            start += n_rows
        self._pending = [table.slice(start)] if start < table.num_rows else []
        self._n_pending, self._pending_bytes = table.num_rows - start, int(sizes[start:].sum())


def _size_and_sha256(path: Path) -> tuple[int, str]:
    with open(path, "rb") as file:
        return os.fstat(file.fileno()).st_size, file_sha256(file)
