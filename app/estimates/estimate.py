"""Estimate a whole build from a sample of its links: documents, tokens, bytes, time and money.

The number of links is known, because the sample is drawn from all of them. Everything else is counted in the sample's sets and
scaled up by `estimate_statistics.py`. What doesn't grow in proportion is modelled, or listed in `LIMITS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from webtext.app.chain import SECONDS, Layout
from webtext.app.config import BuildConfig, PriceSettings
from webtext.app.estimates.estimate_statistics import Range, duplicate_ratio, mean, total_of_share
from webtext.base.errors import InputError
from webtext.base.parts.partset import Part, PartSet
from webtext.base.sample import Sample
from webtext.base.storage import Folder
from webtext.crawl.plan.plan import DAY, make_plan
from webtext.crawl.plan.settings import PlanSettings

ESTIMATE = "estimate.json"
GIGABYTE = 10**9
HEADERS_RATIO = 0.5
"""Size of the column pages' headers relative to the footer (0.4 measured on parts of 132 and 438 records)."""
SETS = ("pages", "documents", "signals", "corpus", "dropped", "tokens")

LIMITS = (
    "Duplicates: a copy is found only if both links are in the sample, so the ratio grows with the sample. The low end of the "
    "kept documents lets it keep growing; the high end leaves it as it is in the sample.",
    "Crawling: the host with the most links takes one request after another; its links are counted in the whole set. The high "
    "end assumes that all hosts of the largest registrable domain share one address.",
    "Tokenizer: merging takes at least as long as in the sample, counting grows at most with the text. A tokenizer trained on "
    "the sample fits it better than it would fit everything: there may be more tokens.",
    "Training takes the steps in its settings, whatever the corpus, and its folder the same bytes.",
    "Starting workers takes as long for a sample, so small samples make stages look slow. Hosts are assumed to answer as today.",
)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Number of values, their sum, and the sum of their squares."""

    n: int = 0
    total: float = 0
    squares: float = 0

    def mean(self, sampled_ratio: float) -> Range:
        return mean(self.n, self.total, self.squares, sampled_ratio) if self.n else Range(0.0, 0.0, 0.0)


def make_estimate(config: BuildConfig, layout: Layout) -> dict[str, Any]:
    """Return the estimate of the whole build from the sample's sets in `layout`."""
    sets = {name: PartSet.open(getattr(layout, name), name) for name in ("links", *SETS)}
    n, total = _n_sampled(sets["links"], config["build"].sample_of()), sets["links"].records
    duplicates, whole = _documents(sets, n, total)
    text = _sizes(pc.binary_length(batch["text"]) for batch in _batches(sets["corpus"], ["text"]))
    tokens = _sizes(batch["length"] for batch in _batches(sets["tokens"], ["length"]))
    whole |= {
        "bytes of text": whole["corpus"] * text.mean(n / total),
        "tokens": whole["corpus"] * tokens.mean(n / total),
    }
    sampled = {name: _n_documents(sets[name]) for name in ("pages", "documents", "corpus")}
    sampled |= {"bytes of text": round(text.total), "tokens": round(tokens.total)}
    disk = _disk(sets, whole, sampled, n / total) | _model_bytes(layout)
    wire, crawl = _crawl(config, sets["links"], sets["pages"])
    seconds = _seconds(layout, sampled, whole, crawl)
    hours, stored = _sum(seconds) * (1 / 3600), _sum(disk)
    return {
        "sample": str(config["build"].sample_of()),
        "links": {"sample": n, "whole": total},
        "counts": {name: {"sample": sampled[name], "whole": whole[name].rounded().to_json()} for name in sampled},
        "duplicates_ratio": duplicates,
        "bytes_fetched": wire,
        "bytes_stored": {name: each.rounded().to_json() for name, each in disk.items()},
        "seconds": {name: each.to_json() for name, each in seconds.items()},
        "hours": hours.to_json(),
        "money": _money(config["build.prices"], hours, wire, stored),
        "limits": list(LIMITS),
    }


