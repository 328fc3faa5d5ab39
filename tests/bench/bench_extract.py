"""Extraction: precision, recall, F1 and speed on three sets of pages, compared with trafilatura and resiliparse.

    python tests/bench/bench_extract.py [DATA] [--article-benchmark FOLDER] [--only SET] [--repeat N] [--texts NAME=FILE]
    python tests/bench/bench_extract.py --pages FOLDER [--repeat N]

The sets and their rules are described in `extraction_sets.py`: trafilatura's pages (DATA/extract), WCXB (DATA/wcxb; DATA
defaults to WEBTEXT_TEST_DATA), and the articles of a checkout of scrapinghub/article-extraction-benchmark, which is
left out if no folder is given. FILE has texts made elsewhere, such as those of a model that hasn't seen a page's domain:
JSON lines with `set` (trafilatura, wcxb, articles), `page` (the file's name in trafilatura's set, elsewhere the id)
and `text`.

Printed in Markdown, for each set: every row's figures, then F1 by kind of page, as the page states it (og:type) or WCXB
does. Brackets have the 95 % bootstrap interval of the difference in F1 to trafilatura without comments, resampling
domains. The model of our extractor has learned from the first two sets: what it does on other sites is shown there by the
texts that `tests/learn/extractor.py --texts FILE` writes. Times are CPU seconds from body to text, all rows in turn on
each page, minimum of N rounds. Memory is by how much a fresh process of each row grows: libraries, models and the largest
page. `--pages` measures both, and nothing else, on a folder's HTML files. Texts of `clean extract` on a WARC file of the
pages must be the same as those timed.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from arguments import parser
from extraction_sets import F1, SETS, Page, count_passages, difference, groups, rates, read_set, scores
from real_data import real_data
from resources import grown_mib

BARE = "trafilatura, no comments"
TRAFILATURA: dict[str, dict[str, bool]] = {
    BARE: {"include_comments": False},
    "trafilatura, default": {},
    "trafilatura, precision": {"include_comments": False, "favor_precision": True},
    "trafilatura, fast": {"include_comments": False, "fast": True},
}
OPT_OUTS = ("obey_content_signal", "obey_tdm_reservation", "obey_noai", "obey_noindex")
Extract = Callable[[bytes], str]


def rows() -> dict[str, Extract]:
    """Return the extractors by name: ours by its settings, the default first, and the peers."""
    from webtext.clean.extract.body import EXTRACTORS, ExtractSettings

    default = ExtractSettings().extractor
    names = [default, *(name for name in EXTRACTORS if name != default)]
    ours_by_name: dict[str, Extract] = {f"webtext, {name}": partial(ours, extractor=name) for name in names}
    theirs: dict[str, Extract] = {name: partial(bare, **options) for name, options in TRAFILATURA.items()}
    return ours_by_name | theirs | {"resiliparse": bare_resiliparse}


def ours(body: bytes, **settings: Any) -> str:
    """Extract one body as `clean extract` does."""
    from webtext.clean.extract.body import ExtractSettings, extract_body

    return getattr(extract_body(body, "text/html", ExtractSettings(**settings)), "text", "")


def bare(body: bytes, **options: Any) -> str:
    import trafilatura

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    return trafilatura.extract(body, **options) or ""


def bare_resiliparse(body: bytes) -> str:
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import detect_encoding
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse_from_bytes(body, detect_encoding(body))
    return extract_plain_text(tree, main_content=True, preserve_formatting=True)


def count_opinions(pages: Sequence[Page], own: Sequence[str], fused: Sequence[str]) -> str:
    """Say how often trafilatura was asked for its opinion, failed, and changed our text."""
    from webtext.clean.extract import html

    answers, ask = [], html.second_opinion

    def counted(tree: Any) -> str | None:
        answers.append(ask(tree))
        return answers[-1]

    html.second_opinion = counted
    for page in pages:
        ours(page.body)
    html.second_opinion = ask
    n_changed = sum(one != other for one, other in zip(own, fused, strict=True))
    n_failed = sum(answer is None for answer in answers)
    return (
        f"trafilatura was asked about {len(answers)} of {len(pages)} pages, failed on {n_failed}, changed {n_changed}"
    )


def by_clean_extract(pages: Sequence[Page], **settings: Any) -> list[str]:
    """Return the texts that `webtext clean extract` extracts from a WARC file of the pages."""
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    from webtext.base.console import Console
    from webtext.base.run import Run
    from webtext.base.workers.local_engine import LocalEngine
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


def measure(
    pages: Sequence[Page], rows: Mapping[str, Extract], n_rounds: int
) -> tuple[dict[str, list[str]], dict[str, float]]:
    """Return the texts of each row, and its CPU seconds."""
    for extract in rows.values():
        extract(pages[0].body)  # imports
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


def texts_made_elsewhere(file: Path, pages: Sequence[Page]) -> list[str] | None:
    """Return the file's texts of a set's pages; None if it has no page of the set."""
    found = {(row["set"], row["page"]): row["text"] for row in map(json.loads, file.open(encoding="utf-8"))}
    named = [(page.set, page.name) for page in pages]
    if not any(name in found for name in named):
        return None
    missing = [name for _, name in filter(lambda name: name not in found, named)]
    if missing:
        raise SystemExit(
            f"'{file}' has no text of {len(missing)} pages of the set {pages[0].set}, the first: {missing[0]}"
        )
    return [found[name] for name in named]


def check_by_command(pages: Sequence[Page], texts: Mapping[str, list[str]]) -> None:
    """Compare our texts with those of the command; opt-outs don't matter here."""
    for name in texts:
        if name.startswith("webtext, "):
            extractor = name.removeprefix("webtext, ")
            through_warc = by_clean_extract(pages, extractor=extractor, **dict.fromkeys(OPT_OUTS, False))
            n_other = sum(one != other for one, other in zip(through_warc, texts[name], strict=True))
            assert n_other == 0, f"{n_other} texts of {name} differ after the way through a WARC file"


