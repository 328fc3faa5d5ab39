"""A small Common Crawl on loopback: WARC files, their columnar index, and a host that serves ranges of them."""

from __future__ import annotations

import base64
import calendar
import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from warc_exchanges import revisit_record

from webtext.crawl.pages.exchange import Exchange
from webtext.crawl.pages.surt import surt
from webtext.crawl.pages.warc_writer import WarcWriter

FILE = "crawl-data/CC-MAIN-2017-51/segments/1/warc/CC-MAIN-00000.warc.gz"
SCHEMA = pa.schema(  # of cc-index-table, the columns that are read and the host
    [(name, pa.string()) for name in ("url_surtkey", "url", "url_host_name", "content_digest", "content_mime_detected")]
    + [("content_truncated", pa.string()), ("warc_filename", pa.string())]
    + [("fetch_time", pa.timestamp("ms")), ("fetch_status", pa.int16())]
    + [("warc_record_offset", pa.int32()), ("warc_record_length", pa.int32())]
)
ARCHIVE = 8  # the host of the file server; the others are living sites


def seconds(date: str) -> int:
    return calendar.timegm(time.strptime(date, "%Y-%m-%d"))


class LocalCommonCrawl:
    """WARC files, their index, and a host that serves ranges of them."""

    def __init__(self, web: Any, folder: Path, crawl: Any = None) -> None:
        self.web, self._crawl = web, crawl
        self.folder = folder
        self.ranges: list[tuple[int, int]] = []
        self._web_answer = web.answer
        self._rows: list[dict[str, Any]] = []
        self._n_indexed = 0
        self._path = folder / "data" / FILE
        self._path.parent.mkdir(parents=True)
        self._writer = WarcWriter(self._path, "x.warc.gz", {"software": "test"})
        web.answer = self.answer
        self.settings = {
            "sources": ("common-crawl",),
            "cc_index": (str(folder / "index"),),
            "cc_data": web.url("", ARCHIVE),
            "archive_delay": 0.0,
        }

    def crawl(self, urls: Sequence[str], out: str = "pages", **changes: Any) -> Any:
        """Write the index if it isn't, and crawl these links with this archive as the only source. Returns the rows by URL."""
        if self._n_indexed != len(self._rows):
            self.write_index()
        return self._crawl(urls, out, **self.settings | changes)

    def page(self, url: str, date: str = "2017-12-01", body: bytes = b"", **columns: Any) -> None:
        """Add a record and its row. `columns` replace the row's values."""
        body = body or f"<html>{url} {date} {len(self._rows)}</html>".encode()
        self._exchange(url, date, body, b"200 OK", (b"Content-Type", b"text/html"), **columns)

    def redirect(self, url: str, to: str, date: str = "2017-12-01", **columns: Any) -> None:
        """Add a captured redirect, whose row goes to the subset 'crawldiagnostics'."""
        location = [(b"Location", to.encode())] if to else []
        self._exchange(url, date, b"moved", b"302 Found", *location, **{"fetch_status": 302} | columns)

    def revisit(self, url: str, of: str, body: bytes, date: str, original_date: str, **headers: str) -> None:
        """Add a revisit as other crawlers write it (without file and offset) and its row. `headers` replace its own."""
        digest = base64.b32encode(hashlib.sha1(body).digest()).decode()
        member = revisit_record(url, f"{date}T00:00:00Z", of, f"{original_date}T00:00:00Z", digest, **headers)
        offset = self._writer.n_bytes
        self._writer._write([member])
        self.row(url, date, offset, len(member), body, content_mime_detected="warc/revisit")

    def _exchange(
        self, url: str, date: str, body: bytes, status: bytes, *headers: tuple[bytes, bytes], **columns: Any
    ) -> None:
        exchange = Exchange(
            url=url,
            captured=seconds(date),
            status=int(status[:3]),
            status_line=b"HTTP/1.1 " + status,
            headers=[*headers, (b"Content-Length", str(len(body)).encode())],
            body=body,
            identified_type="text/html",
        )
        place = self._writer.write(exchange)
        self._writer._originals.clear()  # Common Crawl stores every body, not revisits
        self.row(url, date, place.offset, place.length, body, **columns)

    def row(self, url: str, date: str, offset: int, length: int, body: bytes, **columns: Any) -> None:
        row = dict.fromkeys(SCHEMA.names)
        row |= {
            "url_surtkey": surt(url),
            "url": url,
            "url_host_name": "host",
            "fetch_time": seconds(date) * 1000,
            "fetch_status": 200,
            "content_digest": base64.b32encode(hashlib.sha1(body).digest()).decode(),
            "content_mime_detected": "text/html",
            "warc_filename": FILE,
            "warc_record_offset": offset,
            "warc_record_length": length,
        }
        self._rows.append(row | columns)

    def write_index(
        self, row_group_size: int = 1000, name: str = "crawl=CC-MAIN-2017-51/subset=warc/part-0.parquet"
    ) -> None:
        self._n_indexed = len(self._rows)
        rows = sorted(self._rows, key=lambda row: row["url_surtkey"])
        parts: dict[str, list[dict[str, Any]]] = {name: []}
        for row in rows:
            subset = "robotstxt" if row["url"].endswith("/robots.txt") else "warc"
            subset = subset if row["fetch_status"] == 200 else "crawldiagnostics"
            parts.setdefault(name.replace("subset=warc", f"subset={subset}"), []).append(row)
        for part_name, part in parts.items():
            path = self.folder / "index" / part_name
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(part, SCHEMA), path, row_group_size=row_group_size)

    def answer(self, host: str, path: str) -> Any:
        if path != f"/{FILE}":
            return self._web_answer(host, path)
        data = self._path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.web.requests[-1].headers["range"])
        assert asked
        start, end = int(asked[1]), int(asked[2]) + 1
        self.ranges.append((start, end))
        if start >= len(data):
            return b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n"
        part = data[start:end]
        head = f"Content-Range: bytes {start}-{start + len(part) - 1}/{len(data)}\r\nContent-Length: {len(part)}"
        return f"HTTP/1.1 206 Partial Content\r\n{head}\r\n\r\n".encode() + part
