"""An HTTP response as an archive holds it, and how a WARC record is read into one."""

from __future__ import annotations

import calendar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from webtext.base.content_coding import BodyError, decode_body
from webtext.base.http_head import Headers, split_http

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord

MAX_RECORD_BYTES = 64 << 20  # a record above this is 'record_too_large'; Common Crawl cuts a body at a few MiB
LENGTH_IS_WRONG = ("damaged_record", "record_cut_short")
UNCHANGED = "unchanged_revisit"  # not damage: a page that had not changed, whose earlier capture is not in the input
_NO_HEADERS = Headers()


@dataclass(slots=True, kw_only=True)  # not frozen: it is filled step by step, and copies were a tenth of the reading
class Response:
    """An HTTP response as it was archived, or a damaged stretch of the file (`damage` says what, `url` may be empty).

    `offset` and `length` name the part of the file to read for this record alone, None where it shares a compressed
    member with others. `raw` is the body as sent, codings and all; that of a revisit is the body of its original.
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
        """The media type in lower case, without parameters; empty when the server gave none."""
        return self.http_headers.get("Content-Type").partition(";")[0].strip().lower()

    @property
    def captured(self) -> int | None:
        """`date` as UTC seconds, None when it is no date."""
        try:
            moment = datetime.fromisoformat(self.date.strip())
        except ValueError:
            return None
        return calendar.timegm(moment.utctimetuple())

    def body(self, max_bytes: int) -> bytes:
        """The body without transfer and content coding; BodyError with a reason when it cannot be had."""
        if self.damage:
            raise BodyError(self.damage)
        headers = self.http_headers
        return decode_body(self.raw, headers.joined("Transfer-Encoding"), headers.joined("Content-Encoding"), max_bytes)


def read_record(record: WarcRecord, start: int) -> Response | None:
    """The response of the record at `start`; None where it is a whole record of another kind."""
    headers = Headers(tuple(record.headers.items()))  # UTF-8; what is none becomes U+FFFD
    # One byte more than there is: so damage that follows is met here, as OSError; fastwarc panics when it meets it later.
    # (Not simply MAX_RECORD_BYTES + 1: fastwarc makes room for as many bytes as it is asked for, which costs 30 µs.)
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
    # A revisit may come without a block, and then says nothing of HTTP.
    is_revisit = kind == "revisit" and (record.is_http or (not block and url.startswith(("http:", "https:"))))
    is_response = is_revisit or (kind == "response" and record.is_http)
    if not is_response and damage not in LENGTH_IS_WRONG:
        return None
    response = Response(
        offset=start,
        length=None,
        url=url,
        date=get("warc-date", "").strip(),
        warc_headers=headers,
        http_headers=_NO_HEADERS,
        is_revisit=is_revisit,
        damage=damage,
    )
    return response if damage or (is_revisit and not block) else with_http(response, block)


def plain_url(value: str) -> str:
    """A URL without the angle brackets that WARC 1.0 files put around it."""
    return value.strip().removeprefix("<").removesuffix(">")


def with_http(response: Response, block: bytes) -> Response:
    """The response with what its block says: status, headers, body; 'damaged_http' where it has no HTTP head."""
    head = split_http(block)
    if head is None:
        response.damage = "damaged_http"
    else:
        response.status, response.http_headers, response.raw = head
    return response
