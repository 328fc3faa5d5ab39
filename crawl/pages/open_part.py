"""The open part of a pages set: a growing WARC file and a journal of its rows, both in `DIR/_open` until publication.

A page's records are written before its row, and both at once: when only complete parts were written, a kill lost up to
five minutes of pages. So a killed run leaves complete rows, and at most one incomplete record
after them, which the next run cuts off: no page that a site has sent is requested twice. For a set in an object store,
the open part is in this machine's temporary folder, and a killed run loses what it has not published.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from webtext.base.parts.partset import Part, part_name
from webtext.base.parts.partwriter import PartWriter
from webtext.base.parts.stage import SetWriter, part_key
from webtext.base.storage import Folder, no_space_is_an_error
from webtext.crawl.pages.exchange import Exchange
from webtext.crawl.pages.reasons import FAILED, outcome_of
from webtext.crawl.pages.warc_writer import WarcWriter, index_bytes

OPEN = "_open"
_ROWS_AT_A_TIME = 1024


class Entry(msgspec.Struct, array_like=True):
    """A line of the journal: a row, and the length of the WARC file when the row was written."""

    row: dict[str, Any]
    end: int
    index_line: str | None  # CDXJ line of its page, if it has one
    check: int = 0  # CRC-32 of the JSON of the others

    def crc(self) -> int:
        """Return the right value of `check`."""
        return zlib.crc32(msgspec.json.encode([self.row, self.end, self.index_line]))


@dataclass(frozen=True, slots=True)
class Recovered:
    """The rest of part `index` after a killed run: the entries with complete records, and their length in the journal."""

    index: int
    entries: tuple[Entry, ...] = field(compare=False)
    journal_bytes: int


class OpenPart:
    """A part that rows are being added to."""

    def __init__(
        self, folder: Folder, index: int, about: Mapping[str, str], recovered: Recovered | None = None
    ) -> None:
        """Start part `index`, with `about` in its warcinfo record, or resume from what was recovered of it."""
        self.index = index
        entries = recovered.entries if recovered else ()
        self.n_rows = len(entries)
        self._folder = folder
        self._started = time.monotonic()
        self._warc_name = _file_name(index, ".warc.gz")
        with no_space_is_an_error(folder.url):
            self._warc_path, self._journal_path = _paths(folder, index)
            self._warc_path.parent.mkdir(parents=True, exist_ok=True)
            if recovered:
                _reopen(folder, self._warc_name, self._warc_path)
            lines = [entry.index_line for entry in entries if entry.index_line]
            end = entries[-1].end if entries else 0
            self._warc = WarcWriter(self._warc_path, self._warc_name, about, end, lines)
            self._journal = os.open(self._journal_path, os.O_RDWR | os.O_CREAT, 0o666)
            self._journal_bytes = recovered.journal_bytes if recovered else 0
            os.ftruncate(self._journal, self._journal_bytes)

    @property
    def n_bytes(self) -> int:
        return self._warc.n_bytes

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def add(self, row: dict[str, Any], exchange: Exchange | None) -> None:
        """Add a row, and the records of its page if it has one."""
        line = None
        if exchange is not None:
            stored = self._warc.write(exchange)
            line = stored.index_line
            row["captured"] = exchange.captured
            row["warc_file"] = self._warc_name
            row["warc_offset"], row["warc_length"] = stored.offset, stored.length
        # Not synced: after a power failure `recover` finds what is complete. Written at its own offset, so that a write
        # that failed (a full disk) is overwritten and leaves no gap.
        entry = Entry(row, self._warc.n_bytes, line)
        entry.check = entry.crc()
        data = msgspec.json.encode(entry) + b"\n"
        n_written = 0
        while n_written < len(data):
            n_written += os.pwrite(self._journal, data[n_written:], self._journal_bytes + n_written)
        self._journal_bytes += len(data)
        self.n_rows += 1

    def publish(self, writer: SetWriter, generation: int) -> Part:
        key = part_key(writer.recipe, (), f"{generation}.{self.index}")
        with no_space_is_an_error(self._folder.url), writer.part(self.index, key=key) as part:
            part.attach(self._warc_name, self._warc_path)
            lines = []
            entries = _entries(self._journal_path)
            while some := list(itertools.islice(entries, _ROWS_AT_A_TIME)):
                part.write([entry.row for entry, _ in some])
                lines += [entry.index_line for entry, _ in some if entry.index_line]
                for entry, _ in some:
                    _count(part, entry.row["reason"])
            part.attach(_file_name(self.index, ".cdxj")).write_bytes(index_bytes(lines))
            published = part.publish(generation)
        self.close()
        self._journal_path.unlink()
        _remove_empty(self._folder)
        return published

    def close(self) -> None:
        """Close the files. Their rows can still be recovered."""
        self._warc.close()
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1


def recover(folder: Folder, published: Mapping[int, Part]) -> Recovered | None:
    """Return the rest of an unpublished part that a killed run left in `folder`, or None. Changes no file.

    All records are read and checked once, since after a power failure a file may be too short or contain zeros.
    """
    index = next((index for index in _open_parts(folder) if index not in published), None)
    if index is None:
        return None
    warc_path, journal_path = _paths(folder, index)
    if not warc_path.exists():  # the run was killed while it published
        warc_path = folder.local_path(warc_path.name)
    kept: list[Entry] = []
    journal_bytes = end = 0
    with contextlib.suppress(OSError), open(warc_path, "rb") as warc:
        for entry, journal_end in _entries(journal_path):
            if entry.end < end or not _is_whole(warc.read(entry.end - end), entry.end - end):
                break
            kept.append(entry)
            journal_bytes, end = journal_end, entry.end
    return Recovered(index, tuple(kept), journal_bytes) if kept else None


def remove_open(folder: Folder, *, but: int | None = None) -> None:
    """Remove the open files of all parts except `but`: parts that are published or have no complete row."""
    for index in _open_parts(folder):
        if index != but:
            for path in _paths(folder, index):
                path.unlink(missing_ok=True)
    _remove_empty(folder)


def _remove_empty(folder: Folder) -> None:
    if folder.is_local:
        with contextlib.suppress(OSError):
            folder.local_path(OPEN).rmdir()


def _open_parts(folder: Folder) -> list[int]:
    """Return the numbers of the parts that have a journal."""
    if not folder.is_local:
        return []
    names = folder.child(OPEN).names(".journal")
    return [int(digits) for name in names if (digits := name[len("part-") : -len(".journal")]).isdigit()]


def _file_name(index: int, suffix: str) -> str:
    return part_name(index).removesuffix(".parquet") + suffix


def _paths(folder: Folder, index: int) -> tuple[Path, Path]:
    """Return the paths of the WARC file and the journal."""
    names = _file_name(index, ".warc.gz"), _file_name(index, ".journal")
    if not folder.is_local:
        return folder.scratch_path(names[0]), folder.scratch_path(names[1])
    place = folder.local_path(OPEN)
    return place / names[0], place / names[1]


def _reopen(folder: Folder, warc_name: str, warc_path: Path) -> None:
    """Move the WARC file back to `_open` if a run was killed between publishing the file and its part."""
    if not warc_path.exists():
        folder.local_path(warc_name).rename(warc_path)


def _entries(journal: Path) -> Iterator[tuple[Entry, int]]:
    """Yield the lines of a journal up to the first incomplete or damaged one, each with the offset of its end."""
    decoder = msgspec.json.Decoder(Entry)
    end = 0
    with open(journal, "rb") as file:
        for line in file:
            end += len(line)
            try:
                entry = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
            if not line.endswith(b"\n") or entry.check != entry.crc():
                return
            yield entry, end


def _is_whole(members: bytes, n_bytes: int) -> bool:
    """Whether `members` are `n_bytes` of undamaged gzip members. A row without a page has no bytes."""
    rest = members
    while rest:  # not gzip.decompress, which takes a member that was lost, all zeros, for padding
        member = zlib.decompressobj(wbits=31)
        with contextlib.suppress(zlib.error):
            member.decompress(rest)
        if not member.eof:
            return False
        rest = member.unused_data
    return len(members) == n_bytes


def _count(part: PartWriter, reason: str | None) -> None:
    """Count a row for the manifest: links in = kept (pages) + dropped (linked or refused) + failed."""
    if reason is None:
        part.counts.keep()
    elif outcome_of(reason) == FAILED:
        part.counts.fail(reason)
    else:
        part.counts.drop(reason)
