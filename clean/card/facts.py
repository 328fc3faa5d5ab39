"""The figures on a dataset card, counted from manifests and from the corpus's columns without its texts.

The figures don't depend on the clock, the machine or the folder: equal sets give equal facts. Memory is bounded by one
part's ids and by DOMAINS_A_PASS. A corpus of more documents is read several times, each time for a share of its
domains.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.lineage import parents_of
from webtext.base.parts.partset import PartSet
from webtext.clean.inputs.importing import DATASET

TOP_DOMAINS = 25
DOMAINS_A_PASS = 500_000
BATCH_ROWS = 65_536


@dataclass(slots=True)
class Span:
    """The earliest and the latest of the added times, in UTC seconds; None if there are none."""

    first: int | None = None
    last: int | None = None

    def add(self, times: pa.Array) -> None:
        """Include more times; nulls are ignored."""
        found = pc.min_max(times).as_py()
        if found["min"] is not None:
            self.first = found["min"] if self.first is None else min(self.first, found["min"])
            self.last = found["max"] if self.last is None else max(self.last, found["max"])


@dataclass(slots=True)
class Captures:
    """Counts of the fetched pages, from the pages sets."""

    sources: Counter[str] = field(default_factory=Counter)  # 'web', 'common-crawl', ... -> pages
    captured: Span = field(default_factory=Span)
    opt_outs: Counter[str] = field(default_factory=Counter)  # opt-out -> fetched pages that had it


@dataclass(slots=True)
class Facts:
    """All figures of a card."""

    pages: Sequence[PartSet]
    documents: PartSet
    corpus: PartSet
    splits: Counter[str] = field(default_factory=Counter)
    characters: Counter[str] = field(default_factory=Counter)  # by split
    languages: Counter[str] = field(default_factory=Counter)
    captured: Span = field(default_factory=Span)
    captures: Captures = field(default_factory=Captures)
    links: list[PartSet] = field(
        default_factory=list
    )  # the links sets that pages were fetched for, if they still exist
    n_domains: int = 0
    domains: list[tuple[str, int]] = field(default_factory=list)  # the largest, largest first

    @property
    def warc_files(self) -> int:
        """The number of WARC files that were read in addition to pages sets."""
        return sum(not part.sources for part in self.documents.parts)

    @property
    def imported(self) -> list[tuple[str, str, int]]:
        """The sources of imported documents: name, SHA-256 or revision and split, number of documents."""
        counted: Counter[tuple[str, str]] = Counter()
        if self.documents.recipe["stage"] == "clean.import":
            for part in self.documents.parts:
                (source,) = part.sources
                name, at, revision = source.part.rpartition("@") if source.set == DATASET else (source.part, "", "")
                counted[name, revision if at else source.record_digest] += part.records
        return [(*origin, n) for origin, n in counted.items()]


def gather_facts(pages: Sequence[PartSet], documents: PartSet, signals: PartSet, corpus: PartSet) -> Facts:
    """Count the figures for the card of `corpus`. `pages` are all pages sets that `documents` was made from, or none.

    Raises InputError if they differ from the recorded parents: a running crawl may have added pages since.
    """
    parents = {parent["hash"] for parent in documents.manifest["parents"]}
    if pages and {opened.hash for opened in pages} != parents:
        raise InputError("the pages sets changed while they were read", "rerun the same command")
    facts = Facts(pages, documents, corpus)
    named = {parent["hash"] for opened in pages for parent in opened.manifest["parents"]}
    found = {parent.hash: parent for opened in pages for parent in parents_of(opened)}  # machines share a links set
    facts.links += [links for key, links in sorted(found.items()) if key in named]
    for part in range(len(corpus.parts)):
        rows = corpus.table(part, ["id", "split", "language", "date"])
        facts.splits += _counts(rows["split"])
        facts.languages += _counts(rows["language"])
        facts.captured.add(rows["date"])
        facts.characters += _characters(rows, signals.table(part, ["id", "n_characters"]))
    _count_domains(facts)
    _count_captures(facts)
    return facts


def _counts(values: pa.Array | pa.ChunkedArray) -> Counter[str]:
    found = pc.value_counts(values)
    return Counter({row["values"]: row["counts"] for row in found.to_pylist() if row["values"] is not None})


def _characters(rows: pa.Table, signals: pa.Table) -> Counter[str]:
    """Characters of the texts by split, from the signals of the same part."""
    places = pc.index_in(rows["id"], value_set=signals["id"].combine_chunks())
    table = pa.table({"split": rows["split"], "n": signals["n_characters"].take(places)})
    return Counter(
        {row["split"]: row["n_sum"] for row in table.group_by("split").aggregate([("n", "sum")]).to_pylist()}
    )


def _batches(opened: PartSet, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for part in opened.parts:
        yield from opened.batches(part, columns, BATCH_ROWS)


def _count_domains(facts: Facts) -> None:
    """Count the largest domains exactly: each pass counts the domains whose hash falls in its share."""
    n_passes = max(1, -(-facts.corpus.records // DOMAINS_A_PASS))
    for each in range(n_passes):
        found: Counter[str] = Counter()
        for batch in _batches(facts.corpus, ["domain"]):
            for domain, n in _counts(batch["domain"]).items():
                if zlib.crc32(domain.encode()) % n_passes == each:
                    found[domain] += n
        facts.n_domains += len(found)
        facts.domains = heapq.nsmallest(
            TOP_DOMAINS, [*facts.domains, *found.items()], key=lambda item: (-item[1], item[0])
        )


def _count_captures(facts: Facts) -> None:
    captures = facts.captures
    for opened in facts.pages:
        for batch in _batches(opened, ["outcome", "source", "captured", "opt_outs"]):
            fetched = batch.filter(pc.equal(batch["outcome"], "fetched"))
            captures.sources += _counts(fetched["source"])
            captures.captured.add(fetched["captured"])
            captures.opt_outs += _counts(pc.list_flatten(fetched["opt_outs"]))
