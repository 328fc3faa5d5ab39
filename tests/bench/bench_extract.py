"""F1 of extraction on trafilatura's evaluation pages, by their own counting rule, beside trafilatura called bare.

    python tests/bench/bench_extract.py [DATA] [--modes]

Reads DATA/extract (DATA: else WEBTEXT_TEST_DATA); with --modes also runs trafilatura's other modes. A wanted passage
that is in the text is a true positive, one that is missing a false negative; an unwanted passage that is in the text is
a false positive. Texts and passages are compared in NFC, which trafilatura makes of its text and we do not.
"""

from __future__ import annotations

import argparse
import json
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import normalize

from real_data import real_data


def pages(folder: Path) -> list[tuple[dict[str, Any], bytes]]:
    """(wanted and unwanted passages, body) of every page."""
    passages = {entry["file"]: entry for entry in json.loads((folder / "evaldata.json").read_text("utf-8")).values()}
    with tarfile.open(folder / "pages.tar.xz") as archive:
        bodies = {Path(m.name).name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    return [(passages[name], bodies[name]) for name in sorted(passages) if name in bodies]


def score(texts: list[str], truth: list[dict[str, Any]]) -> dict[str, float]:
    """Precision, recall and F1 over passages."""
    found = missing = unwanted = 0
    for text, entry in zip((normalize("NFC", text) for text in texts), truth, strict=True):
        present = sum(normalize("NFC", passage) in text for passage in entry["with"])
        found, missing = found + present, missing + len(entry["with"]) - present
        unwanted += sum(normalize("NFC", passage) in text for passage in entry["without"])
    precision, recall = found / max(1, found + unwanted), found / max(1, found + missing)
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / (precision + recall)}


def ours(body: bytes) -> str:
    """The text of a document as `clean extract` makes it, language and hashes included."""
    from webtext.clean.extract.body import ExtractSettings, extract_body

    extracted = extract_body(body, "text/html", ExtractSettings())
    return getattr(extracted, "text", "")


def bare(**options: Any) -> Callable[[bytes], str]:
    """trafilatura.extract with these options."""

    def extract(body: bytes) -> str:
        import trafilatura

        return trafilatura.extract(body, **options) or ""

    return extract


def main() -> None:
    """Print the table."""
    import logging

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--modes", action="store_true", help="trafilatura's other modes too")
    arguments = parser.parse_args()
    given = pages(real_data(arguments.data) / "extract")
    rows = {
        "webtext clean extract": ours,
        "trafilatura, default": bare(),
        "trafilatura, no comments": bare(include_comments=False),
    }
    if arguments.modes:
        rows |= {
            "trafilatura, precision": bare(favor_precision=True, include_comments=False),
            "trafilatura, recall": bare(favor_recall=True, include_comments=False),
            "trafilatura, fast": bare(fast=True, include_comments=False),
        }
    print(f"{len(given)} pages")
    texts: dict[str, list[str]] = {name: [] for name in rows}
    seconds = dict.fromkeys(rows, 0.0)
    for _, body in given:  # page by page, so that what else the machine does falls on all
        for name, extract in rows.items():
            started = time.process_time()
            texts[name].append(extract(body))
            seconds[name] += time.process_time() - started
    for name, taken in seconds.items():
        result = " ".join(
            f"{key} {value:.4f}" for key, value in score(texts[name], [truth for truth, _ in given]).items()
        )
        times = taken / seconds["webtext clean extract"]
        print(f"{name:28} {result}  {len(given) / taken:.0f} pages a CPU second, webtext {times:.2f} times as fast")


if __name__ == "__main__":
    main()