def _n_sampled(links: PartSet, sample: Sample | None) -> int:
    """Return how many links are in the sample; pages/ may also have rows for links collected earlier."""
    if sample is None:
        return links.records
    batches = (batch for part in links.parts for batch in links.batches(part, ["link_id"], 1 << 16))
    return sum(sample.holds(identifier) for batch in batches for identifier in batch["link_id"].to_pylist())


def write_estimate(config: BuildConfig, layout: Layout) -> dict[str, Any]:
    """Make the estimate and write it to the sample's folder."""
    found = make_estimate(config, layout)
    Folder(layout.root).write_object(ESTIMATE, found)
    return found


def _documents(sets: Mapping[str, PartSet], n: int, total: int) -> tuple[dict[str, Any], dict[str, Range]]:
    """Estimate the duplicate ratio and the number of pages, documents and corpus documents of the whole build."""
    sizes = _cluster_sizes(sets["dropped"])
    n_duplicates = sum(sizes) - len(sizes)
    n_compared = sets["corpus"].records + n_duplicates
    share = duplicate_ratio(sizes, n_compared, n / total) if n_compared else Range(0.0, 0.0, 1.0)
    compared = total_of_share(min(n_compared, n), n, total)  # a page has at most one document
    whole = {name: total_of_share(min(_n_documents(sets[name]), n), n, total) for name in ("pages", "documents")}
    whole["corpus"] = compared * Range(1 - share.high, 1 - share.value, 1 - share.low)
    return {"sample": n_duplicates / max(n_compared, 1), "whole": share.to_json()}, whole


def _n_documents(opened: PartSet) -> int:
    """Return a set's number of records; for pages, of fetched ones."""
    return opened.counts.kept if opened.kind == "pages" else opened.records


def _cluster_sizes(dropped: PartSet) -> list[int]:
    """Return the size of each duplicate cluster, including the kept document."""
    counted: Counter[str] = Counter()
    for batch in _batches(dropped, ["stage", "duplicate_of"]):
        counted.update(batch.filter(pc.equal(batch["stage"], "dedup"))["duplicate_of"].to_pylist())
    return [n + 1 for n in counted.values()]


def _sizes(columns: Iterator[Any]) -> _Sizes:
    n, total, squares = 0, 0.0, 0.0
    for column in columns:
        values = column.to_numpy(zero_copy_only=False).astype(float)
        n, total, squares = n + len(values), total + values.sum(), squares + (values * values).sum()
    return _Sizes(n, float(total), float(squares))


def _batches(opened: PartSet, columns: list[str]) -> Iterator[Any]:
    for part in opened.parts:
        yield from opened.batches(part, columns, 4096)


def _disk(
    sets: Mapping[str, PartSet], whole: Mapping[str, Range], sampled: Mapping[str, int], ratio: float
) -> dict[str, Range]:
    """Estimate the bytes of each set: pages and documents from their own sizes, the corpus from its text, dropped as the rest."""
    documents, corpus = whole["documents"], whole["corpus"]
    dropped = Range(*(max(n - m, 0.0) for n, m in zip(_ends(documents), reversed(_ends(corpus)), strict=True)))
    answers = _sizes(batch["warc_length"].drop_null() for batch in _batches(sets["pages"], ["warc_length"]))
    texts = _sizes(pc.binary_length(batch["text"]) for batch in _batches(sets["documents"], ["text"]))

    def growth(name: str, of: str) -> Range:
        return whole[name] * (1 / max(sampled[of], 1))

    grown = {
        "pages": growth("pages", "pages") * _relative(answers, ratio),
        "documents": growth("documents", "documents") * _relative(texts, ratio),
        "signals": growth("documents", "documents"),
        "corpus": growth("bytes of text", "bytes of text"),
        "dropped": dropped * (1 / max(sets["dropped"].records, 1)),
        "tokens": growth("tokens", "tokens"),
    }
    return {name: _grown(sets[name], grown[name]) for name in SETS}


