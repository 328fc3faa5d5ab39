"""HTTP messages as bytes: one request and its response, and what the response's headers ask for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from webtext.base.web.urls import join_url

Headers = Sequence[tuple[bytes, bytes]]

REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


@dataclass(slots=True, kw_only=True)  # not frozen: that costs 4 µs
class Exchange:
    """One request and its response, as bytes. The body has no chunks but is otherwise as it came.

    An exchange from an archive, a capture, has no request and no address. If the archive returned a WARC record, `head`
    is the record's HTTP head and `body` is the rest of the record, and both are stored unchanged.
    """

    url: str  # canonical
    captured: int  # UTC seconds
    address: str | None = None
    request: bytes | None = None  # its head: b"GET / HTTP/1.1\r\nHost: ...\r\n\r\n"
    status: int
    status_line: bytes = b""  # b"HTTP/1.1 200 OK"
    headers: Headers
    body: bytes
    has_body: bool = True  # False if the head was reason enough not to read it
    was_cut: bool = False  # the connection broke where the body could have ended
    seconds: float = 0.0  # until the end of the body
    identified_type: str | None = None  # media type by the body's first bytes
    head: bytes | None = None
    origin: Sequence[tuple[str, str]] = ()  # further fields of the response record, which name the archive

    def header(self, name: str) -> str | None:
        """Return the first header with this lower-case name, or None."""
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == wanted), None)


def is_redirect(status: int) -> bool:
    """Whether the status is a redirect."""
    return status in REDIRECT_STATUSES


def redirect_target(url: str, headers: Headers) -> str | None:
    """Return the canonical URL of the Location header, relative to `url`.

    None if Location is missing, empty, given twice with different values, or not an http(s) URL.

    >>> redirect_target("http://a.example/b/c", [(b"Location", b"../d#top")])
    'http://a.example/d'
    >>> redirect_target("http://a.example/", [(b"Location", b"file:///etc/passwd")]) is None
    True
    """
    locations = {value.strip() for name, value in headers if name.lower() == b"location"}
    if len(locations) != 1 or not (location := locations.pop()):
        return None
    try:
        text = location.decode("utf-8")
    except UnicodeDecodeError:
        text = location.decode("latin-1")  # as browsers read it
    return join_url(url, text)


def lower_headers(headers: Headers) -> list[tuple[str, str]]:
    """Return the headers as text, with names in lower case."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


def retry_after(value: str | None, date: str | None = None) -> float:
    """Return the seconds that a Retry-After header asks for (RFC 9110 section 10.2.3), 0 if it is invalid or missing.

    A date is compared with the answer's own Date header if there is one, because clocks differ.

    >>> retry_after("120"), retry_after("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:58:59 GMT")
    (120.0, 60.0)
    >>> retry_after("NaN"), retry_after("-5"), retry_after(None)
    (0.0, 0.0, 0.0)
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    until = http_date(text)
    if until is None:
        return 0.0
    now = http_date(date or "")
    return max(0.0, until - (time.time() if now is None else now))


def http_date(text: str) -> float | None:
    """Return the UTC seconds of a date in a header, or None if it is invalid."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
