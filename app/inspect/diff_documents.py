"""Find the documents that two builds have in common, and the reasons for the others.

A document's id names a page as it was fetched, so two builds of one crawl share ids. A page that was fetched twice has two
ids; such documents are paired by URL. Documents left over in one corpus are looked up among the other build's decisions,
by id and by URL, then by link among its pages and links.

Tables larger than memory go through `diff_buckets.py`, so memory is one bucket of each side, however large the builds are.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.app.inspect.diff_buckets import Buckets, buckets_for
from webtext.app.inspect.diff_recipes import Built
from webtext.base.parts.lineage import parents_of
from webtext.base.parts.partset import PartSet

SAMPLES = 20
SAMPLE_KEY = b"webtext diff 1"
BATCH_ROWS = 4096

DOCUMENT = pa.schema([(name, pa.string()) for name in ("id", "url", "link_id", "text_digest")])
DECISION = pa.schema([(name, pa.string()) for name in ("id", "url", "stage", "reason")])
PAGE = pa.schema([(name, pa.string()) for name in ("link_id", "outcome", "reason")])
LINK = pa.schema([("link_id", pa.string())])
StageReason = tuple[str, str]


@dataclass(slots=True)
class Left:
    """Documents that only one build keeps: counts by (stage, reason) in the other build, and samples.

    A sample is (hash, id, stage, reason). Samples have the smallest keyed hashes: a random but repeatable choice.
    """

    reasons: Counter[StageReason] = field(default_factory=Counter)
    samples: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, identifiers: Sequence[str], stage_reasons: Sequence[StageReason]) -> None:
        """Count documents, each with its stage and reason in the other build."""
        self.reasons.update(stage_reasons)
        hashed = [
            (_hash(each), each, *stage_reason) for each, stage_reason in zip(identifiers, stage_reasons, strict=True)
        ]
        self.samples = heapq.nsmallest(SAMPLES, [*self.samples, *hashed])

    @property
    def n(self) -> int:
        """Total number of documents."""
        return self.reasons.total()


@dataclass(slots=True)
class Compared:
    """Two corpora: kept in A = common + lost, kept in B = common + gained."""

    common: int = 0
    fetched_again: int = 0  # common documents with one URL and two ids
    text_changed: int = 0  # common documents whose text changed
    lost: Left = field(default_factory=Left)
    gained: Left = field(default_factory=Left)


def compare_documents(a: Built, b: Built, scratch: Path) -> Compared:
    """Compare the corpora of two builds; `scratch` is an empty folder for tables larger than memory."""
    found = Compared()
    corpora = (a.sets["corpus"], b.sets["corpus"])
    join = _Join(scratch, buckets_for(max(opened.records for each in (a, b) for opened in each.sets.values())))
    documents = [join.spread(_documents(corpus), DOCUMENT, "id") for corpus in corpora]
    decisions = [join.spread(_decisions(built), DECISION, "id") for built in (a, b)]
    left = [join.buckets(DOCUMENT, "url") for _ in corpora]
    for mine, yours, gone_of_a, gone_of_b in _zip(*documents, *decisions):
        rest = _pair(mine, yours, "id", found)
        for side, (rows, gone, kind) in enumerate(
            zip(rest, (gone_of_b, gone_of_a), (found.lost, found.gained), strict=True)
        ):
            left[side].add(_settle(rows, gone, "id", kind))
    _pair_urls(join, left, (a, b), found)
    return found


def _pair_urls(join: _Join, left: Sequence[Buckets], builds: tuple[Built, Built], found: Compared) -> None:
    """Match the documents left over by URL, then by link."""
    if not any(each.n_rows for each in left):
        return
    decisions = [join.spread(_decisions(built), DECISION, "url") for built in builds]
    rest = [join.buckets(DOCUMENT, "link_id") for _ in builds]
    for mine, yours, gone_of_a, gone_of_b in _zip(*left, *decisions):
        pairs = _pair(_numbered(mine), _numbered(yours), "url_number", found)
        found.fetched_again += mine.num_rows - pairs[0].num_rows
        for side, (rows, gone, kind) in enumerate(
            zip(pairs, (gone_of_b, gone_of_a), (found.lost, found.gained), strict=True)
        ):
            rest[side].add(_settle(rows.select(DOCUMENT.names), gone, "url", kind))
    for rows_left, other, kind in zip(rest, reversed(builds), (found.lost, found.gained), strict=True):
        if rows_left.n_rows:
            _trace_links(join, rows_left, other, kind)


def _pair(mine: pa.Table, yours: pa.Table, key: str, found: Compared) -> tuple[pa.Table, pa.Table]:
    """Count the rows whose key both sides have; return each side's other rows."""
    place = pc.index_in(mine[key], value_set=yours[key].combine_chunks()).combine_chunks()
    paired = pc.is_valid(place)
    digests = yours["text_digest"].take(place.drop_null())
    found.common += len(digests)
    found.text_changed += pc.sum(pc.not_equal(mine["text_digest"].filter(paired), digests)).as_py() or 0
    is_paired = np.zeros(yours.num_rows, bool)
    is_paired[place.drop_null().to_numpy()] = True
    return mine.filter(pc.invert(paired)), yours.filter(pa.array(~is_paired))


