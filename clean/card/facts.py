"""The dataset card: `corpus/README.md`, Markdown with a YAML head as Hugging Face reads it, made from the manifests.

`card.jinja` is the card; here are its figures, counted from manifests and from the corpus's columns without its texts.
Nothing in it depends on the clock, the machine or a path, so equal corpora have equal cards. Workers count part by part.
Domains are divided by hash, and a worker counts each share of them in the entire corpus. Untrusted text is escaped.
"""

from __future__ import annotations

import functools
import heapq
import json
import operator
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.config import from_table
from webtext.base.errors import InputError
from webtext.base.html_pages.rendering import day
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import FILE, PartSet, SetName, SourcePart, parents_of
from webtext.base.parts.recipe import sha256_json
from webtext.base.parts.schemas import DOCUMENT
from webtext.base.run import Run
from webtext.base.web.opt_outs import OPT_OUTS
from webtext.base.workers.attempt import Attempt
from webtext.clean.dedup.settings import PERMUTATIONS, SHINGLE_WORDS
from webtext.clean.inputs.importing import DATASET
from webtext.clean.rules.thresholds import RULES, RuleSettings
from webtext.clean.settings import CardSettings

CARD = "README.md"
TOP_DOMAINS = 25
DOCUMENTS_A_SHARE = 2_000_000  # a task has at most about as many domains in memory, of 150 bytes each
BATCH_ROWS = 65_536
SIZES = [
    (10**exponent, f"{10 ** (exponent % 3)}{unit}") for exponent, unit in zip(range(3, 13), "KKKMMMBBBT", strict=True)
]
"""The upper limits and names of Hugging Face's `size_categories`."""

_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_MAX_NAME = 80


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
        return Span.of(pa.array([self.first, self.last, other.first, other.last], pa.int64()))


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
    links: list[PartSet] = field(default_factory=list)  # that pages were fetched for, if they still exist
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
                source, *more = part.sources
                if more:  # text files: their first and last name, and the SHA-256 of their SHA-256
                    names = f"{source.part} to {more[-1].part}, {len(part.sources):,} files"
                    source = SourcePart(FILE, names, sha256_json([each.record_digest for each in part.sources]))
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
    _: Attempt, task: tuple[SetName, SetName, int]
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
    sums = table.group_by("split").aggregate([("n", "sum")]).to_pylist()
    return Counter({row["split"]: row["n_sum"] for row in sums})


def _count_domains(attempt: Attempt, task: tuple[SetName, int, int]) -> tuple[int, list[tuple[str, int]]]:
    """Return the number of domains whose hash falls in a share, and the largest of them; in a worker."""
    corpus, share, n_shares = task
    found: Counter[str] = Counter()
    opened = corpus.open()
    for part in opened.parts:
        attempt.idle()  # progress
        for batch in opened.batches(part, ["domain"], BATCH_ROWS):
            for domain, n in _counts(batch["domain"]).items():
                if zlib.crc32(domain.encode()) % n_shares == share:
                    found[domain] += n
    return len(found), _largest(found.items())


