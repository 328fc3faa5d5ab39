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
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from yarl import URL

from webtext.base.urls import host_of, port_of
from webtext.crawl.addresses import AddressRule
from webtext.crawl.hosts import Hosts
from webtext.crawl.resolver import PinnedResolver, guarded_socket
from webtext.crawl.spool import Spool, SpoolMemory
from webtext.crawl.warc_writer import Headers

MAX_HEADER_BYTES = 8190  # of one line; what aiohttp and most servers allow
MAX_HEADERS = 128
MAX_INTERIM = 16  # answers with a status of 1xx before the one that counts
MAX_TRIED_ADDRESSES = 3
READ_BYTES = (
    16 * 1024
)  # of a body wait in a connection before no more is read; as chunks of one byte they take 100 times more
RATE_SECONDS = 10.0  # after which a body must have come at min_rate on average
MAX_KEEP_ALIVE = 15.0  # seconds that an idle connection is kept at most
KEEP_ALIVE_MARGIN = 2.0  # beyond the delay: most hosts are asked twice, and idle TLS connections are large
BUSY_STATUSES = frozenset({429, 503})
NO_ANSWER = frozenset({"timed_out", "connection_failed", "tls_failed", "dns_failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one exchange may take."""

    max_bytes: int
    total_seconds: float
    connect_seconds: float
    min_rate: float = 0.0  # bytes a second


@dataclass(slots=True, kw_only=True)  # not frozen: that costs 4 µs
class Reply:
    """A response as it came, and the request that was sent. `body` is None where it was not asked for."""

    url: str
    address: str
    captured: int
    seconds: float
    method_line: bytes
    request_headers: Headers
    status: int
    status_line: bytes
    headers: Headers
    body: bytes | None

    def header(self, name: str) -> str | None:
        """The first header of that lower-case name."""
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == wanted), None)


class Failure(Exception):
    """An exchange that came to nothing; `reason` is the fetch log's, `cause` is for people."""

    def __init__(self, reason: str, cause: str = "") -> None:
        super().__init__(f"{reason}: {cause}" if cause else reason)
        self.reason = reason
        self.cause = cause or None


class NotConnected(Failure):
    """No connection came about; another address of the host may do."""


WantsBody = Callable[[int, Headers], bool]


class Client:
    """The one way out. Use as an async context manager."""

    def __init__(self, user_agent: str, rule: AddressRule, hosts: Hosts) -> None:
        self.resolver = PinnedResolver(rule)
        self.hosts = hosts
        self._memory = SpoolMemory()
        self._session = guarded_session(user_agent, self.resolver, rule, hosts.pace.delay + KEEP_ALIVE_MARGIN)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self.resolver.close()

    async def address(self, url: str) -> str:
        """The vetted address of the URL's host. Raises Failure or Refused."""
        host, port = host_and_port(url)
        try:
            return await self.resolver.address(host, port)
        except OSError as error:
            self.hosts.failed(host)
            raise Failure("dns_failed", str(error)) from None

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
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_seconds)
        rate: MinimumRate | None = None
        try:
            async with (
                asyncio.timeout(limits.total_seconds) as deadline,
                self._session.get(
                    URL(url, encoded=True), headers=headers, allow_redirects=False, timeout=timeout
                ) as response,
            ):
                captured = int(time.time())
                body = None
                if wants_body(response.status, response.raw_headers):
                    rate = MinimumRate(deadline, limits.min_rate)
                    body = await read_body(response, limits.max_bytes, truncate, self._memory, rate)
                else:
                    response.release()  # keeps the connection if all of the body is there already, else closes it
        except Failure:
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError) and rate is not None and rate.is_below:
                raise Failure("too_slow", f"fewer than {limits.min_rate:g} bytes a second") from None
            raise failure_of(error) from None
        finally:
            if rate is not None:
                rate.close()
        sent = response.request_info
        version = response.version or aiohttp.HttpVersion11
        status_line = f"HTTP/{version.major}.{version.minor} {response.status} {response.reason or ''}"
        return Reply(
            url=url,
            address=address,
            captured=captured,
            seconds=time.monotonic() - start,
            method_line=f"{sent.method} {sent.url.raw_path_qs} HTTP/1.1".encode(),
            request_headers=[(name.encode(), value.encode()) for name, value in sent.headers.items()],
            status=response.status,
            status_line=status_line.rstrip().encode("utf-8", "surrogateescape"),
            headers=response.raw_headers,
            body=body,
        )


