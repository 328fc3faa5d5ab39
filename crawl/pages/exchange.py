"""One HTTP request and its response, as bytes: what a WARC file stores of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webtext.base.web.http_head import Headers as Fields

Headers = Sequence[tuple[bytes, bytes]]


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
    truncated: str | None = None  # why the body may be incomplete, as WARC-Truncated says it
    seconds: float = 0.0  # until the end of the body
    identified_type: str | None = None  # media type by the body's first bytes
    head: bytes | None = None
    origin: Sequence[tuple[str, str]] = ()  # further fields of the response record, which name the archive

    @property
    def codings(self) -> tuple[str, str]:
        """The transfer coding, which only a record from an archive still has, and the content codings, as header values."""
        named = Fields(tuple(lower_headers(self.headers))).joined
        return named("transfer-encoding") if self.head is not None else "", named("content-encoding")

    def header(self, name: str) -> str | None:
        """Return the first header with this lower-case name, or None."""
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == wanted), None)


def lower_headers(headers: Headers) -> list[tuple[str, str]]:
    """Return the headers as text, with names in lower case."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
