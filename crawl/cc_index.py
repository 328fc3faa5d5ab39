"""Links joined against Common Crawl's columnar index: which records to fetch, in the order in which they lie.

Links and chosen captures lie in an SQLite file, sorted there by the URLs' keys. The index is read once for each stretch of
so many links in that order: its row groups are sorted by key too, so their statistics leave out what no link needs.
Schema: cc-index-table's flat one. Memory: one stretch of links and a few batches of the index, whatever the size of both.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from webtext.base.errors import InputError
from webtext.base.urls import canonical_url
from webtext.crawl.archives import Preference, Rank
from webtext.crawl.pages_set import Link
from webtext.crawl.sniff import TEXT_TYPES
from webtext.crawl.surt import surt

LINKS_AT_A_TIME = 100_000
BATCH_ROWS = 32_768
SUBSET = "warc"  # the index also has 'crawldiagnostics' and 'robotstxt'
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
CREATE TABLE links (
    id INTEGER PRIMARY KEY, key TEXT,
    link_id TEXT, url TEXT, karma INT, split TEXT, voted INT, tried TEXT, requests INT);
CREATE TABLE places (id INT, url TEXT, digest TEXT, file TEXT, offset INT, length INT);
"""
_LINK = "link_id, url, karma, split, voted, tried, requests"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the record lies that was chosen for a link, and what it must be."""

    file: str
    offset: int
    length: int
    url: str  # canonical
    digest: str | None


class LinkJoin:
    """Collects links, joins them, and gives them back: those that have a place by place, then the others."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="webtext-join-", ignore_cleanup_errors=True)
        path = Path(self._scratch.name) / "links.sqlite"
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLES} BEGIN;")

    def close(self) -> None:
        """Remove the scratch file."""
        self._db.close()
        self._scratch.cleanup()

    def add(self, link: Link) -> None:
        """Remember a link."""
        row = (surt(link.url), link.link_id, link.url, link.karma, link.split, link.voted, link.tried, link.requests)
        self._db.execute(f"INSERT INTO links (key, {_LINK}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def choose(self, index: ds.Dataset, preference: Preference) -> None:
        """Choose a capture for every link that has one in the index."""
        self._db.execute("CREATE INDEX by_key ON links (key, id)")
        after = ("", 0)
        while rows := self._db.execute(
            "SELECT key, id, url, voted FROM links WHERE (key, id) > (?, ?) ORDER BY key, id LIMIT ?",
            (*after, LINKS_AT_A_TIME),
        ).fetchall():
            after = rows[-1][:2]
            self._db.executemany("INSERT INTO places VALUES (?, ?, ?, ?, ?, ?)", _chosen(rows, index, preference))
        self._db.execute("CREATE INDEX by_place ON places (file, offset)")
        self._db.execute("CREATE INDEX by_id ON places (id)")

    def placed(self) -> Iterator[tuple[Link, Place]]:
        """The links with a capture, by file and offset."""
        query = f"SELECT {_LINK}, p.file, p.offset, p.length, p.url, p.digest FROM places p JOIN links USING (id)"
        query = query.replace("url, karma", "links.url, karma") + " ORDER BY p.file, p.offset, p.id"
        for row in self._db.execute(query):
            yield _link(row[:7]), Place(*row[7:])

    def others(self) -> Iterator[Link]:
        """The links without a capture."""
        for row in self._db.execute(f"SELECT {_LINK} FROM links WHERE id NOT IN (SELECT id FROM places)"):
            yield _link(row)


def open_index(paths: Sequence[str]) -> ds.Dataset:
    """The index in these Parquet files or folders (`crawl=.../subset=...` inside), local or at fsspec URLs.

    InputError where one is missing or is no Parquet file of the index.
    """
    parts = []
    for path in paths:
        try:
            parts.append(_part(path))
        except (OSError, pa.ArrowInvalid) as error:
            what = " ".join(str(error).split())[:200]
            raise InputError(
                f"no index in '{path}': {what}", "name Parquet files of Common Crawl's cc-index table"
            ) from None
        if not parts[-1].files:
            raise InputError(f"no Parquet file in '{path}'", "name the folder of a crawl, or its files")
    return ds.dataset(parts)


def _part(path: str) -> ds.FileSystemDataset:
    import fsspec

    file_system, inner = fsspec.core.url_to_fs(path)
    names = sorted(file_system.glob(inner)) if any(sign in inner for sign in "*?[") else inner
    partitioning = ds.partitioning(_PARTITIONS, flavor="hive")
    options: dict[str, Any] = {"filesystem": file_system, "format": "parquet", "partitioning": partitioning}
    own = ds.dataset(names, **options)
    missing = {"url_surtkey", "warc_filename"} - set(own.schema.names)
    if missing:
        raise pa.ArrowInvalid(f"no column {', '.join(sorted(missing))}")
    return ds.dataset(names, schema=pa.schema([*_COLUMNS, *_PARTITIONS]), **options)


def _chosen(
    rows: list[tuple[str, int, str, int]], index: ds.Dataset, preference: Preference
) -> Iterator[tuple[Any, ...]]:
    """The best place of each link in one stretch, in the order of the keys."""
    wanted: dict[str, list[tuple[int, str, int]]] = defaultdict(list)
    for key, identifier, url, voted in rows:
        wanted[key].append((identifier, url, voted))
    best: dict[int, tuple[Rank, tuple[Any, ...]]] = {}
    for found in _matches(list(wanted), index):
        named, captured = canonical_url(found["url"] or ""), found["fetch_time"]
        if named is None or captured is None or not _is_usable(found):
            continue
        truncated = bool(found["content_truncated"])
        for identifier, link_url, voted in wanted[found["url_surtkey"]]:
            rank = preference.rank(captured, voted, is_exact=named == link_url, is_truncated=truncated)
            place = (found["warc_filename"], found["warc_record_offset"], found["warc_record_length"])
            entry = (rank, (identifier, named, found["content_digest"], *place))
            if rank is not None and (
                identifier not in best or (rank, place) < (best[identifier][0], best[identifier][1][3:])
            ):
                best[identifier] = (rank, entry[1])
    return (row for _, row in best.values())


def _matches(keys: list[str], index: ds.Dataset) -> Iterator[dict[str, Any]]:
    """The rows of the index under these keys, which are sorted."""
    key, status, subset = ds.field("url_surtkey"), ds.field("fetch_status"), ds.field("subset")
    condition = (key >= keys[0]) & (key <= keys[-1]) & key.isin(pa.array(keys)) & (status == 200)
    condition &= subset.is_null() | (subset == SUBSET)
    batches = index.to_batches(
        columns=_COLUMNS.names, filter=condition, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
    )
    try:
        for batch in batches:
            seconds = pc.cast(pc.cast(batch["fetch_time"], pa.timestamp("s"), safe=False), pa.int64())
            place = batch.schema.get_field_index("fetch_time")
            yield from batch.set_column(place, "fetch_time", seconds).to_pylist()
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(f"the index cannot be read: {what}", "download the file again, or leave it out") from None


def _is_usable(row: dict[str, Any]) -> bool:
    kind, place = row["content_mime_detected"], (row["warc_record_offset"], row["warc_record_length"])
    is_placed = bool(row["warc_filename"]) and all(isinstance(number, int) and number >= 0 for number in place)
    return is_placed and row["warc_record_length"] > 0 and (kind is None or kind in TEXT_TYPES)


def _link(row: Iterable[Any]) -> Link:
    link_id, url, karma, split, voted, tried, requests = row
    return Link(link_id=link_id, url=url, karma=karma, split=split, voted=voted, tried=tried, requests=requests)