def guarded_session(
    user_agent: str, resolver: PinnedResolver, rule: AddressRule, keep_alive: float = MAX_KEEP_ALIVE
) -> aiohttp.ClientSession:
    """The session behind every request: vetted addresses, TLS verified, no proxy, no cookies, bounded headers."""
    connector = aiohttp.TCPConnector(
        limit=0,  # slots bound what is under way
        resolver=resolver,
        use_dns_cache=False,
        happy_eyeballs_delay=None,  # one pinned address, one socket
        ssl=ssl.create_default_context(),  # one for all: making it costs 26 ms of CPU
        socket_factory=guarded_socket(rule),
        keepalive_timeout=min(keep_alive, MAX_KEEP_ALIVE),
    )
    protocol: type[ResponseHandler] = _Protocol
    connector._factory = functools.partial(protocol, loop=asyncio.get_running_loop())
    return aiohttp.ClientSession(
        connector=connector,
        headers={"User-Agent": user_agent},
        skip_auto_headers=("Accept", "Accept-Encoding"),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,  # a proxy would connect where we may not
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        max_headers=MAX_HEADERS,
        read_bufsize=READ_BYTES,
    )


class _Protocol(ResponseHandler):
    """aiohttp's protocol, with a bound on interim answers (1xx): it keeps all that come until somebody reads on."""

    _n_interim = 0

    def feed_data(self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0) -> None:
        if self.exception() is not None:
            return
        code = data[0].code
        self._n_interim = self._n_interim + 1 if 100 <= code < 200 else 0
        if self._n_interim <= MAX_INTERIM:
            super().feed_data(data, size)
            return
        if self.transport is not None:
            self.transport.close()
        self.set_exception(HttpProcessingError(code=code, message=f"more than {MAX_INTERIM} interim answers"))


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


class MinimumRate:
    """Ends a body whose mean rate is too low: looks at it when that could first be so, and moves its deadline to then.

    Most bodies are there before the first look, so what comes is only counted.
    """

    def __init__(self, deadline: asyncio.Timeout, min_rate: float) -> None:
        self.n_bytes = 0  # of the body that have come
        self.is_below = False
        self._deadline = deadline
        self._min_rate = min_rate
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._next_look = self._loop.call_later(RATE_SECONDS, self._look) if min_rate > 0 else None

    def close(self) -> None:
        """The body is there, or given up."""
        if self._next_look is not None:
            self._next_look.cancel()

    def _look(self) -> None:
        too_slow_at = self._start + max(RATE_SECONDS, self.n_bytes / self._min_rate)
        if too_slow_at <= self._loop.time():
            self.is_below = True
            self._deadline.reschedule(too_slow_at)
        else:
            self._next_look = self._loop.call_at(too_slow_at, self._look)


async def read_body(
    response: aiohttp.ClientResponse,
    max_bytes: int,
    truncate: bool,
    memory: SpoolMemory | None = None,
    rate: MinimumRate | None = None,
) -> bytes:
    """The body as it came, without chunks; Failure when its coding is unknown or, save to `truncate`, it is too large."""
    coding = response.headers.get("Transfer-Encoding", "chunked").strip().lower()
    if coding not in ("chunked", "identity"):
        raise Failure("bad_response", f"transfer coding {coding!r}")
    if not truncate and (response.content_length or 0) > max_bytes:
        response.close()
        raise Failure("too_large", f"{response.content_length} bytes announced")
    with Spool(memory or SpoolMemory()) as body:
        async for chunk in response.content.iter_any():
            body.write(chunk)
            if body.size > max_bytes:
                response.close()
                if truncate:
                    break
                raise Failure("too_large", f"more than {max_bytes} bytes")
            if rate is not None:
                rate.n_bytes = body.size
        return body.read(max_bytes)


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


def failure_of(error: Exception) -> Failure:
    """The fetch log's reason for an error of aiohttp, asyncio or the system."""
    cause = f"{type(error).__name__}: {error}"
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return Failure("tls_failed", cause)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Failure("dns_failed", cause)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NotConnected("timed_out", cause)
    if isinstance(error, TimeoutError):
        return Failure("timed_out", cause)
    if isinstance(error, aiohttp.ClientConnectorError):
        return NotConnected("connection_failed", cause)
    cut_short = isinstance(error.__cause__, aiohttp.http_exceptions.ContentLengthError)
    if cut_short or isinstance(error, (aiohttp.ClientConnectionError, OSError)):
        return Failure("connection_failed", cause)
    return Failure("bad_response", cause)
