"""Exchanges to write, records of other crawlers, and WARC files as warcio and FastWARC read them."""

from __future__ import annotations

import gzip
from contextlib import closing
from pathlib import Path

from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from warcio.archiveiterator import ArchiveIterator

from webtext.crawl.pages.exchange import Exchange
from webtext.crawl.pages.warc_writer import Stored, WarcWriter, index_bytes

BODY = b"<html><p>Hello</p></html>"


def exchange(body: bytes = BODY, *headers: tuple[bytes, bytes], url: str = "http://example.com/a?b=c") -> Exchange:
    return Exchange(
        url=url,
        captured=1_700_000_000,
        address="8.8.8.8",
        request=b"GET /a?b=c HTTP/1.1\r\nHost: example.com\r\nUser-Agent: webtext/1\r\n\r\n",
        status=200,
        status_line=b"HTTP/1.1 200 OK",
        headers=headers or ((b"Content-Type", b"text/html; charset=utf-8"), (b"x-Odd", b"\xff kept")),
        body=body,
        identified_type="text/html",
    )


def write(path: Path, *exchanges: Exchange) -> list[Stored]:
    with closing(WarcWriter(path, "part-00000.warc.gz", {"software": "webtext/test"})) as writer:
        places = [writer.write(each) for each in exchanges]
        path.with_suffix(".cdxj").write_bytes(index_bytes(place.index_line for place in places))
    return places


def bodies_by_warcio(path: Path) -> list[bytes]:
    with open(path, "rb") as file:
        return [r.content_stream().read() for r in ArchiveIterator(file) if r.rec_type == "response"]


def bodies_by_fastwarc(path: Path) -> list[bytes]:
    with open(path, "rb") as file:
        records = FastIterator(file, record_types=WarcRecordType.response, parse_http=True, auto_decode="all")
        return [record.reader.read() for record in records]


def record(url: str, block: bytes, date: str = "2001-01-01T00:00:00Z", **more: str) -> bytes:
    """Return a response record, as a gzip member. `more` are further fields."""
    lines = {"WARC-Type": "response", "WARC-Record-ID": "<urn:x:1>", "WARC-Target-URI": url, "WARC-Date": date}
    lines |= {"Content-Type": "application/http; msgtype=response", "Content-Length": str(len(block))} | more
    head = "WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    return gzip.compress(head.encode() + block + b"\r\n\r\n")


def page(body: bytes = b"<html>", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """Return the block of a response record."""
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Content-Type: text/html", *headers, b"", body])


def revisit_record(url: str, date: str, of: str, original_date: str, digest: str, **headers: str) -> bytes:
    """Return a revisit with an identical payload, as a gzip member. `headers` (`_` for `-`) replace its own."""
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-Seen: again\r\n\r\n"
    lines = {
        "WARC-Type": "revisit",
        "WARC-Record-ID": "<urn:x:again>",
        "WARC-Target-URI": url,
        "WARC-Date": date,
        "WARC-Profile": "http://netpreserve.org/warc/1.0/revisit/identical-payload-digest",
        "WARC-Refers-To-Target-URI": of,
        "WARC-Refers-To-Date": original_date,
        "WARC-Payload-Digest": f"sha1:{digest}",
        "Content-Type": "application/http; msgtype=response",
        "Content-Length": str(len(block)),
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    head = "WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value) + "\r\n"
    return gzip.compress(head.encode() + block + b"\r\n\r\n")
