"""Extraction: F1 on trafilatura's evaluation pages, WARC -> `clean extract` -> text, compared with bare trafilatura.

    python tests/bench/bench_extract.py [DATA] [--modes] [--repeat N]

Reads DATA/extract (DATA defaults to WEBTEXT_TEST_DATA). Passages are counted as by trafilatura's own evaluation: a
wanted passage in the text is a true positive, a missing one a false negative, an unwanted passage in the text a false
positive; runs of blanks count as one. In addition we compare in NFC, because trafilatura normalises its text and we
don't. Pages are grouped by the type that they state (og:type), and into two halves by a hash of their names. Everything
that was tuned on pages was tuned on the first half. The interval is the 95 % bootstrap interval over pages of the
difference in F1 to bare trafilatura. Times are CPU seconds from body to text, all rows in turn on each page, minimum of
N rounds.
"""

from __future__ import annotations

import argparse
import io
import json
import operator
import re
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from real_data import real_data

N_RESAMPLES = 10_000
_OG_TYPE = re.compile(rb"""<meta[^>]+property=["']og:type["'][^>]+content=["']([a-z]+)""", re.IGNORECASE)
BARE = "trafilatura, default"
Extract = Callable[[bytes], str]


@dataclass(frozen=True, slots=True)
class Page:
    """An evaluation page: its origin, its wanted and unwanted passages, and its body."""

    url: str
    truth: Mapping[str, Any]
    body: bytes

    @property
    def is_held_out(self) -> bool:
        return bool(zlib.crc32(self.truth["file"].encode()) % 2)

    @property
    def kind(self) -> str:
        stated = _OG_TYPE.search(self.body)
        return {None: "no type stated", b"article": "article"}.get(stated and stated[1].lower(), "another type")


