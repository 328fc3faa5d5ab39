"""Three sets of pages whose main text is known, and the rule by which each set scores an extracted text.

    trafilatura  DATA/extract: wanted and unwanted passages. A wanted passage in the text is a true positive, a missing
                 one a false negative, an unwanted passage in the text a false positive, summed over all pages.
                 Runs of blanks count as one; texts are compared in NFC, because only trafilatura normalises its text.
    wcxb         DATA/wcxb, pages of seven kinds with their text: precision, recall and F1 of the lower-cased words,
                 as multisets, averaged over pages (the rule of WCXB, the Web Content eXtraction Benchmark).
    articles     a checkout of scrapinghub/article-extraction-benchmark, news articles with their text: precision and
                 recall of runs of four words, as multisets, each averaged over the pages where it is defined; F1 is
                 that of the two averages.

The score of one text is a row of numbers. `rates` turns the sum of such rows, over any pages, into precision, recall
and F1, so a page, a kind, a set and a resample of a set are all scored by the same function.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from webtext.base.web.urls import registrable_domain

SETS = ("trafilatura", "wcxb", "articles")
F1 = 2
"""Place of F1 in the last axis of `rates`."""
N_RESAMPLES = 10_000
RUN = 4
_OG_TYPE = re.compile(rb"""<meta[^>]+property=["']og:type["'][^>]+content=["']([a-z]+)""", re.IGNORECASE)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a set; its main text is known in whole (`text`) or by passages, in WCXB both ways."""

    set: str
    name: str
    url: str
    kind: str
    body: bytes
    text: str | None = None
    wanted: Sequence[str] = ()
    unwanted: Sequence[str] = ()

    @property
    def domain(self) -> str:
        return registrable_domain(self.url) if "://" in self.url else self.name  # some pages have no address


def read_set(name: str, data: Path, articles: Path | None = None) -> list[Page]:
    """Return the pages of a set, sorted by name; `data` is the folder of real data, `articles` the third set's checkout."""
    if name == "articles":
        assert articles is not None, "the folder of article-extraction-benchmark is not given"
        pages = _read_articles(articles)
    else:
        pages = read_evaluation(data) if name == "trafilatura" else _read_wcxb(data)
    return sorted(pages, key=lambda page: page.name)


def read_evaluation(data: Path) -> list[Page]:
    """Return trafilatura's pages, sorted by name."""
    bodies = dict(_bodies(data / "extract/pages.tar.xz"))
    given = ((url.strip(), truth) for url, truth in json.loads(_text(data / "extract/evaldata.json")).items())
    pages = [
        Page("trafilatura", name, url, _stated_kind(bodies[name]), bodies[name], None, truth["with"], truth["without"])
        for url, truth in given
        if (name := truth["file"]) in bodies
    ]
    return sorted(pages, key=lambda page: page.name)


def _stated_kind(body: bytes) -> str:
    stated = _OG_TYPE.search(body)
    return {None: "no type stated", b"article": "article"}.get(stated and stated[1].lower(), "another type")


def _read_wcxb(data: Path) -> Iterator[Page]:
    bodies = dict(_bodies(data / "wcxb/pages.tar.xz"))
    with lzma.open(data / "wcxb/gold.jsonl.xz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            body = bodies[f"{row['id']}.html"]
            yield Page("wcxb", row["id"], row["url"], row["page_type"], body, row["text"], row["with"], row["without"])


def _read_articles(folder: Path) -> Iterator[Page]:
    for name, truth in json.loads(_text(folder / "ground-truth.json")).items():
        body = gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes())
        yield Page("articles", name, truth["url"], "article", body, truth["articleBody"])


