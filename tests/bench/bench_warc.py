"""Reading and writing WARC files: webtext compared with fastwarc and warcio, on pages made from Python's documentation.

    python tests/bench/bench_warc.py [N_PAGES]

Reading: each returns every response's URL, status, headers and body as sent. Writing: a response and a request record
with digests for each page; webtext also writes an index line. First the results are checked to be equal. Times are CPU
seconds of one core, the median of 5 runs in turn, with files that are already in the page cache.
"""

from __future__ import annotations

import functools
import gzip
import html
import io
import pydoc
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from arguments import positional
from fastwarc.warc import ArchiveIterator as FastwarcIterator
from fastwarc.warc import WarcRecordType
from resources import cpu_seconds_in_turn
from warcio.archiveiterator import ArchiveIterator as WarcioIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from webtext.base.archives.reader import read_responses
from webtext.base.storage import Folder
from webtext.crawl.exchange.messages import Exchange
from webtext.crawl.pages.warc_writer import WarcWriter

ASKED = [(b"Host", b"docs.example.org"), (b"User-Agent", b"bench"), (b"Accept-Encoding", b"gzip")]
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
    """Return HTML documents of 400 to 5,800 lines of documentation; their mean of 150 KB is that of web pages."""
    text = "\n".join(pydoc.render_doc(name, renderer=pydoc.plaintext) for name in MODULES.split())
    lines = [f"<p>{html.escape(line)}</p>" for line in text.splitlines() if line.strip(" |")]
    at = 0
    for number in range(n_pages):
        n_lines = 300 + number * 37 % 5200
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


def made_exchanges(n_pages: int) -> list[Exchange]:
    """Return the pages as a crawler receives them, gzipped."""
    return [
        Exchange(
            url=f"https://docs.example.org/page/{number}",
            captured=1_700_000_000,
            address="192.0.2.1",
            request=b"GET /page/%d HTTP/1.1\r\n" % number
            + b"".join(b"%s: %s\r\n" % field for field in ASKED)
            + b"\r\n",
            status=200,
            status_line=b"HTTP/1.1 200 OK",
            headers=[(b"Content-Type", b"text/html; charset=utf-8"), (b"Content-Encoding", b"gzip")],
            body=gzip.compress(body, mtime=number),
            identified_type="text/html",
        )
        for number, body in enumerate(made_pages(n_pages))
    ]


def write_by_webtext(path: Path, exchanges: list[Exchange]) -> None:
    with WarcWriter(path, path.name, {"software": "bench"}) as writer:
        for exchange in exchanges:
            writer.write(exchange)


def write_by_warcio(path: Path, exchanges: list[Exchange]) -> None:
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True, warc_version="WARC/1.1")
        for one in exchanges:
            fields = [(name.decode(), value.decode()) for name, value in one.headers]
            head = StatusAndHeaders("200 OK", fields, protocol="HTTP/1.1")
            more = {"WARC-IP-Address": one.address, "WARC-Identified-Payload-Type": one.identified_type}
            response = writer.create_warc_record(
                one.url, "response", payload=io.BytesIO(one.body), http_headers=head, warc_headers_dict=more
            )
            asked = [(name.decode(), value.decode()) for name, value in ASKED]
            line = StatusAndHeaders(
                one.url.partition("example.org")[2] + " HTTP/1.1", asked, protocol="GET", is_http_request=True
            )
            writer.write_request_response_pair(
                writer.create_warc_record(one.url, "request", http_headers=line), response
            )


def read_through(read: Callable[[Path], Iterator[Page]], path: Path) -> None:
    for _page in read(path):
        pass


def bench_reading(folder: Path, n_pages: int) -> None:
    for label, codes_bodies in (("bodies as text", False), ("bodies sent as gzip", True)):
        path = folder / "pages.warc.gz"
        write_warc(path, n_pages, codes_bodies=codes_bodies)
        pages = list(warcio(path))
        if not list(webtext(path)) == list(fastwarc(path)) == pages or len(pages) != n_pages:
            raise SystemExit("the readers do not agree")
        n_bytes = sum(len(body) for *_, body in pages)
        print(f"WARC read, {label}: {n_pages:,} pages, {n_bytes / 1e6:.1f} MB of bodies")
        runs = {name: functools.partial(read_through, read, path) for name, read in READERS.items()}
        print_rates(cpu_seconds_in_turn(runs, RUNS), n_pages, n_bytes)


def bench_writing(folder: Path, n_pages: int) -> None:
    exchanges = made_exchanges(n_pages)
    ours, theirs = folder / "ours.warc.gz", folder / "theirs.warc.gz"
    write_by_webtext(ours, exchanges)
    write_by_warcio(theirs, exchanges)
    if not list(warcio(ours)) == list(warcio(theirs)) == list(webtext(ours)):
        raise SystemExit("the writers do not agree")
    n_bytes = sum(len(exchange.body) for exchange in exchanges)
    sizes = f"{ours.stat().st_size / 1e6:.1f} MB by webtext, {theirs.stat().st_size / 1e6:.1f} MB by warcio"
    print(f"WARC written: {n_pages:,} pages, {n_bytes / 1e6:.1f} MB of gzipped bodies, {sizes}")
    runs = {"webtext": lambda: write_by_webtext(ours, exchanges), "warcio": lambda: write_by_warcio(theirs, exchanges)}

    def remove() -> None:  # otherwise the old file's memory is freed in the measured time
        for path in (ours, theirs):
            path.unlink(missing_ok=True)

    print_rates(cpu_seconds_in_turn(runs, RUNS, before=remove), n_pages, n_bytes)


def print_rates(times: dict[str, float], n_pages: int, n_bytes: int) -> None:
    for name, seconds in times.items():
        rate = f"{seconds / n_pages * 1e6:6.0f} µs per page, {n_bytes / 1e6 / seconds:6.0f} MB/s"
        print(f"  {name:<9} {rate}   webtext is {seconds / times['webtext']:.2f} times as fast")


def main(n_pages: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench_writing(Path(folder), n_pages)
        bench_reading(Path(folder), n_pages)


if __name__ == "__main__":
    main(*positional(__doc__, pages=N_PAGES))
