"""The figures on a dataset card, counted from manifests and from the corpus's columns without its texts.

The figures don't depend on the clock, the machine or the folder: equal sets give equal facts. Workers count them part
by part. Domains are divided by hash, and a worker counts each share of them in the entire corpus.
"""

from __future__ import annotations

import functools
import heapq
import operator
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.lineage import parents_of
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.run import Run
from webtext.base.workers.journal import Journal
from webtext.clean.inputs.importing import DATASET

TOP_DOMAINS = 25
DOCUMENTS_A_SHARE = 2_000_000  # a task has at most about as many domains in memory, of 150 bytes each
BATCH_ROWS = 65_536


@dataclass(slots=True)
class Span:
    """The earliest and the latest of the added times, in UTC seconds; None if there are none."""

    first: int | None = None
    last: int | None = None

    @classmethod
    def of(cls, times: pa.Array | pa.ChunkedArray) -> Span:
        """Return the span of the times; nulls are ignored."""
        found = pc.min_max(times).as_py()
        return cls(found["min"], found["max"])

    def __add__(self, other: Span) -> Span:
        firsts = [each for each in (self.first, other.first) if each is not None]
        return Span(
            min(firsts, default=None), max([each for each in (self.last, other.last) if each is not None], default=None)
        )


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


def gather_facts(pages: Sequence[PartSet], documents: PartSet, signals: PartSet, corpus: PartSet, run: Run) -> Facts:
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
    opened = SetName.of(corpus)
    parts = [(opened, SetName.of(signals), part) for part in range(len(corpus.parts))]
    counted = run.map(_count_documents, parts, "clean.card: count documents")
    facts.splits, facts.languages, facts.characters, facts.captured = _sums(
        [(Counter(), Counter(), Counter(), Span()), *counted]
    )
    n_shares = max(1, -(-corpus.records // DOCUMENTS_A_SHARE))
    shares = [(opened, share, n_shares) for share in range(n_shares)]
    facts.n_domains, domains = _sums(run.map(_count_domains, shares, "clean.card: count domains", unit="share"))
    facts.domains = _largest(domains)
    facts.captures = count_captures(pages, run)
    return facts


def count_captures(pages: Sequence[PartSet], run: Run) -> Captures:
    """Count the fetched pages of the sets."""
    parts = [(SetName.of(each), part) for each in pages for part in range(len(each.parts))]
    counted = run.map(_count_captures, parts, "clean.card: count pages")
    return Captures(*_sums([(Counter(), Span(), Counter()), *counted]))


def _sums(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [functools.reduce(operator.add, column) for column in zip(*rows, strict=True)]


def _count_documents(
    _: Journal, task: tuple[SetName, SetName, int]
) -> tuple[Counter[str], Counter[str], Counter[str], Span]:
    """Return the splits, languages, characters by split, and dates of a part of the corpus; in a worker."""
    corpus, signals, part = task
    rows = corpus.open().table(part, ["id", "split", "language", "date"])
    characters = _characters(rows, signals.open().table(part, ["id", "n_characters"]))
    return _counts(rows["split"]), _counts(rows["language"]), characters, Span.of(rows["date"])


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


def _count_domains(journal: Journal, task: tuple[SetName, int, int]) -> tuple[int, list[tuple[str, int]]]:
    """Return the number of domains whose hash falls in a share, and the largest of them; in a worker."""
    corpus, share, n_shares = task
    found: Counter[str] = Counter()
    opened = corpus.open()
    for part in opened.parts:
        journal.idle()  # progress
        for batch in opened.batches(part, ["domain"], BATCH_ROWS):
            for domain, n in _counts(batch["domain"]).items():
                if zlib.crc32(domain.encode()) % n_shares == share:
                    found[domain] += n
    return len(found), _largest(found.items())


def _largest(domains: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return heapq.nsmallest(TOP_DOMAINS, domains, key=lambda item: (-item[1], item[0]))


def _count_captures(_: Journal, task: tuple[SetName, int]) -> tuple[Counter[str], Span, Counter[str]]:
    """Return the sources, times and opt-outs of a part's fetched pages; in a worker."""
    pages, part = task
    rows = pages.open().table(part, ["outcome", "source", "captured", "opt_outs"])
    fetched = rows.filter(pc.equal(rows["outcome"], "fetched"))
    return _counts(fetched["source"]), Span.of(fetched["captured"]), _counts(pc.list_flatten(fetched["opt_outs"]))
