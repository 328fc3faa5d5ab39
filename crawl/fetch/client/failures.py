"""How a request can fail: the errors of aiohttp, asyncio and the system as reasons of the fetch log."""

from __future__ import annotations

import re
import socket
import ssl

import aiohttp

from webtext.crawl.pages.visit import FetchFailed

REJECTED = {
    "repeated_length": "Duplicate Content-Length",
    "length_beside_coding": ".*-(Length|Encoding) can't be present with ",
    "blank_before_colon": r"Invalid header token:\s+b['\"][!#-.0-9A-Z^-z|~]+(\\t| )+:",
    "invalid_header": "Invalid header token|Invalid HTTP header|Missing expected LF after header value",
}
"""Reason -> how llhttp's message begins, for answers that browsers accept and aiohttp rejects."""
BAD_RESPONSES = frozenset({"bad_response", *REJECTED})


class NotConnected(FetchFailed):
    """A failure to connect, after which another address of the host may work."""


class KeptConnectionBroke(FetchFailed):
    """A kept connection broke before an answer: the server may have closed it just before the request."""


def dns_failure(error: OSError) -> FetchFailed:
    """Return the failure of a look-up: the name has no address, or no name server answered in time, which may pass.

    >>> dns_failure(TimeoutError()).reason
    'dns_unanswered'
    """
    reason = "dns_unanswered" if is_unanswered(error) else "dns_failed"
    return FetchFailed(reason, str(error) or type(error).__name__)


def is_unanswered(error: OSError) -> bool:
    """Whether the look-up itself failed (no answer, server failure), so that the name may still have an address."""
    return error.errno not in (socket.EAI_NONAME, socket.EAI_NODATA)


def failure_of(error: Exception) -> FetchFailed:
    """Convert an error raised by aiohttp, asyncio or the system into a FetchFailed."""
    cause = f"{type(error).__name__}: {error}"
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return FetchFailed("tls_failed", cause)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return dns_failure(error.os_error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NotConnected("timed_out", cause)
    if isinstance(error, TimeoutError):
        return FetchFailed("timed_out", cause)
    if isinstance(error, aiohttp.ClientConnectorError):
        return NotConnected("connection_failed", cause)
    cut_short = isinstance(error.__cause__, aiohttp.http_exceptions.PayloadEncodingError)  # of a length, or of chunks
    if cut_short or isinstance(error, (aiohttp.ClientConnectionError, OSError)):
        return FetchFailed("connection_failed", cause)
    message = str(getattr(error, "message", ""))
    reasons = (reason for reason, start in REJECTED.items() if re.match(start, message))
    return FetchFailed(next(reasons, "bad_response"), cause)