def _bodies(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isfile():
                yield Path(member.name).name, opened.extractfile(member).read()  # type: ignore[union-attr]


def _text(path: Path) -> str:
    return path.read_text("utf-8")


def groups(pages: Sequence[Page]) -> dict[str, np.ndarray]:
    """Return a mask of the set's pages for each kind, if it has several, and for what else is counted by itself."""
    kinds = np.array([page.kind for page in pages])
    found = {kind: kinds == kind for kind in sorted(set(kinds))}
    if pages[0].set == "wcxb":
        return found | {"all but articles": kinds != "article"}
    return found if pages[0].set == "trafilatura" else {}


def score(page: Page, text: str) -> np.ndarray:
    """Return the row of numbers that a text gets by the rule of its page's set."""
    if page.set == "trafilatura":
        return np.array(count_passages(page, text), float)
    assert page.text is not None
    if page.set == "wcxb":
        return np.array([1, *_overlap(_words(text.lower()), _words(page.text.lower()))], float)
    found, wanted = _runs(text), _runs(page.text)
    precision, recall, _ = _overlap(found, wanted)
    return np.array([bool(found), bool(found) and precision, bool(wanted), bool(wanted) and recall], float)


def scores(pages: Iterable[Page], texts: Iterable[str]) -> np.ndarray:
    """Return the rows of the pages' texts."""
    return np.array([score(*pair) for pair in zip(pages, texts, strict=True)])


def rates(name: str, sums: np.ndarray) -> np.ndarray:
    """Return precision, recall and F1 (last axis) by a set's rule from sums of rows (last axis)."""
    if name == "wcxb":
        return sums[..., 1:] / sums[..., :1]
    if name == "trafilatura":
        true, unwanted, missing = np.moveaxis(sums, -1, 0)
        precision, recall = _share(true, true + unwanted), _share(true, true + missing)
    else:
        precision, recall = _share(sums[..., 1], sums[..., 0]), _share(sums[..., 3], sums[..., 2])
    return np.stack([precision, recall, _share(2 * precision * recall, precision + recall)], -1)


def difference(pages: Sequence[Page], own: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """Return how much higher F1 is by `own` rows than by `others`, and the 95 % interval over domains.

    The interval is that of a paired bootstrap: domains are drawn with replacement, each with all of its pages.
    """
    name = pages[0].set
    domains, of = np.unique([page.domain for page in pages], return_inverse=True)
    drawn = np.random.default_rng(0).multinomial(len(domains), np.full(len(domains), 1 / len(domains)), N_RESAMPLES)
    times = np.concatenate([np.ones((1, len(domains))), drawn])  # first, each domain once
    ours, theirs = (rates(name, times @ (np.eye(len(domains))[of].T @ rows))[:, F1] for rows in (own, others))
    low, high = np.quantile((ours - theirs)[1:], [0.025, 0.975])
    return float(ours[0] - theirs[0]), float(low), float(high)


def count_passages(page: Page, text: str) -> tuple[int, int, int]:
    """Return the numbers of true positives, false positives and false negatives among the page's passages."""
    text = _blanks_as_one(text)
    found = sum(_blanks_as_one(passage) in text for passage in page.wanted)
    unwanted = sum(_blanks_as_one(passage) in text for passage in page.unwanted)
    return found, unwanted, len(page.wanted) - found


def _blanks_as_one(text: str) -> str:
    return " ".join(normalize("NFC", text).split())


def _words(text: str) -> Counter[Any]:
    return Counter(_WORD.findall(text))


def _runs(text: str) -> Counter[Any]:
    """Return the runs of four words; a shorter text is one run."""
    words = _WORD.findall(text)
    return Counter(tuple(words[i : i + RUN]) for i in range(max(1, len(words) - RUN + 1)) if words)


def _overlap(found: Counter[Any], wanted: Counter[Any]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of two multisets; all are 1 if both are empty, and 0 if one is."""
    if not found or not wanted:
        return (float(found == wanted),) * 3
    n_common = (found & wanted).total()
    return n_common / found.total(), n_common / wanted.total(), 2 * n_common / (found.total() + wanted.total())


def _share(part: Any, of: Any) -> Any:
    return part / np.where(of == 0, 1, of)
