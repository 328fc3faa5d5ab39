"""Takes pages from the Wayback Machine or a compatible archive: finds captures by CDX and replays them as Mementos.

The CDX server returns the captures nearest to the wanted time; the best one is fetched as it was archived
(`/web/TIMESTAMPid_/URL`). By RFC 7089, an answer that is a capture has its time in `Memento-Datetime`; all other
answers are the archive's own. The page's headers come as `X-Archive-Orig-*`; the others are the archive's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from webtext.base.errors import ConfigError
from webtext.base.web.content_coding import BodyError, decode_body
from webtext.base.web.http_head import media_type
from webtext.base.web.urls import canonical_url
from webtext.crawl.archives.captures import Preference, Rank, not_archived
from webtext.crawl.archives.server import ArchiveServer
from webtext.crawl.fetch.answers import TEXT_TYPES, objection
from webtext.crawl.fetch.client.headers import REDIRECT_STATUSES, http_date, is_redirect, redirect_target
from webtext.crawl.fetch.settings import WAYBACK, FetchSettings
from webtext.crawl.pages.exchange import Exchange, Headers
from webtext.crawl.pages.reasons import ARCHIVE_DAMAGED, ARCHIVE_UNAVAILABLE
from webtext.crawl.pages.surt import surt
from webtext.crawl.pages.visit import FetchFailed, Visit
from webtext.crawl.pages.warc_writer import seconds_of, stamp, warc_date

CDX_LIMIT = 25  # captures to request from the CDX server, nearest first
MAX_REPLAYED = 3  # captures of a page to try
MAX_CDX_BYTES = 1 << 20
MAX_HOPS = 5  # to other captures of the same page
HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip"}
_ORIGINAL = b"x-archive-orig-"
_OF_THE_WIRE = frozenset({b"content-encoding", b"content-length", b"transfer-encoding", b"connection", b"keep-alive"})
_END_OF_9999 = 253_402_300_799
_REPLAYED = re.compile(r"(\d{4,14})(?:[a-z]{2}_)?/(.+)", re.S)


@dataclass(frozen=True, slots=True)
class _Row:
    """A capture as the CDX server lists it."""

    timestamp: str
    url: str  # canonical
    original: str
    rank: Rank


class Wayback:
    """Finds captures with one CDX server and its replay."""

    name = WAYBACK

    def __init__(self, server: ArchiveServer, settings: FetchSettings, preference: Preference) -> None:
        self._server = server
        self._settings = settings
        self._preference = preference
        self._replay = canonical_url(settings.wayback_replay.rstrip("/") + "/") or ""
        self._cdx = canonical_url(settings.wayback_cdx) or ""
        if not (self._replay and self._cdx):
            raise ConfigError(
                f"[crawl.fetch] wayback_cdx = {settings.wayback_cdx!r}, wayback_replay = {settings.wayback_replay!r}: "
                "expected URLs with a host"
            )

    async def find(self, visit: Visit, url: str, voted: int) -> Exchange:
        """Return the best capture of `url` that can be replayed; see `Archive.find`."""
        failure = not_archived()
        for row in sorted(await self._rows(visit, url, voted), key=lambda row: row.rank)[:MAX_REPLAYED]:
            try:
                return await self._fetch(visit, row.timestamp, row.original, voted)
            except FetchFailed as error:
                failure = error
                if error.reason == ARCHIVE_UNAVAILABLE:
                    break
        raise failure

    async def _rows(self, visit: Visit, url: str, voted: int) -> list[_Row]:
        before = self._preference.before
        near = stamp(min(max(voted if before is None else before - 1, 0), _END_OF_9999))
        query = [("url", url), ("output", "json"), ("closest", near), ("sort", "closest"), ("limit", str(CDX_LIMIT))]
        query += [("filter", "!statuscode:[45].."), ("filter", "!mimetype:(image|audio|video)/.*")]
        query += [("collapse", "digest"), *([("to", near)] if before is not None else [])]
        asked = f"{self._cdx}?{urlencode(query)}"
        reply = await self._server.get(asked, HEADERS, lambda status, _: status == 200, visit, MAX_CDX_BYTES)
        if not reply.has_body:
            raise not_archived(f"the index answered with HTTP status {reply.status}")
        try:
            body = decode_body(reply.body, "", reply.header("content-encoding") or "", MAX_CDX_BYTES)
            rows = list(_read_rows(body))
        except (BodyError, ValueError, TypeError, RecursionError):
            raise FetchFailed(ARCHIVE_DAMAGED, "the index returned no list of captures") from None
        return list(self._usable(rows, url, voted, visit.redirects))

    def _usable(self, rows: list[dict[str, Any]], url: str, voted: int, passed: list[str]) -> Iterator[_Row]:
        for row in rows:
            timestamp, original = str(row.get("timestamp")), str(row.get("original") or row.get("url"))
            status, kind = str(row.get("statuscode") or row.get("status")), row.get("mimetype") or row.get("mime")
            named = canonical_url(original)
            try:
                seconds = seconds_of(timestamp)
            except ValueError:
                continue
            if named is None or surt(named) != surt(url):
                continue
            is_hop = status in map(str, REDIRECT_STATUSES)
            if is_hop and named in passed:  # a redirect to another spelling of the same URL
                continue
            is_page = status == "200" and media_type(str(kind)) in TEXT_TYPES or status == "-"  # "-" is a revisit
            if is_hop or is_page:
                rank = self._preference.rank(seconds, voted, is_exact=named == url, is_redirect=is_hop)
                if rank is not None:
                    yield _Row(timestamp, named, original, rank)

    async def _fetch(self, visit: Visit, timestamp: str, original: str, voted: int) -> Exchange:
        """Replay a capture. The archive may redirect to a neighbouring capture of the same page."""
        for _ in range(1 + MAX_HOPS):
            url = canonical_url(original)
            asked = canonical_url(f"{self._replay}{timestamp}id_/{original}")
            if url is None or asked is None or not asked.startswith(self._replay):
                raise FetchFailed(ARCHIVE_DAMAGED, "the index has no valid URL")
            reply = await self._server.get(asked, HEADERS, self._wants_body, visit, self._settings.max_bytes)
            target = redirect_target(asked, reply.headers) if is_redirect(reply.status) else None
            replayed = _REPLAYED.fullmatch(target.removeprefix(self._replay)) if target else None
            if replayed is not None:
                timestamp, original = replayed[1], replayed[2]
                named = canonical_url(original)
                if named is not None and (named == url or reply.header("memento-datetime") is None):
                    if surt(named) != surt(url):
                        raise not_archived("the archive redirects to another page")
                    continue
            return self._capture(reply, url, asked, named if replayed else None, voted)
        raise FetchFailed(ARCHIVE_DAMAGED, "the archive redirects too often between captures")

    def _wants_body(self, status: int, headers: Headers) -> bool:
        is_memento = any(name.lower() == b"memento-datetime" for name, _ in headers)
        return is_memento and objection(status, original_headers(headers), self._settings) is None

    def _capture(self, reply: Exchange, url: str, asked: str, leads_to: str | None, voted: int) -> Exchange:
        moment = http_date(reply.header("memento-datetime") or "")
        if moment is None:
            raise not_archived(f"the archive answered with HTTP status {reply.status}, not with a capture")
        captured = int(moment)
        if self._preference.rank(captured, voted, is_exact=True) is None:
            raise not_archived("the archive returned a newer capture")
        headers = original_headers(reply.headers)
        if leads_to is not None:
            headers = [(name, value) for name, value in headers if name.lower() != b"location"]
            headers.append((b"Location", leads_to.encode()))
        if not reply.has_body and objection(reply.status, headers, self._settings) is None:
            raise FetchFailed(ARCHIVE_DAMAGED, "no body")
        if reply.has_body:
            headers += [(b"Content-Length", str(len(reply.body)).encode())]
        origin = [("WARC-Source-URI", asked), ("WARC-Creation-Date", warc_date(int(time.time())))]
        return Exchange(
            url=url,
            captured=captured,
            status=reply.status,
            headers=headers,
            body=reply.body,
            has_body=reply.has_body,
            origin=origin,
        )


def original_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the page's own headers in a replayed answer, and the answer's Content-Encoding, which fits its bytes.

    >>> original_headers([(b"Server", b"archive"), (b"X-Archive-Orig-Server", b"site"), (b"Content-Type", b"text/html")])
    [(b'server', b'site'), (b'Content-Type', b'text/html')]
    """
    found = []
    for name, value in headers:
        own = name.lower()
        if own.startswith(_ORIGINAL) and own[len(_ORIGINAL) :] not in _OF_THE_WIRE:
            found.append((own[len(_ORIGINAL) :], value))
    known = {name for name, _ in found}
    for name, value in headers:
        if name.lower() == b"content-encoding" or (name.lower() == b"content-type" and b"content-type" not in known):
            found.append((name, value))
    return found


def _read_rows(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CDX answer: an array whose first row names the fields, or one JSON object per line."""
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("["):
        fields, *rows = json.loads(text) or [[]]
        yield from (dict(zip(fields, row, strict=False)) for row in rows)
    else:
        yield from (row for line in text.splitlines() if isinstance(row := json.loads(line), dict))
