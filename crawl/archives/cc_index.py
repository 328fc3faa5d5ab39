"""Joins URLs with Common Crawl's columnar index: finds the records to fetch, in the order of their files and offsets.

Look-ups and chosen records are kept in an SQLite file, sorted by the URLs' SURT keys. The index is read once for each
block of LINKS_AT_A_TIME look-ups in that order. Its row groups are sorted by key too, so their statistics allow most of
them to be skipped. Schema: the flat one of cc-index-table. Memory: one block and a few batches of the index, whatever
the sizes of both. SQLite unlinks the file when it creates it, so a killed run leaves nothing behind.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from webtext.base.errors import InputError, one_line
from webtext.base.web.urls import canonical_url
from webtext.crawl.archives.archived_record import ArchivedRecord
from webtext.crawl.archives.captures import Preference, Rank
from webtext.crawl.fetch.answers import PAGE_STATUSES, TEXT_TYPES
from webtext.crawl.fetch.client.headers import REDIRECT_STATUSES, is_redirect
from webtext.crawl.fetch.robots.cache import origin_of
from webtext.crawl.pages.surt import surt
from webtext.crawl.pages.visit import QueuedLink, Visit
from webtext.crawl.pages.warc_writer import REVISIT_TYPE

LINKS_AT_A_TIME = 100_000
BATCH_ROWS = 32_768
ROBOTS = "robotstxt"
SUBSETS = ("warc", "crawldiagnostics", ROBOTS)  # pages; redirects, among others; every robots.txt
STATUSES = sorted(PAGE_STATUSES | REDIRECT_STATUSES)
_COLUMNS = pa.schema(
    [
        ("url_surtkey", pa.string()),
        ("url", pa.string()),
        ("fetch_time", pa.timestamp("ms")),
        ("fetch_status", pa.int16()),
        ("content_digest", pa.string()),
        ("content_mime_detected", pa.string()),
        ("content_truncated", pa.string()),
        ("warc_filename", pa.string()),
        ("warc_record_offset", pa.int64()),
        ("warc_record_length", pa.int64()),
    ]
)
_PARTITIONS = pa.schema([("crawl", pa.string()), ("subset", pa.string())])
_TABLES = """
CREATE TABLE wanted (
    id INTEGER PRIMARY KEY, key TEXT, url TEXT, voted INT, passed TEXT, captured INT, digest TEXT, lookup BLOB);
CREATE TABLE places (id INT, url TEXT, digest TEXT, file TEXT, offset INT, length INT);
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The position of the record that was chosen for a link, and the URL and digest that it must have."""

    file: str
    offset: int
    length: int
    url: str  # canonical
    digest: str | None


class Lookup(msgspec.Struct, array_like=True, frozen=True):
    """A URL to look up for a link: `visit.at`, or the original of `revisit` if a revisit was found at that URL.

    With `page`, the place that was found for it, it is the robots.txt of the URL's site, which is gone.
    """

    link: QueuedLink
    visit: Visit
    revisit: ArchivedRecord | None = None
    page: Place | None = None


class _Wanted(NamedTuple):
    """A row of the table `wanted`. If only one record will do, `captured` and `digest` describe it."""

    key: str
    id: int
    url: str
    voted: int
    passed: str  # the URLs that redirected here, one per line
    captured: int | None
    digest: str | None


class LinkJoin:
    """Collects look-ups and joins them with the index. Yields those with a capture by file and offset, or the rest."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLES} BEGIN;")
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Lookup)
        self.n_wanted = 0
        self._in_use, self._is_closed = threading.Lock(), False

    def close(self) -> None:
        """Close the file; `choose` in another thread, where SQLite would crash, ends first, after its block."""
        self._is_closed = True
        with self._in_use:
            self._db.close()

    def add(self, lookup: Lookup, place: Place | None = None) -> None:
        visit, original = lookup.visit, lookup.revisit and lookup.revisit.original
        url, only = (original.url, (original.captured, original.digest)) if original else (visit.at, (None, None))
        if lookup.page is not None:
            url, only = f"{origin_of(visit.at)}/robots.txt", (None, None)
        key = surt(url) if place is None else None  # which `choose` passes over
        row = (key, url, lookup.link.voted, "\n".join(visit.redirects), *only, self._encoder.encode(lookup))
        added = self._db.execute(
            "INSERT INTO wanted (key, url, voted, passed, captured, digest, lookup) VALUES (?, ?, ?, ?, ?, ?, ?)", row
        )
        if place is not None:
            known = (added.lastrowid, place.url, place.digest, place.file, place.offset, place.length)
            self._db.execute("INSERT INTO places VALUES (?, ?, ?, ?, ?, ?)", known)
        self.n_wanted += 1

    def choose(self, index: ds.Dataset, preference: Preference) -> None:
        """Choose a capture for every look-up that has one in the index."""
        query = f"SELECT {', '.join(_Wanted._fields)} FROM wanted WHERE (key, id) > (?, ?) ORDER BY key, id LIMIT ?"
        after = ("", 0)
        with self._in_use:
            self._db.execute("CREATE INDEX by_key ON wanted (key, id)")
            while rows := self._db.execute(query, (*after, LINKS_AT_A_TIME)).fetchall():
                after = rows[-1][:2]
                chosen = _chosen(map(_Wanted._make, rows), index, preference)
                self._db.executemany("INSERT INTO places VALUES (?, ?, ?, ?, ?, ?)", chosen)
                if self._is_closed:
                    return
            self._db.execute("CREATE INDEX by_place ON places (file, offset)")
            self._db.execute("CREATE INDEX by_id ON places (id)")

    def placed(self) -> Iterator[tuple[Lookup, Place]]:
        query = "SELECT lookup, p.file, p.offset, p.length, p.url, p.digest FROM places p JOIN wanted USING (id)"
        for lookup, *place in self._db.execute(query + " ORDER BY p.file, p.offset, p.id"):
            yield self._decoder.decode(lookup), Place(*place)

    def others(self) -> Iterator[Lookup]:
        for (lookup,) in self._db.execute("SELECT lookup FROM wanted WHERE id NOT IN (SELECT id FROM places)"):
            yield self._decoder.decode(lookup)


