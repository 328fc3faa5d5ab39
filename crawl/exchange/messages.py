"""HTTP messages as bytes: one request and its response, what the headers ask for, and why an exchange has none."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import aiohttp

from webtext.base.web.urls import join_url

Headers = Sequence[tuple[bytes, bytes]]

REJECTED = {
    "repeated_length": "Duplicate Content-Length",
    "length_beside_coding": ".*-(Length|Encoding) can't be present with ",
    "blank_before_colon": r"Invalid header token:\s+b['\"][!#-.0-9A-Z^-z|~]+(\\t| )+:",
    "invalid_header": "Invalid header token|Invalid HTTP header|Missing expected LF after header value",
}
"""Reason -> how llhttp's message begins, for answers that browsers accept and aiohttp rejects."""
BAD_RESPONSES = frozenset({"bad_response", *REJECTED})
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


class _NoPage(Exception):
    """`reason` is one of the fetch log's, and `cause` explains it to people."""

    def __init__(self, reason: str, cause: str = "") -> None:
        super().__init__(f"{reason}: {cause}" if cause else reason)
        self.reason = reason
        self.cause = cause or None


class Failure(_NoPage):
    """A failed exchange."""


class Refused(_NoPage):
    """A refused connection, or an answer that is not kept."""


class NotConnected(Failure):
    """A failure to connect, after which another address of the host may work."""


class KeptConnectionBroke(Failure):
    """A kept connection broke before an answer: the server may have closed it just before the request."""


def dns_failure(error: OSError) -> Failure:
    """Return the failure of a look-up: the name has no address, or no name server answered in time, which may pass.

    >>> dns_failure(TimeoutError()).reason
    'dns_unanswered'
    """
    reason = "dns_unanswered" if is_unanswered(error) else "dns_failed"
    return Failure(reason, str(error) or type(error).__name__)


def is_unanswered(error: OSError) -> bool:
    """Whether the look-up itself failed (no answer, server failure), so that the name may still have an address."""
    return error.errno not in (socket.EAI_NONAME, socket.EAI_NODATA)


def failure_of(error: Exception) -> Failure:
    """Convert an error raised by aiohttp, asyncio or the system into a Failure."""
    cause = f"{type(error).__name__}: {error}"
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return Failure("tls_failed", cause)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return dns_failure(error.os_error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NotConnected("timed_out", cause)
    if isinstance(error, TimeoutError):
        return Failure("timed_out", cause)
    if isinstance(error, aiohttp.ClientConnectorError):
        return NotConnected("connection_failed", cause)
    cut_short = isinstance(error.__cause__, aiohttp.http_exceptions.ContentLengthError)
    if cut_short or isinstance(error, (aiohttp.ClientConnectionError, OSError)):
        return Failure("connection_failed", cause)
    message = str(getattr(error, "message", ""))
    reasons = (reason for reason, start in REJECTED.items() if re.match(start, message))
    return Failure(next(reasons, "bad_response"), cause)


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