def _settle(rows: pa.Table, decisions: pa.Table, key: str, kind: Left) -> pa.Table:
    """Count the rows that the other build dropped; return those for which it has no decision."""
    place = pc.index_in(rows[key], value_set=decisions[key].combine_chunks()).combine_chunks()
    decided = pc.is_valid(place)
    of_rows = decisions.take(place.drop_null())
    stage_reasons = list(zip(of_rows["stage"].to_pylist(), of_rows["reason"].to_pylist(), strict=True))
    kind.add(rows["id"].filter(decided).to_pylist(), stage_reasons)
    return rows.filter(pc.invert(decided))


def _numbered(rows: pa.Table) -> pa.Table:
    """Add `url_number`, the URL and its number of earlier rows, so that two documents of one URL make two pairs."""
    rows = rows.sort_by([("url", "ascending"), ("id", "ascending")])
    seen: Counter[str] = Counter()
    numbered = []
    for url in rows["url"].to_pylist():
        numbered.append(f"{url} {seen[url]}")
        seen[url] += 1
    return rows.append_column("url_number", pa.array(numbered, pa.string()))


def _trace_links(join: _Join, left: Buckets, other: Built, kind: Left) -> None:
    """Count documents by the outcome of their links in the other build."""
    documents = other.sets.get("documents")
    pages = other.sets.get("pages") or _parent(documents, "pages")
    links = other.sets.get("links") or _parent(pages, "links")
    extraction = _Extraction(documents)
    asked, known = (
        join.spread(_rows(opened, schema), schema, "link_id") for opened, schema in ((pages, PAGE), (links, LINK))
    )
    for rows, of_pages, of_links in _zip(left, asked, known):
        place = pc.index_in(rows["link_id"], value_set=of_pages["link_id"].combine_chunks()).combine_chunks()
        answers = of_pages.take(place)
        is_link = pc.is_in(rows["link_id"], value_set=of_links["link_id"].combine_chunks())
        columns = (rows["url"], answers["outcome"], answers["reason"], is_link)
        stage_reasons = [
            ("documents", "not_among_its_inputs")
            if pages is None
            else _stage_reason(url, outcome, reason, linked, extraction)
            for url, outcome, reason, linked in zip(*(each.to_pylist() for each in columns), strict=True)
        ]
        kind.add(rows["id"].to_pylist(), stage_reasons)


def _stage_reason(url: str, outcome: str | None, reason: str, is_link: bool, extraction: _Extraction) -> StageReason:
    """Return (stage, reason) for a link, as `webtext inspect doc` prints it."""
    if outcome is None:
        return ("pages", "not_fetched_yet") if is_link else ("links", "not_a_link")
    return ("documents", extraction.why_not(url)) if outcome == "fetched" else ("pages", reason)


class _Extraction:
    """Return why a fetched page has no document."""

    def __init__(self, documents: PartSet | None) -> None:
        failures = documents.failures() if documents is not None else ()
        self._failed = {failure.id.rpartition(" ")[2]: failure.reason for failure in failures}
        dropped = documents.counts.dropped if documents is not None else {}
        self._otherwise = (
            " or ".join(sorted(dropped)) or "no_document"
        )  # extraction counts what it drops, but writes no row

    def why_not(self, url: str) -> str:
        return self._failed.get(url, self._otherwise)


class _Join:
    """Makes bucket sets of equal number, so that bucket i has the same keys in each."""

    def __init__(self, scratch: Path, n_buckets: int) -> None:
        self._scratch = scratch
        self._n_buckets = n_buckets
        self._n_made = 0

    def buckets(self, schema: pa.Schema, key: str) -> Buckets:
        self._n_made += 1
        return Buckets(self._scratch / str(self._n_made), schema, key, self._n_buckets)

    def spread(self, tables: Iterable[pa.Table], schema: pa.Schema, key: str) -> Buckets:
        made = self.buckets(schema, key)
        for table in tables:
            made.add(table)
        return made


def _zip(*spread: Buckets) -> Iterator[tuple[pa.Table, ...]]:
    return zip(*(each.tables() for each in spread), strict=True)


def _documents(corpus: PartSet) -> Iterator[pa.Table]:
    """Return a table of document rows."""
    columns = ["id", "url", "link_ids", "text_digest"]
    for part in corpus.parts:
        for batch in corpus.batches(part, columns, BATCH_ROWS):
            links = [links[0] if links else None for links in batch["link_ids"].to_pylist()]
            values = [batch["id"], batch["url"], pa.array(links, pa.string()), batch["text_digest"]]
            yield _keyed(values, DOCUMENT)


def _decisions(built: Built) -> Iterator[pa.Table]:
    return _rows(built.sets.get("dropped"), DECISION)


def _rows(opened: PartSet | None, schema: pa.Schema) -> Iterator[pa.Table]:
    if opened is None:
        return
    for part in opened.parts:
        for batch in opened.batches(part, schema.names, 1 << 16):
            yield _keyed([batch[name] for name in schema.names], schema)


def _keyed(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.Table:
    """Return a table of strings; null becomes the row's id, which equals no URL and is spread evenly."""
    return pa.Table.from_arrays([pc.coalesce(each, columns[0]) for each in columns], schema=schema)


def _parent(opened: PartSet | None, kind: str) -> PartSet | None:
    """Return a parent of this kind, in another folder, that this set was made from."""
    return next((each for each in parents_of(opened) if each.kind == kind), None) if opened is not None else None


def _hash(identifier: str) -> str:
    return hashlib.blake2b(identifier.encode(), key=SAMPLE_KEY, digest_size=8).hexdigest()
