"""A small Wayback Machine on loopback: an index of captures (CDX) and their raw replay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

ARCHIVE = 8  # the host of the archive; the others are living sites
FIELDS = ["urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length"]


class LocalWayback:
    """CDX answers and replay on one host of the local web."""

    def __init__(self, web: Any, crawl: Any = None) -> None:
        self.web, self._crawl = web, crawl
        self.settings = {
            "sources": ("wayback",),
            "wayback_cdx": web.url("/cdx/search/cdx", ARCHIVE),
            "wayback_replay": web.url("/web", ARCHIVE),
            "archive_delay": 0.0,
        }
        self._rows: dict[str, list[list[str]]] = {}
        self._web_answer = web.answer
        web.answer = self._answer

    def crawl(self, urls: Sequence[str], out: str = "pages", **changes: Any) -> Any:
        """Crawl these links with this archive as the only source. Returns the rows by URL."""
        return self._crawl(urls, out, **self.settings | changes)

    def capture(
        self, url: str, timestamp: str, status: str = "200", kind: str = "text/html", original: str = ""
    ) -> None:
        """Add a row to the index."""
        self._rows.setdefault(url, []).append(["key", timestamp, original or url, kind, status, "DIGEST", "1"])

    def page(
        self,
        url: str,
        timestamp: str,
        body: bytes | str = "<html>archived</html>",
        *headers: str,
        status: str = "200 OK",
    ) -> None:
        """Add a capture and its replay."""
        self.capture(url, timestamp, status[:3])
        self.replay(url, timestamp, body, "X-Archive-Orig-Server: then", *headers, status=status)

    def replay(self, url: str, timestamp: str, body: bytes | str, *headers: str, status: str = "200 OK") -> None:
        date = f"Memento-Datetime: {_http_date(timestamp)}"
        self.web.page(
            f"/web/{timestamp}id_/{url}", body, date, "Server: archive", *headers, host=ARCHIVE, status=status
        )

    def asked(self) -> list[dict[str, list[str]]]:
        """Return the queries that the index received."""
        return [parse_qs(urlsplit(path).query) for path in self.web.paths(ARCHIVE) if path.startswith("/cdx")]

    def _answer(self, host: str, path: str) -> Any:
        if not path.startswith("/cdx"):
            return self._web_answer(host, path)
        found = self._rows.get(parse_qs(urlsplit(path).query)["url"][0], [])
        body = json.dumps([FIELDS, *found] if found else []).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _http_date(timestamp: str) -> str:
    moment = datetime.strptime(timestamp, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return moment.strftime("%a, %d %b %Y %H:%M:%S GMT")