def read_pages(folder: Path) -> list[Page]:
    truth = json.loads((folder / "evaldata.json").read_text("utf-8"))
    with tarfile.open(folder / "pages.tar.xz") as archive:
        bodies = {Path(m.name).name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    given = [Page(url.strip(), entry, bodies[entry["file"]]) for url, entry in truth.items() if entry["file"] in bodies]
    return sorted(given, key=lambda page: page.truth["file"])


def count(page: Page, text: str) -> tuple[int, int, int]:
    """Return the numbers of true positives, false positives, false negatives."""
    text = _blanks_as_one(text)
    found = sum(_blanks_as_one(passage) in text for passage in page.truth["with"])
    unwanted = sum(_blanks_as_one(passage) in text for passage in page.truth["without"])
    return found, unwanted, len(page.truth["with"]) - found


def _blanks_as_one(text: str) -> str:
    return " ".join(normalize("NFC", text).split())


def f1(counts: np.ndarray) -> Any:
    """Return F1 over the last but one axis; the last axis is (true positives, false positives, false negatives)."""
    true, unwanted, missing = np.moveaxis(counts.sum(axis=-2), -1, 0)
    return 2 * true / np.maximum(1, 2 * true + unwanted + missing)


def interval(counts: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the difference in F1, resampling pages."""
    chance = np.random.default_rng(0)
    drawn = chance.integers(0, len(counts), (N_RESAMPLES, len(counts)))
    low, high = np.quantile(f1(counts[drawn]) - f1(others[drawn]), [0.025, 0.975])
    return float(low), float(high)


def by_clean_extract(pages: list[Page], **settings: Any) -> list[str]:
    """Return the texts that `webtext clean extract` extracts from a WARC file of the pages."""
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    from webtext.base.console import Console
    from webtext.base.run import Run
    from webtext.base.workers.engine import LocalEngine
    from webtext.clean.extract.body import ExtractSettings
    from webtext.clean.extract.pages import extract_documents

    with tempfile.TemporaryDirectory() as folder, LocalEngine(workers=1) as engine:
        with open(f"{folder}/pages.warc.gz", "wb") as file:
            writer = WARCWriter(file, gzip=True)
            for page in pages:
                head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
                body = io.BytesIO(page.body)
                writer.write_record(writer.create_warc_record(page.url, "response", body, http_headers=head))
        run = Run(engine, Console("quiet"))
        given, out = [f"{folder}/pages.warc.gz"], f"{folder}/documents"
        documents = extract_documents(given, out, ExtractSettings(**settings), run)
        texts = dict.fromkeys((page.url for page in pages), "")
        for index in range(len(documents.parts)):
            texts.update((row["url"], row["text"]) for row in documents.table(index).to_pylist())
        return [texts[page.url] for page in pages]


def ours(body: bytes, **settings: Any) -> str:
    """Extract one body as `clean extract` does."""
    from webtext.clean.extract.body import ExtractSettings, extract_body

    return getattr(extract_body(body, "text/html", ExtractSettings(**settings)), "text", "")


def before_lead(body: bytes) -> str:
    """Extract one body without restoring the lead."""
    from webtext.clean.extract.cascade import main_text
    from webtext.clean.extract.charset import decode
    from webtext.clean.extract.html import parse

    html = decode(body, "text/html")
    tree = parse(html)
    return "" if tree is None else _blanks_as_one(main_text(tree, html))


def bare(body: bytes, **options: Any) -> str:
    import trafilatura

    return trafilatura.extract(body, **options) or ""


def measure(
    pages: list[Page], rows: Mapping[str, Extract], n_rounds: int
) -> tuple[dict[str, list[str]], dict[str, float]]:
    """Return the texts of each row, and its CPU seconds."""
    texts: dict[str, list[str]] = {name: [] for name in rows}
    seconds = dict.fromkeys(rows, 0.0)
    for page in pages:  # page by page, so that other load on the machine affects all rows
        for name, extract in rows.items():
            taken = []
            for _ in range(n_rounds):
                started = time.process_time()
                text = extract(page.body)
                taken.append(time.process_time() - started)
            texts[name].append(text)
            seconds[name] += min(taken)
    return texts, seconds


def print_table(pages: list[Page], texts: Mapping[str, list[str]]) -> None:
    counts = {name: np.array([count(*pair) for pair in zip(pages, of, strict=True)]) for name, of in texts.items()}
    held_out = np.array([page.is_held_out for page in pages])
    kinds = sorted({page.kind for page in pages})
    of_kind = {kind: np.array([page.kind == kind for page in pages]) for kind in kinds}
    header = [f"{kind} ({mask.sum()})" for kind, mask in of_kind.items()]
    print(
        f"{'':30} {'P':>6} {'R':>6} {'F1':>6}  {'difference, interval':22}  {'held-out pages':22}  F1 of {', '.join(header)}"
    )
    for name, own in counts.items():
        true, unwanted, missing = own.sum(axis=0)
        cells = []
        for mask in (np.ones(len(pages), bool), held_out):
            low, high = interval(own[mask], counts[BARE][mask])
            cells.append(f"{f1(own[mask]) - f1(counts[BARE][mask]):+.4f} {low:+.4f}…{high:+.4f}")
        of_kinds = " ".join(f"{f1(own[mask]):.4f}" for mask in of_kind.values())
        print(
            f"{name:30} {true / (true + unwanted):.4f} {true / (true + missing):.4f} {f1(own):.4f}  "
            f"{cells[0]:22}  {cells[1]:22}  {of_kinds}"
        )


def main() -> None:
    """Print both tables."""
    import logging

    from webtext.clean.extract.body import EXTRACTORS

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--modes", action="store_true", help="also measure trafilatura's other modes")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="rounds of timing")
    arguments = parser.parse_args()
    pages = read_pages(real_data(arguments.data) / "extract")
    rows: dict[str, Extract] = {f"webtext, {name}": partial(ours, extractor=name) for name in EXTRACTORS}
    rows |= {BARE: bare, "trafilatura, no comments": partial(bare, include_comments=False)}
    if arguments.modes:
        modes: dict[str, dict[str, bool]] = {
            "precision": {"favor_precision": True},
            "recall": {"favor_recall": True},
            "fast": {"fast": True},
        }
        rows |= {f"trafilatura, {name}": partial(bare, include_comments=False, **mode) for name, mode in modes.items()}
    print(f"{len(pages)} pages, {sum(page.is_held_out for page in pages)} of them held out")
    texts, seconds = measure(pages, rows, arguments.repeat)
    for name in EXTRACTORS:
        through_warc = by_clean_extract(pages, extractor=name)
        n_other = sum(one != other for one, other in zip(through_warc, texts[f"webtext, {name}"], strict=True))
        assert n_other == 0, f"{n_other} texts differ after the way through a WARC file"
    print_table(pages, texts)
    without_lead = map(before_lead, (page.body for page in pages))
    same = sum(map(operator.eq, without_lead, map(_blanks_as_one, texts["trafilatura, no comments"])))
    print(f"webtext, trafilatura: without the lead, equal to trafilatura without comments on {same} pages")
    for name, taken in seconds.items():
        ratio = seconds[BARE] / taken
        print(f"{name:30} {len(pages) / taken:4.0f} pages per CPU second, {ratio:.2f} times {BARE}")


if __name__ == "__main__":
    main()