def open_index(paths: Sequence[str]) -> ds.Dataset:
    """Open the index in these Parquet files or folders (`crawl=.../subset=...` inside), local or at fsspec URLs.

    Raises InputError if one is missing or is not a Parquet file of the index.
    """
    parts = []
    for path in paths:
        try:
            parts.append(_part(path))
        except (OSError, ValueError) as error:
            raise InputError(
                f"no index in '{path}': {one_line(error)}", "name Parquet files of Common Crawl's cc-index table"
            ) from None
        if not parts[-1].files:
            raise InputError(f"no Parquet file in '{path}'", "name the folder of a crawl, or its files")
    return ds.dataset(parts)


def _part(path: str) -> ds.FileSystemDataset:
    import fsspec

    file_system, inner = fsspec.core.url_to_fs(path)
    names = sorted(file_system.glob(inner)) if any(sign in inner for sign in "*?[") else inner
    partitioning = ds.partitioning(_PARTITIONS, flavor="hive")
    options = {"filesystem": file_system, "format": "parquet", "partitioning": partitioning}
    own = ds.dataset(names, **options)
    if missing := {"url_surtkey", "warc_filename"} - set(own.schema.names):
        raise pa.ArrowInvalid(f"no column {', '.join(sorted(missing))}")
    return ds.dataset(names, schema=pa.schema([*_COLUMNS, *_PARTITIONS]), **options)


def _chosen(rows: Iterable[_Wanted], index: ds.Dataset, preference: Preference) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `places` for each look-up of one block (sorted by key) that has a capture: the best one."""
    wanted: dict[str, list[_Wanted]] = defaultdict(list)
    for row in rows:
        wanted[row.key].append(row)
    best: dict[int, tuple[Rank, tuple[Any, ...], tuple[Any, ...]]] = {}
    for found in _matches(list(wanted), index):
        named = canonical_url(found["url"] or "")
        if named is None or found["fetch_time"] is None or not _is_usable(found):
            continue
        place = (found["warc_filename"], found["warc_record_offset"], found["warc_record_length"])
        for row in wanted[found["url_surtkey"]]:
            rank = _rank(row, named, found, preference)
            if rank is not None and (row.id not in best or (rank, place) < best[row.id][:2]):
                best[row.id] = (rank, place, (row.id, named, found["content_digest"], *place))
    return (chosen for _, _, chosen in best.values())


def _rank(row: _Wanted, named: str, found: dict[str, Any], preference: Preference) -> Rank | None:
    """Return the rank of a capture for a look-up, or None if it will not do.

    Redirects and revisits, which need another look-up, rank after all pages. A redirect that was already followed is
    not followed again.
    """
    is_hop = is_redirect(found["fetch_status"])
    if row.captured is not None:  # this record or none
        is_it = (named, found["fetch_time"], found["content_digest"]) == (row.url, row.captured, row.digest)
        return (False, False, False, 0) if is_it and not is_hop else None
    if is_hop and named in row.passed.split("\n"):
        return None
    return preference.rank(
        found["fetch_time"],
        row.voted,
        is_exact=named == row.url,
        is_redirect=is_hop or found["content_mime_detected"] == REVISIT_TYPE,
        is_truncated=bool(found["content_truncated"]),
    )


def _matches(keys: list[str], index: ds.Dataset) -> Iterator[dict[str, Any]]:
    """Yield the rows of the index with one of these keys, which are sorted."""
    key, status, subset = ds.field("url_surtkey"), ds.field("fetch_status"), ds.field("subset")
    condition = (key >= keys[0]) & (key <= keys[-1]) & key.isin(pa.array(keys)) & status.isin(STATUSES)
    condition &= subset.is_null() | subset.isin(SUBSETS)
    batches = index.to_batches(
        columns=[*_COLUMNS.names, "subset"],
        filter=condition,
        batch_size=BATCH_ROWS,
        batch_readahead=2,
        fragment_readahead=1,
    )
    try:
        for batch in batches:
            seconds = pc.cast(pc.cast(batch["fetch_time"], pa.timestamp("s"), safe=False), pa.int64())
            yield from batch.set_column(batch.schema.get_field_index("fetch_time"), "fetch_time", seconds).to_pylist()
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"the index cannot be read: {one_line(error)}", "download the file again, or leave it out"
        ) from None


def _is_usable(row: dict[str, Any]) -> bool:
    kind, place = row["content_mime_detected"], (row["warc_record_offset"], row["warc_record_length"])
    is_placed = bool(row["warc_filename"]) and all(isinstance(number, int) and number >= 0 for number in place)
    is_text = kind is None or kind in TEXT_TYPES or kind == REVISIT_TYPE or is_redirect(row["fetch_status"])
    is_text |= row["subset"] == ROBOTS  # often called text/x-robots
    return is_placed and row["warc_record_length"] > 0 and is_text