def _largest(domains: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return heapq.nsmallest(TOP_DOMAINS, domains, key=lambda item: (-item[1], item[0]))


def _count_captures(_: Attempt, task: tuple[SetName, int]) -> tuple[Counter[str], Span, Counter[str]]:
    """Return the sources, times and opt-outs of a part's fetched pages; in a worker."""
    pages, part = task
    rows = pages.open().table(part, ["outcome", "source", "captured", "opt_outs"])
    fetched = rows.filter(pc.equal(rows["outcome"], "fetched"))
    return _counts(fetched["source"]), Span.of(fetched["captured"]), _counts(pc.list_flatten(fetched["opt_outs"]))


def write_card(facts: Facts, settings: CardSettings) -> None:
    """Write the card next to the corpus's parts."""
    facts.corpus.folder.write_bytes(CARD, card_text(facts, settings).encode())


def card_text(facts: Facts, settings: CardSettings) -> str:
    """Return the text of the card, ending in a newline."""
    values = {
        "facts": facts,
        "corpus": facts.corpus,
        "settings": settings,
        "codes": sorted(name for name in facts.languages if _LANGUAGE_CODE.fullmatch(name)),
        "size": size_category(facts.corpus.records),
        "columns": DOCUMENT,
        "meaning": b"meaning",
        "opt_outs": list(_opt_outs(facts)),
        "funnel": list(_funnel(facts)),
        "n_links": sum(opened.records for opened in facts.links),
        "n_fetched": sum(opened.counts.records_in for opened in facts.pages),
        "sets": [*facts.links, *facts.pages, facts.documents, facts.corpus],
        "sections": _sections,
        "thresholds": _thresholds,
        "shingle_words": SHINGLE_WORDS,
        "permutations": PERMUTATIONS,
    }
    return _template().render(values)


def size_category(n_documents: int) -> str:
    """Return Hugging Face's name for a dataset of this size.

    >>> size_category(999), size_category(1000), size_category(8_000_000)
    ('n<1K', '1K<n<10K', '1M<n<10M')
    """
    below = ""
    for limit, name in SIZES:
        if n_documents < limit:
            return f"{below}n<{name}"
        below = f"{name}<"
    return f"n>{below[:-1]}"


def _opt_outs(facts: Facts) -> Iterator[dict[str, Any]]:
    """Yield for each opt-out, and each way that a crawl or extraction treated it, whether it was obeyed (None: not known)."""
    crawls = [opened.recipe["settings"] for opened in facts.pages]
    extraction = facts.documents.recipe["settings"]
    for reason, (setting, meaning, _) in OPT_OUTS.items():
        values = {settings.get(setting) for settings in crawls}
        if setting in extraction:  # extraction drops such pages whatever the crawl did
            values = {True} if extraction[setting] else values | {False}
        skipped = sum(opened.counts.dropped.get(reason, 0) for opened in facts.pages)
        about = {"setting": setting, "meaning": meaning, "skipped": skipped, "fetched": facts.captures.opt_outs[reason]}
        for value in sorted(values, key=str):
            yield about | {"obeyed": value if isinstance(value, bool) else None}


def _funnel(facts: Facts) -> Iterator[tuple[str, str, Counts]]:
    unit = "rows" if facts.imported else "pages"
    collected, fetched = (sum((each.counts for each in sets), Counts()) for sets in (facts.links, facts.pages))
    if collected.records_in:
        yield "posts → links", "posts", collected
    if fetched.records_in:
        yield "links → pages", "links", fetched
    yield f"{unit} → documents", unit, facts.documents.counts
    yield "documents → corpus", "documents", facts.corpus.counts


def _sections(opened: PartSet) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the sections of a recipe in the order in which they are applied; settings outside a section come first.

    A crawl has none: its opt-outs have a section of the card, and its settings name a person.
    """
    settings = opened.recipe["settings"] if opened.kind not in ("links", "pages") else {}
    plain = {name: value for name, value in settings.items() if not isinstance(value, dict)}
    if plain:
        yield "settings", plain
    order = ("votes", "language", "rules", "dedup")
    yield from ((name, settings[name]) for name in order if name in settings)
    yield from ((name, settings[name]) for name in sorted(settings.keys() - plain.keys() - set(order)))


def _thresholds(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for reason, threshold in from_table(RuleSettings, settings, "clean.rules").thresholds().items():
        yield reason, RULES[reason].column, RULES[reason].bound, f"{threshold:,g}"


def records_digest(opened: PartSet) -> str:
    """Return one digest (SHA-256, hex) of all records of a set, in order."""
    return sha256_json([part.record_digest for part in opened.parts])


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        "code": code,
        "escaped": escaped,
        "days": _days,
        "records_digest": records_digest,
        "n": lambda value: f"{value:,}",
        "json": json.dumps,
        "yaml": lambda value: json.dumps(value, ensure_ascii=False),  # without control characters it is a YAML string
        "by_count": lambda counts: sorted(counts.items(), key=lambda item: (-item[1], item[0])),
    }
    return environment.from_string(Path(__file__).with_name("card.jinja").read_text("utf-8"))


def escaped(text: str) -> str:
    """Return untrusted text as Markdown that only shows it: one line, no markup, no links, no control characters.

    >>> escaped("[x](http://a.example)|<b>")
    '\\\\[x\\\\]\\\\(http\\\\:\\\\/\\\\/a\\\\.example\\\\)\\\\|\\\\<b\\\\>'
    """
    short = text if len(text) <= _MAX_NAME else text[: _MAX_NAME - 1] + "…"
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in short)
    return _PUNCTUATION.sub(r"\\\1", shown)


def code(name: str) -> str:
    """Return a plain name as inline code, and any other name escaped."""
    return f"`{name}`" if len(name) <= _MAX_NAME and _PLAIN_NAME.fullmatch(name) else escaped(name)


def _days(span: Span) -> str:
    """Return the first and the last day of a span in words, in UTC."""
    if span.first is None or span.last is None:
        return "at times that are not known"
    return f"from {day(span.first)} to {day(span.last)}"
