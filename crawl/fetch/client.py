"""One HTTP request at a time, bounded in time and bytes, to a vetted address, in its host's turn. No decoding, no cookies.

aiohttp is used for what it does well (connections, TLS, strict parsing by llhttp); redirects, limits, addresses and
content codings are ours.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from webtext.base.urls import host_of, port_of
from webtext.crawl.addresses import AddressRule
from webtext.crawl.fetch.body import MinimumRate, read_body
from webtext.crawl.fetch.connections import Connections
from webtext.crawl.fetch.failures import Failure, NotConnected, dns_failure, failure_of
from webtext.crawl.fetch.hosts import Hosts
from webtext.crawl.fetch.spool import SpoolMemory
from webtext.crawl.pages.warc_writer import Headers
from webtext.crawl.resolver import PinnedResolver

MAX_TRIED_ADDRESSES = 3
KEEP_ALIVE_MARGIN = 2.0  # beyond the delay: most hosts are asked twice, and idle TLS connections are large
BUSY_STATUSES = frozenset({429, 503})
NO_ANSWER = frozenset({"timed_out", "connection_failed", "tls_failed", "dns_failed", "dns_unanswered"})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one exchange may take."""

    max_bytes: int
    total_seconds: float
    connect_seconds: float
    min_rate: float = 0.0  # bytes a second

    @functools.cached_property
    def timeout(self) -> aiohttp.ClientTimeout:
        """What aiohttp watches; the rest is watched here."""
        return aiohttp.ClientTimeout(total=None, sock_connect=self.connect_seconds)


@dataclass(slots=True, kw_only=True)  # not frozen: that costs 4 µs
class Reply:
    """A response as it came, and the request that was sent. `body` is None where it was not asked for."""

    url: str
    address: str
    captured: int
    seconds: float
    request: bytes  # its head, as it was sent
    status: int
    status_line: bytes
    headers: Headers
    body: bytes | None

    def header(self, name: str) -> str | None:
        """The first header of that lower-case name."""
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == wanted), None)


WantsBody = Callable[[int, Headers], bool]


class Client:
    """The one way out. Use as an async context manager."""

    def __init__(self, user_agent: str, rule: AddressRule, hosts: Hosts) -> None:
        self.resolver = PinnedResolver(rule)
        self.hosts = hosts
        self._memory = SpoolMemory()
        self._connections = Connections(self.resolver, rule, hosts.pace.delay + KEEP_ALIVE_MARGIN)
        self._user_agent = f"User-Agent: {user_agent}\r\n"

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connections.close()
        await self.resolver.close()

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        """One for all, made when the first site wants it: that takes 20 ms of CPU."""
        return ssl.create_default_context()

    async def address(self, url: str, *, once: bool = False) -> str:
        """The vetted address of the URL's host, by one look-up per run with `once`. Raises Failure or Refused."""
        host, port = host_and_port(url)
        try:
            return await self.resolver.address(host, port, once=once)
        except OSError as error:
            if not once:
                self.hosts.failed(host)
            raise dns_failure(error) from None

    async def get(
        self, url: str, headers: dict[str, str], limits: Limits, wants_body: WantsBody, *, truncate: bool = False
    ) -> Reply:
        """GET `url` in its host's turn. A body above max_bytes is a Failure, or is cut where `truncate` says so.

        Raises Failure, or Refused when an address is forbidden or the host given up; tries the host's next address when
        one does not answer. The host's pace learns from what comes.
        """
        host, _ = host_and_port(url)
        for attempt in range(1, MAX_TRIED_ADDRESSES + 1):
            address = await self.address(url)
            async with self.hosts.turn(host, address):
                start = time.monotonic()
                try:
                    reply = await self._exchange(url, address, headers, limits, wants_body, truncate)
                except Failure as failure:
                    if failure.reason in NO_ANSWER:
                        self.hosts.failed(host)
                    else:
                        self.hosts.answered(host, time.monotonic() - start)
                    is_last = attempt == MAX_TRIED_ADDRESSES or not isinstance(failure, NotConnected)
                    if is_last or not self.resolver.next_address(host):
                        raise
                else:
                    self._hear(host, reply)
                    return reply
        raise AssertionError("unreachable")

    def _hear(self, host: str, reply: Reply) -> None:
        if reply.status in BUSY_STATUSES:
            self.hosts.failed(host)
            self.hosts.pause(host, retry_after(reply.header("retry-after"), reply.header("date")))
        else:
            self.hosts.answered(host, reply.seconds)

    async def _exchange(
        self, url: str, address: str, headers: dict[str, str], limits: Limits, wants_body: WantsBody, truncate: bool
    ) -> Reply:
        start = time.monotonic()
        scheme, _, authority, target = url.split("/", 3)
        tls = self._tls if scheme == "https:" else True
        lines = self._user_agent + "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        rate: MinimumRate | None = None
        try:
            async with asyncio.timeout(limits.total_seconds) as deadline:
                request, answer = await self._connections.get(
                    f"{scheme}//{authority}", "/" + target, lines, tls, limits.timeout
                )
                with answer:
                    message = answer.message
                    captured = int(time.time())
                    body = None
                    if wants_body(message.code, message.raw_headers):
                        if limits.min_rate > 0 and not answer.content.is_eof():
                            rate = MinimumRate(deadline, limits.min_rate)
                        body = await read_body(
                            message.headers, answer.content, limits.max_bytes, truncate, self._memory, rate
                        )
        except Failure:
            raise
        except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError) and rate is not None and rate.is_below:
                raise Failure("too_slow", f"fewer than {limits.min_rate:g} bytes a second") from None
            raise failure_of(error) from None
        finally:
            if rate is not None:
                rate.close()
        version = message.version
        status_line = f"HTTP/{version.major}.{version.minor} {message.code} {message.reason or ''}"
        return Reply(
            url=url,
            address=address,
            captured=captured,
            seconds=time.monotonic() - start,
            request=request,
            status=message.code,
            status_line=status_line.rstrip().encode("utf-8", "surrogateescape"),
            headers=message.raw_headers,
            body=body,
        )


@functools.lru_cache(maxsize=4096)  # a URL is asked about several times in a row
def host_and_port(url: str) -> tuple[str, int]:
    """Host (without brackets) and port of a canonical URL.

    >>> host_and_port("http://[::1]:8080/"), host_and_port("https://example.com/")
    (('::1', 8080), ('example.com', 443))
    """
    return host_of(url).strip("[]"), port_of(url)


def lower_headers(headers: Headers) -> list[tuple[str, str]]:
    """Headers as text, names in lower case."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


def retry_after(value: str | None, date: str | None = None) -> float:
    """The seconds that a Retry-After header asks for (RFC 9110 section 10.2.3), 0 when it asks for none that can be told.

    A moment is held against the answer's own Date, where there is one: clocks differ.

    >>> retry_after("120"), retry_after("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:58:59 GMT")
    (120.0, 60.0)
    >>> retry_after("NaN"), retry_after("-5"), retry_after(None)
    (0.0, 0.0, 0.0)
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    until = _http_date(text)
    if until is None:
        return 0.0
    now = _http_date(date or "")
    return max(0.0, until - (time.time() if now is None else now))


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
