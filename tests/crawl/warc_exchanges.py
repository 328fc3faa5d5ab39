"""Exchanges to write, and WARC files as warcio and FastWARC read them."""

from __future__ import annotations

from pathlib import Path

from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from warcio.archiveiterator import ArchiveIterator

from webtext.crawl.exchange.messages import Exchange
from webtext.crawl.pages.cdxj import index_bytes
from webtext.crawl.pages.warc_writer import Stored, WarcWriter

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
    with WarcWriter(path, "part-00000.warc.gz", {"software": "webtext/test"}) as writer:
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