def print_set(pages: Sequence[Page], texts: Mapping[str, list[str]], seconds: Mapping[str, float]) -> None:
    """Print the tables of a set: all pages, and by kind."""
    name, n = pages[0].set, len(pages)
    found = {row: scores(pages, of) for row, of in texts.items()}
    has_both_ways = pages[0].text is not None and any(page.wanted for page in pages)
    print(f"\n### {name}: {n} pages of {len({page.domain for page in pages})} domains\n")
    head = ["", "precision", "recall", "F1", "difference", "pages per CPU second"]
    head += ["wanted passages", "unwanted"] if has_both_ways else []
    print_row(head)
    print_row(["---"] * len(head))
    for row, own in found.items():
        cells = [row, *(f"{rate:.4f}" for rate in rates(name, own.sum(0)))]
        cells.append(_signed(*difference(pages, own, found[BARE])) if row != BARE else "")
        cells.append(f"{n / seconds[row]:.0f}" if row in seconds else "")
        if has_both_ways:
            true, unwanted, missing = np.sum([count_passages(*pair) for pair in zip(pages, texts[row], strict=True)], 0)
            n_unwanted = sum(len(page.unwanted) for page in pages)
            cells += [f"{100 * true / (true + missing):.1f} %", f"{100 * unwanted / n_unwanted:.1f} %"]
        print_row(cells)
    head, *lines = by_kind(pages, found)
    if lines:
        print()
        print_row(head)
        print_row(["---"] * len(head))
        for cells in lines:
            print_row(cells)


def by_kind(pages: Sequence[Page], found: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Return a table of F1 by kind of page, from each row's scores; only its head if all pages are of one kind."""
    name, kinds = pages[0].set, groups(pages)
    lines = [[f"F1 of {name}", *(f"{kind} ({mask.sum()})" for kind, mask in kinds.items())]]
    for row, own in found.items() if kinds else ():
        lines.append([row])
        for mask in kinds.values():
            some = [page for page, is_of_kind in zip(pages, mask, strict=True) if is_of_kind]
            brackets = _interval(*difference(some, own[mask], found[BARE][mask])) if row != BARE else ""
            lines[-1].append(f"{rates(name, own[mask].sum(0))[F1]:.4f}{brackets}")
    return lines


def _signed(mean: float, low: float, high: float) -> str:
    return f"{mean:+.4f}{_interval(mean, low, high)}"


def _interval(_: float, low: float, high: float) -> str:
    return f" [{low:+.4f}, {high:+.4f}]"


def print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the tables."""
    arguments = parser(__doc__)
    arguments.add_argument("data", nargs="?", help="folder of real data; default: WEBTEXT_TEST_DATA")
    arguments.add_argument("--article-benchmark", type=Path, metavar="FOLDER", help="article-extraction-benchmark")
    arguments.add_argument("--only", action="append", choices=SETS, help="a set to measure; may be repeated")
    arguments.add_argument("--repeat", type=int, default=1, metavar="N", help="rounds of timing; default: 1")
    arguments.add_argument(
        "--texts", action="append", default=[], metavar="NAME=FILE", help="a row of texts made elsewhere"
    )
    arguments.add_argument("--pages", type=Path, metavar="FOLDER", help="HTML files, of which only speed is measured")
    given = arguments.parse_args()
    extractors, totals = rows(), dict.fromkeys(rows(), 0.0)
    sets = [read_files(given.pages)] if given.pages else list(read_sets(given))
    every = [page for pages in sets for page in pages]
    memory = {name: grown_mib(partial(extract_all, every, extract)) for name, extract in extractors.items()}
    for pages in sets:
        texts, seconds = measure(pages, extractors, given.repeat)
        totals = {row: total + seconds[row] for row, total in totals.items()}
        if not given.pages:
            report(pages, texts, seconds, given.texts)
    print(f"\n### Speed: {len(every)} pages\n")
    print_row(["", "pages per CPU second", f"times {BARE}", "memory, MiB"])
    print_row(["---"] * 4)
    for row, taken in totals.items():
        print_row([row, f"{len(every) / taken:.1f}", f"{totals[BARE] / taken:.2f}", f"{memory[row]:.0f}"])


def read_files(folder: Path) -> list[Page]:
    """Return the pages of a folder, by name."""
    return [Page("files", path.name, "", "", path.read_bytes()) for path in sorted(folder.glob("*.html"))]


def read_sets(given: argparse.Namespace) -> Iterator[list[Page]]:
    """Yield the pages of each set that is measured."""
    data = real_data(given.data)
    for name in given.only or SETS:
        if name == "articles" and given.article_benchmark is None:
            print("\narticles: left out, because --article-benchmark isn't given")
        else:
            yield read_set(name, data, given.article_benchmark)


def extract_all(pages: Sequence[Page], extract: Extract) -> None:
    for page in pages:
        extract(page.body)


def report(
    pages: Sequence[Page], texts: dict[str, list[str]], seconds: Mapping[str, float], elsewhere: Sequence[str]
) -> None:
    """Check our texts of a set, and print the tables of all, and of texts that were made elsewhere."""
    check_by_command(pages, texts)
    named = (each.partition("=") for each in elsewhere)
    made = {title: texts_made_elsewhere(Path(file), pages) for title, _, file in named}
    texts = {title: of for title, of in made.items() if of is not None} | texts
    print_set(pages, texts, seconds)
    print("\n" + count_opinions(pages, texts["webtext, blocks"], texts["webtext, fused"]))


if __name__ == "__main__":
    main()
