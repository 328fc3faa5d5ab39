"""The viewer's times on a million generated documents, by column and by text, and the report's time, memory and size.

    python tests/bench/bench_view.py [--documents 1000000] [--runs 5] [--work FOLDER]

The documents have some 20 random words; one contains the word that is searched. Times are those of whole answers over HTTP on
loopback, medians of the runs after one that isn't counted. Results are compared with what was generated first.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa

from webtext.app.reports.report import write_report
from webtext.app.view.server import Viewer
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import SIGNALS

ROWS_PER_PART = 50_000
WORDS = [f"word{n}" for n in range(5000)]
NEEDLE = "needleinhaystack"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=Path, help="folder of the generated build; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = options.work or Path(temporary)
        if not (root / "documents/manifest.json").exists():
            generate(root, options.documents)
        with Viewer(str(root)) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                measure(server, options.documents, options.runs)
            finally:
                server.shutdown()
                thread.join()
        report(root)


def generate(root: Path, n: int) -> None:
    """Write the documents, their signals, the decisions on every tenth, and the others as a corpus by Gopher's rules."""
    rng = np.random.default_rng(0)
    recipe = Recipe(stage="bench", code_version=1, settings={"rules": {"profile": "gopher", "rule": []}})
    kinds = ("documents", "dropped", "signals", "corpus")
    writers = {name: SetWriter(str(root / name), name, recipe) for name in kinds}
    parts: dict[str, list[Any]] = {name: [] for name in kinds}
    for index, first in enumerate(range(0, n, ROWS_PER_PART)):
        numbers = range(first, min(first + ROWS_PER_PART, n))
        words = rng.integers(len(WORDS), size=(len(numbers), 20))
        rows = [
            row(number, " ".join(WORDS[word] for word in some)) for number, some in zip(numbers, words, strict=True)
        ]
        gone = [{"id": each["id"], "url": each["url"], "stage": "filter", "reason": f"reason_{number % 7}", "value": 1.0, "threshold": 2.0, "duplicate_of": rows[number * 7 % 40]["id"] if number % 3 else None, "request": None, "text_start": each["text"][:200]} for number, each in zip(numbers, rows, strict=True) if number % 10 == 0]  # fmt: skip # noqa: E501
        values = rng.random((len(rows), len(SIGNALS.names)))
        signals = [signals_of(each["id"], some.tolist()) for each, some in zip(rows, values, strict=True)]
        kept = [each for number, each in zip(numbers, rows, strict=True) if number % 10]
        for name, content in zip(kinds, (rows, gone, signals, kept), strict=True):
            with writers[name].part(index, key=str(index)) as part:
                part.counts.keep(len(content))
                part.write(content)
                parts[name].append(part.publish())
    for name, writer in writers.items():
        writer.seal(parts[name])


def signals_of(identifier: str, values: list[float]) -> dict[str, Any]:
    """Return a row of signals: shares from 0 to 1, counts up to 1000."""
    row: dict[str, Any] = {
        field.name: int(1000 * value) if pa.types.is_integer(field.type) else value
        for field, value in zip(SIGNALS, values, strict=True)
    }
    return row | {field.name: "" for field in SIGNALS if pa.types.is_string(field.type)} | {"id": identifier}


def row(number: int, text: str) -> dict[str, Any]:
    text += f" {NEEDLE}" * (number == 333_333)
    url = f"http://d{number % 997}.example/{number}"
    return {
        "id": f"{number * 2654435761 % 2**128:032x}", "link_ids": [], "url": url, "text": text, "text_digest": f"{number:032x}",
        "title": f"Page {number}", "author": None, "published": None, "date": 1_500_000_000 + number, "posts": [],
        "domain": f"d{number % 997}.example", "page_kind": "article", "language": ("en", "de", "fr")[number % 3],
        "language_score": 0.9, "karma": number * 7919 % 100_003, "split": "train",
        "warc_file": None, "warc_offset": None, "warc_length": None,
    }  # fmt: skip


def measure(server: Viewer, n: int, runs: int) -> None:
    """Print the seconds until the first hit and until the whole answer."""
    queries = {
        "one domain": ({"domain": "d5.example"}, lambda number: number % 997 == 5),
        "language and karma": (
            {"language": "de", "min_karma": "90000"},
            lambda x: x % 3 == 1 and x * 7919 % 100_003 >= 90_000,
        ),
        "no filter, by karma": ({}, lambda number: True),
        "decisions, one reason": ({"set": "dropped", "reason": "reason_3"}, lambda x: x % 10 == 0 and x % 7 == 3),
        "decisions, reason and domain": (
            {"set": "dropped", "reason": "reason_3", "domain": "d5.example"},
            lambda x: x % 10 == 0 and x % 7 == 3 and x % 997 == 5,
        ),
        "text, a frequent word": ({"text": "word77 "}, lambda number: True),
        "text, one hit": ({"text": NEEDLE}, lambda number: number == 333_333),
    }
    print(f"| {n:,} documents | first hit, ms | whole answer, ms |\n|---|---|---|")
    for name, (values, test) in queries.items():
        times = []
        for _ in range(runs + 1):
            found, *seconds = asked(server, values)
            assert all(test(number) for number in found), name
            assert len(found) == min(50, sum(map(test, range(n)))), name
            times.append(seconds)
        first, whole = (1000 * statistics.median(each) for each in zip(*times[1:], strict=True))
        print(f"| {name} | {first:,.0f} | {whole:,.0f} |", flush=True)


def report(root: Path) -> None:
    """Print what the report of the same build takes, in a process of its own."""
    before = time.perf_counter()
    child = os.fork()
    if child == 0:
        write_report(str(root))
        os._exit(0)
    _, status, used = os.wait4(child, 0)
    assert status == 0
    seconds = time.perf_counter() - before
    sizes = ", ".join(f"{name} {(root / name).stat().st_size / 1e6:.2f} MB" for name in ("report.html", "report.json"))
    print(
        f"report: {seconds:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU, {used.ru_maxrss / 1024:,.0f} MiB; {sizes}"
    )


def asked(server: Viewer, values: dict[str, str]) -> tuple[list[int], float, float]:
    """Return the numbers of the documents found, the seconds until the first, and until the end."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    started = time.perf_counter()
    connection.request("GET", f"/search?{urlencode(values)}", headers={"Cookie": f"{server.cookie}={server.token}"})
    answer = connection.getresponse()
    text, first = b"", None
    while piece := answer.read1(1 << 16):
        text += piece
        if first is None and b"<li>" in text:
            first = time.perf_counter() - started
    whole = time.perf_counter() - started
    connection.close()
    found = re.findall(rb"<li><a[^>]*><bdi>(?:Page |http://[^/]*/)(\d+)<", text)
    return [int(number) for number in found], first or whole, whole


if __name__ == "__main__":
    main()