def _relative(sizes: _Sizes, ratio: float) -> Range:
    """Return the mean size relative to the sample's."""
    return sizes.mean(ratio) * (sizes.n / sizes.total) if sizes.total else Range(1.0, 1.0, 1.0)


def _grown(opened: PartSet, growth: Range) -> Range:
    """Scale a set's bytes; fixed costs per part are counted once while the sample fills one part."""
    once = min(sum(_overhead(opened, part) for part in opened.parts), _bytes(opened))
    content = growth * (_bytes(opened) - once)
    parts = Range(1.0, 1.0 if len(opened.parts) == 1 else growth.value, growth.high)
    return content + parts * once


def _overhead(opened: PartSet, part: Part) -> float:
    """Return the bytes of a Parquet file's footer (its length precedes the last four bytes) and of its page headers."""
    length = opened.folder.read_range(part.name, part.bytes - 8, part.bytes - 4)
    return (1 + HEADERS_RATIO) * int.from_bytes(length, "little")


def _model_bytes(layout: Layout) -> dict[str, Range]:
    """Return the model folder's bytes, if any; they follow from its settings, whatever the corpus."""
    files = [file for file in Path(layout.model).rglob("*") if file.is_file()]
    n_bytes = float(sum(file.stat().st_size for file in files))
    return {"model": Range(n_bytes, n_bytes, n_bytes)} if files else {}


def _ends(each: Range) -> tuple[float, float, float]:
    return each.low, each.value, each.high


def _sum(ranges: Mapping[str, Range]) -> Range:
    return sum(ranges.values(), Range(0.0, 0.0, 0.0))


def _bytes(opened: PartSet) -> int:
    return sum(part.bytes + sum(each.bytes for each in part.attachments) for part in opened.parts)


def _crawl(config: BuildConfig, links: PartSet, pages: PartSet) -> tuple[int | None, Range | None]:
    """Return downloaded bytes and seconds as `webtext crawl plan` estimates them from the sample; None when it has no page."""
    fetch = config["crawl.fetch"]
    try:
        plan = make_plan(links, PlanSettings(), fetch, pages)
    except InputError:
        return None, None
    cap = next((each for each in plan.caps if each.max_pages_per_host == fetch.max_pages_per_host), plan.caps[0])
    longest = max(cap.days_by_domain, cap.days_by_concurrency)
    return cap.wire_bytes, Range(cap.days, cap.days, max(cap.days, longest)) * DAY


def _seconds(
    layout: Layout, sampled: Mapping[str, int], whole: Mapping[str, Range], crawl: Range | None
) -> dict[str, Range]:
    """Estimate the seconds of each stage from the sample's."""
    folder = Folder(layout.root)
    took = folder.read_object(SECONDS, "remove it") if folder.exists(SECONDS) else {}
    once = Range(1.0, 1.0, 1.0)
    kept = whole["corpus"] * (1 / max(sampled["corpus"], 1))
    growth = {
        "links": once,
        "clean": whole["documents"] * (1 / max(sampled["documents"], 1)),
        "tokenizer": Range(1.0, kept.value, kept.high),
        "tokens": kept,
        "model": once,
        "evaluation": Range(1.0, kept.value, kept.high),
    }
    found = {"links": growth["links"] * float(took["links"])} if "links" in took else {}
    found |= {"pages": crawl} if crawl is not None else {}
    return found | {name: growth[name] * float(took[name]) for name in list(growth)[1:] if name in took}


def _money(prices: PriceSettings, hours: Range, wire: int | None, stored: Range) -> dict[str, Any] | None:
    """Return the cost of everything that has a price; None when nothing has."""
    parts: dict[str, Range] = {}
    if prices.hour is not None:
        parts["machine"] = hours * prices.hour
    if prices.gigabyte_fetched is not None and wire is not None:
        parts["fetching"] = Range(wire, wire, wire) * (prices.gigabyte_fetched / GIGABYTE)
    if prices.gigabyte_month is not None:
        parts["a month of storage"] = stored * (prices.gigabyte_month / GIGABYTE)
    return {"currency": prices.currency} | {name: each.to_json() for name, each in parts.items()} if parts else None
