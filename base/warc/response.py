"""Archived HTTP responses, and the conversion of a WARC record into one."""

from __future__ import annotations

import calendar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from webtext.base.web.content_coding import BodyError, decode_body
from webtext.base.web.http_head import Headers, media_type, split_http

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord

MAX_RECORD_BYTES = 64 << 20  # a record above this is 'record_too_large'; Common Crawl cuts a body at a few MiB
LENGTH_IS_WRONG = ("damaged_record", "record_cut_short")
UNCHANGED = "unchanged_revisit"  # not damage: the page hadn't changed, and its earlier capture isn't in the input


@dataclass(slots=True, kw_only=True)  # not frozen: it is filled step by step, and copies took a tenth of the read time
class Response:
    """An archived HTTP response, or a damaged stretch of the file (`damage` is the reason, `url` may be empty).

    `offset` and `length` are the bytes of the file that contain only this record; they are None if it shares a
    compressed member with others. `raw` is the body as sent, with its codings; a revisit has its original's body.
    """

    offset: int | None
    length: int | None
    url: str = ""
    date: str = ""
    status: int | None = None
    warc_headers: Headers = field(default_factory=Headers)
    http_headers: Headers = field(default_factory=Headers)
    raw: bytes = b""
    is_revisit: bool = False
    damage: str | None = None

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters; empty if the server sent none."""
        return media_type(self.http_headers.get("Content-Type"))

    @property
    def captured(self) -> int | None:
        """`date` as UTC seconds; None if it is not a valid date."""
        return utc_seconds(self.date)

    def body(self, max_bytes: int) -> bytes:
        """Return the body without transfer and content coding; raises BodyError with a reason if that fails."""
        if self.damage:
            raise BodyError(self.damage)
        headers = self.http_headers
        return decode_body(self.raw, headers.joined("Transfer-Encoding"), headers.joined("Content-Encoding"), max_bytes)


def read_record(record: WarcRecord, start: int) -> Response | None:
    """Return the response of the record at `start`; None if it is an undamaged record of another kind."""
    headers = Headers(tuple(record.headers.items()))  # decoded as UTF-8; invalid bytes become U+FFFD
    # Reading one byte more than the record has makes damage after it raise OSError here; fastwarc panics if it finds
    # the damage later. (Not simply MAX_RECORD_BYTES + 1: fastwarc allocates all requested bytes, which costs 30 µs.)
    block = record.reader.read(min(record.content_length, MAX_RECORD_BYTES) + 1)
    length, get = record.content_length, headers.first.get
    kind = get("warc-type", "").strip().lower()
    damage = None
    if get("content-length", "").strip() != str(length) or not kind:
        damage = "damaged_record"
    elif len(block) > MAX_RECORD_BYTES:
        damage = "record_too_large"
    elif len(block) < length:
        damage = "record_cut_short"
    url = plain_url(get("warc-target-uri", ""))
    # A revisit may have no block, and then no header says that it is HTTP.
    # fastwarc's `is_http` wants this case
    is_http = get("content-type", "").strip().lower().startswith("application/http")
    is_revisit = kind == "revisit" and (is_http or (not block and url.startswith(("http:", "https:"))))
    is_response = is_revisit or (kind == "response" and is_http)
    if not is_response and damage not in LENGTH_IS_WRONG:
        return None
    response = Response(
        offset=start,
        length=None,
        url=url,
        date=get("warc-date", "").strip(),
        warc_headers=headers,
        is_revisit=is_revisit,
        damage=damage,
    )
    return response if damage or (is_revisit and not block) else with_http(response, block)


def utc_seconds(date: str) -> int | None:
    """Return a WARC-Date as UTC seconds; None if it is not a valid date."""
    try:
        return calendar.timegm(datetime.fromisoformat(date.strip()).utctimetuple())
    except (ValueError, OverflowError):  # the second for one that is in year 0 or 10000 of UTC
        return None


def plain_url(value: str) -> str:
    """Return a URL without the angle brackets that WARC 1.0 files put around it."""
    return value.strip().removeprefix("<").removesuffix(">")


def with_http(response: Response, block: bytes) -> Response:
    """Set the response's status, headers and body from its block; `damage` is 'damaged_http' if it has no HTTP head."""
    head = split_http(block)
    if head is None:
        response.damage = "damaged_http"
    else:
        response.status, response.http_headers, response.raw = head
    return response
