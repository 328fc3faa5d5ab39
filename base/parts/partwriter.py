"""Writer for part sets: each part appears complete, then its entry, and the manifest last.

Files are published in the order attachments, Parquet, entry. Files without an entry don't count. An entry counts while
the files that it names have the sizes that it states; readers compare their bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts
from webtext.base.parts.digest import DIGEST_BYTES, DIGEST_ROWS, RecordDigest, block_rows, row_bytes
from webtext.base.parts.partset import (
    ENTRIES,
    FAILURES,
    FORMAT_VERSION,
    MANIFEST,
    QUARANTINE,
    RUN,
    Attachment,
    Failure,
    Part,
    PartSet,
    Source,
    entry_name,
    part_name,
)
from webtext.base.parts.recipe import ELSEWHERE, Recipe, sha256_json, with_check, without_check
from webtext.base.parts.schemas import SCHEMAS, WIDER
from webtext.base.storage import Folder, check_version, file_sha256, no_space_is_an_error, pretty_json

COMPRESSION = "zstd"
COMPRESSION_LEVEL = 3
MARKS = "_[a-z]*/", "recipe.json", QUARANTINE, "part-[0-9][0-9][0-9][0-9][0-9].*", "*.tok"
"""What marks a set without a manifest."""


_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Parent(Protocol):
    """What a set is made from, as named in its manifest: a part set, or a list written by a user."""

    @property
    def kind(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def folder(self) -> Folder: ...


class PartWriter:
    """Writer for one part of one set. Use it as a context manager: nothing appears until `publish` is called."""

    def __init__(self, folder: Folder, kind: str, index: int, *, key: str, sources: Sequence[Source] = ()) -> None:
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

    def __enter__(self) -> PartWriter:
        return self

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
        self.name_failures([Failure(identifier, reason, cause)])

    def name_failures(self, failures: Iterable[Failure]) -> None:
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
        path = finished if finished is not None else self.folder.scratch_path(name)
        self._attached[name] = path
        if finished is None:
            self._scratch.append(path)
        return path

    def describe(self, name: str, about: Mapping[str, Any]) -> None:
        """Set what the entry states about an attached file besides its size and hash: plain JSON values."""
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


class SetWriter:
    """Writer for a part set: finds the parts that are done, and seals them under one manifest."""

    def __init__(self, url: str, kind: str, recipe: Recipe, parents: Sequence[Parent] = ()) -> None:
        self.folder = Folder(url)
        self.kind = kind
        self.recipe = recipe
        self.parents = tuple(parents)
        self._manifest = b""
        self._about: dict[str, Any] = {}  # the manifest's contents, if it isn't damaged
        self.sealed: dict[int, Part] = {}
        self.there: dict[str, int] = {}  # name -> size

    def look(self) -> None:
        """Read listing (`there`) and manifest (`sealed`: its parts by index) as they are now."""
        self.there = self.folder.files()
        self._manifest = self.folder.read_bytes(MANIFEST) if MANIFEST in self.there else b""
        self._about, self.sealed = {}, {}
        with contextlib.suppress(*_DAMAGED):  # a damaged set is rewritten
            self._about = without_check(json.loads(self._manifest or "{}"))
            parts = msgspec.convert(self._about.get("parts", ()), tuple[Part, ...])
            self.sealed = {part.index: part for part in parts}
        if self.folder.is_local or not self.sealed:  # a store charges for a listing, and the manifest has the entries
            entries = self.folder.child(ENTRIES).files()
            self.there |= {f"{ENTRIES}/{name}": about for name, about in entries.items()}

    def check_place(self, replaces: bool = True) -> None:
        """Raise InputError if the folder is also an input, or contains what must not be replaced.

        That is a set of another kind, or of another version of the format; unless the run `replaces` them, also one of
        other settings; and files of other commands or people.
        """
        for parent in self.parents:
            if _same_place(parent.folder, self.folder):
                raise InputError(f"'{self.folder.url}' is both input and output", "choose another --out")
        self.look()
        try:
            check_version(self._about["format"], FORMAT_VERSION, self.folder.location(MANIFEST))
            kind, stage = self._about["kind"], self._about["recipe"]["stage"]
        except _DAMAGED:
            # no set, or a damaged one, which is rewritten; a manifest.json that is JSON may be another program's
            self.folder.check_output(MARKS if self._manifest.startswith(b"{") else (*MARKS, MANIFEST))
            return
        if kind != self.kind:
            raise InputError(f"'{self.folder.url}' contains {kind}, which {self.kind} would replace", ELSEWHERE)
        if stage != self.recipe.stage and kind != "documents":  # clean.extract and clean.import both write documents
            raise InputError(
                f"'{self.folder.url}' contains {kind} written by '{stage}', which '{self.recipe.stage}' would replace",
                ELSEWHERE,
            )
        if not replaces:
            self.recipe.check_settings(self._about["recipe"], self.folder.url)

    def changes(self) -> list[str]:
        """Name what the recipe changes of the set that is there, such as "trafilatura 2.3.1 is now 2.3.2"."""
        return self.recipe.changes(self._about.get("recipe", {}))

    def part(self, index: int, *, key: str, sources: Sequence[Source] = ()) -> PartWriter:
        return PartWriter(self.folder, self.kind, index, key=key, sources=sources)

    def done(self) -> dict[int, Part]:
        """Return index -> part for every valid entry whose files exist in the stated sizes; no byte of them is read.

        The entries of a sealed set in a store are taken from its manifest.
        """
        self.look()
        names = sorted(name for name in self.there if name.startswith(ENTRIES))
        parts = filter(None, (_read_entry(self.folder, name) for name in names)) if names else self.sealed.values()
        return {
            part.index: part
            for part in parts
            if all(self.there.get(name) == n_bytes for name, n_bytes, _ in part.files)
        }

    def remove(self, part: Part) -> None:
        """Remove a part, starting with its entry."""
        self.folder.remove(entry_name(part.index))
        self.folder.remove(part.name)
        for attachment in part.attachments:
            self.folder.remove(attachment.name)

    def unseal(self) -> None:
        """Remove the manifest before parts are replaced."""
        self.folder.remove(MANIFEST)
        self._manifest, self.sealed = b"", {}

    def remove_leftovers(self) -> None:
        """Remove the temporary files that killed runs left among parts and entries."""
        self.folder.remove_leftovers()
        self.folder.child(ENTRIES).remove_leftovers()

    def seal(
        self,
        parts: Iterable[Part],
        *,
        complete: bool = True,
        reproducible: bool = True,
        run: Mapping[str, Any] | None = None,
    ) -> PartSet:
        """Collect the entries of `parts` in one manifest and publish it. The same parts give the same bytes.

        `complete=False` seals a generation of a set that is still growing: it can be read, and is marked incomplete.
        """
        data = self._manifest_of(parts, complete, reproducible)
        if data == self._manifest:
            return PartSet(self.folder, data)
        self.folder.write_bytes(MANIFEST, data)
        self._manifest = data
        if run is not None:
            self.folder.write_object(RUN, run)
        return PartSet.open(self.folder.url, self.kind)

    def sealed_set(self, parts: Iterable[Part], *, reproducible: bool) -> PartSet | None:
        """Return the set if its manifest is the one that `seal` would write, as of the last `look`."""
        same = self._manifest and self._manifest == self._manifest_of(parts, complete=True, reproducible=reproducible)
        return PartSet(self.folder, self._manifest) if same else None

    def _manifest_of(self, parts: Iterable[Part], complete: bool, reproducible: bool) -> bytes:
        parts = sorted(parts, key=lambda part: part.index)
        manifest = {
            "format": FORMAT_VERSION,
            "kind": self.kind,
            "generation": max((part.generation for part in parts), default=1),
            "recipe": self.recipe.to_json(),
            "recipe_hash": self.recipe.hash,
            "parents": [{"kind": parent.kind, "hash": parent.hash} for parent in self.parents],
            "complete": complete,
            "reproducible": reproducible,
            "records": sum(part.records for part in parts),
            "counts": sum((part.counts for part in parts), Counts()).to_json(),
            "parts": [part.to_json() for part in parts],
        }
        return pretty_json(with_check(manifest))


def part_key(recipe: Recipe, sources: Sequence[Source], depends: str = "") -> str:
    """Return a hash of what a part is made from; it changes with the recipe, the sources and the dependencies."""
    return sha256_json([recipe.hash, [[s.set, s.part, s.record_digest] for s in sources], depends])


def _same_place(one: Folder, other: Folder) -> bool:
    if one.is_local and other.is_local:
        return one.local_path().resolve() == other.local_path().resolve()
    return one.url == other.url


def _size_and_sha256(path: Path) -> tuple[int, str]:
    with open(path, "rb") as file:
        return os.fstat(file.fileno()).st_size, file_sha256(file)


def _read_entry(folder: Folder, name: str) -> Part | None:
    try:
        return msgspec.convert(without_check(json.loads(folder.read_bytes(name))), Part)
    except _DAMAGED:
        return None  # a part without a valid entry doesn't exist and is made again
