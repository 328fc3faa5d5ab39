"""Reading WARC files: webtext beside fastwarc alone and warcio, on pages made of the standard library's documentation.

    python tests/bench/bench_warc.py [N_PAGES]

All three give every response's URL, status, headers and body as sent; that these are equal is checked first. Times are
CPU seconds of one core, the median of 5 runs in turn, over a file that is in memory already.
"""

from __future__ import annotations

import gzip
import html
import io
import pydoc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fastwarc.warc import ArchiveIterator as FastwarcIterator
from fastwarc.warc import WarcRecordType
from warcio.archiveiterator import ArchiveIterator as WarcioIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from webtext.base.storage import Folder
from webtext.base.warc import read_responses

MODULES = """
argparse ast asyncio collections csv datetime decimal difflib email http.client inspect json logging os pathlib random re
socket sqlite3 statistics string subprocess tarfile threading typing unittest urllib.request zipfile
"""
N_PAGES, RUNS = 2000, 5

Page = tuple[str, int, dict[str, str], bytes]
"""URL, status, headers, body as sent."""


def webtext(path: Path) -> Iterator[Page]:
    for found in read_responses(Folder(path.parent), path.name):
        yield found.url, found.status or 0, dict(found.http_headers.fields), found.raw


def fastwarc(path: Path) -> Iterator[Page]:
    with path.open("rb") as file:
        for record in FastwarcIterator(file, record_types=WarcRecordType.response):
            headers = record.http_headers
            yield record.headers["WARC-Target-URI"], headers.status_code or 0, dict(headers), record.reader.read()


def warcio(path: Path) -> Iterator[Page]:
    with path.open("rb") as file:
        for record in WarcioIterator(file):
            if record.rec_type == "response":
                headers = record.http_headers
                url = record.rec_headers.get_header("WARC-Target-URI")
                yield url, int(headers.get_statuscode()), dict(headers.headers), record.raw_stream.read()


READERS: dict[str, Callable[[Path], Iterator[Page]]] = {"webtext": webtext, "fastwarc": fastwarc, "warcio": warcio}


def made_pages(n_pages: int) -> Iterator[bytes]:
    """HTML documents of 100 to 1,900 lines of rendered documentation."""
    text = "\n".join(pydoc.render_doc(name, renderer=pydoc.plaintext) for name in MODULES.split())
    lines = [f"<p>{html.escape(line)}</p>" for line in text.splitlines() if line.strip(" |")]
    at = 0
    for number in range(n_pages):
        n_lines = 100 + number * 37 % 1800
        taken = "\n".join(lines[(at + i) % len(lines)] for i in range(n_lines))
        at += n_lines
        yield f"<!doctype html><html><head><title>Page {number}</title></head><body>{taken}</body></html>".encode()


def write_warc(path: Path, n_pages: int, *, codes_bodies: bool) -> None:
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number, body in enumerate(made_pages(n_pages)):
            fields = [("Content-Type", "text/html; charset=utf-8"), ("Server", "nginx"), ("Vary", "Accept-Encoding")]
            if codes_bodies:
                body = gzip.compress(body, mtime=0)
                fields.append(("Content-Encoding", "gzip"))
            fields.append(("Content-Length", str(len(body))))
            head = StatusAndHeaders("200 OK", fields, protocol="HTTP/1.1")
            url = f"https://docs.example.org/page/{number}"
            writer.write_record(writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=head))


def cpu_seconds(path: Path) -> dict[str, float]:
    """Each reader's, round by round, so that what else the machine does falls on all."""
    times: dict[str, list[float]] = {name: [] for name in READERS}
    for _ in range(RUNS):
        for name, read in READERS.items():
            start = time.process_time()
            for _page in read(path):
                pass
            times[name].append(time.process_time() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main(n_pages: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for label, codes_bodies in (("bodies as text", False), ("bodies sent as gzip", True)):
            path = Path(folder) / "pages.warc.gz"
            write_warc(path, n_pages, codes_bodies=codes_bodies)
            pages = list(warcio(path))
            if not list(webtext(path)) == list(fastwarc(path)) == pages or len(pages) != n_pages:
                raise SystemExit("the readers do not agree")
            megabytes = sum(len(body) for *_, body in pages) / 1e6
            print(
                f"{label}: {n_pages:,} pages, {megabytes:.1f} MB of bodies, {path.stat().st_size / 1e6:.1f} MB of WARC"
            )
            times = cpu_seconds(path)
            for name, seconds in times.items():
                rate = f"{seconds / n_pages * 1e6:6.0f} µs a page, {megabytes / seconds:6.0f} MB/s"
                print(f"  {name:<9} {rate}   webtext takes {times['webtext'] / seconds:.2f} of its time")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else N_PAGES)
