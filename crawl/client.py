"""One HTTP request at a time, bounded in time and bytes, to a vetted address, in its host's turn. No decoding, no cookies.

aiohttp is used for what it does well (connections, TLS, strict parsing by llhttp); redirects, limits, addresses and
content codings are ours.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import aiohttp
from yarl import URL

from webtext.base.urls import host_of, port_of
from webtext.crawl.addresses import AddressRule
from webtext.crawl.hosts import Hosts
from webtext.crawl.resolver import PinnedResolver, Refused, guarded_socket
from webtext.crawl.warc_writer import Headers

MAX_HEADER_BYTES = 8190  # of one line; what aiohttp and most servers allow
MAX_HEADERS = 128
MAX_TRIED_ADDRESSES = 3
MEMORY_BYTES = 512 * 1024  # of a body under way; the rest of a larger one waits on disk: hundreds come at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one exchange may take."""

    max_bytes: int
    total_seconds: float
    connect_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return next((value for key, value in lower_headers(self.headers) if key == name), None)


class Failure(Exception):
    """An exchange that came to nothing; `reason` is the fetch log's."""

    def __init__(self, reason: str, cause: str = "") -> None:
        super().__init__(f"{reason}: {cause}" if cause else reason)
        self.reason = reason
        self.cause = cause[:200] or None


WantsBody = Callable[[int, Headers], bool]


class Client:
    """The one way out. Use as an async context manager."""

    def __init__(self, user_agent: str, rule: AddressRule, hosts: Hosts, concurrency: int) -> None:
        self.resolver = PinnedResolver(rule)
        self.hosts = hosts
        self._slots = asyncio.Semaphore(concurrency)
        self._session = guarded_session(user_agent, self.resolver, rule)

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
            raise Failure("dns_failed", str(error)) from None

    async def get(
        self, url: str, headers: dict[str, str], limits: Limits, wants_body: WantsBody, *, truncate: bool = False
    ) -> Reply:
        """GET `url` in its host's turn. A body above max_bytes is a Failure, or is cut where `truncate` says so.

        Raises Failure, or Refused when an address is forbidden; tries the host's next address when one does not answer.
        """
        host, _ = host_and_port(url)
        for attempt in range(1, MAX_TRIED_ADDRESSES + 1):
            address = await self.address(url)
            async with self.hosts.turn(host, address), self._slots:  # in this order: who waits for a turn holds no slot
                try:
                    return await self._exchange(url, address, headers, limits, wants_body, truncate)
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                    failure = failure_of(error)
            if failure.reason == "tls_failed" or attempt == MAX_TRIED_ADDRESSES or not self.resolver.next_address(host):
                raise failure
        raise AssertionError("unreachable")

    async def _exchange(
        self, url: str, address: str, headers: dict[str, str], limits: Limits, wants_body: WantsBody, truncate: bool
    ) -> Reply:
        start = time.monotonic()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_seconds)
        try:
            async with (
                asyncio.timeout(limits.total_seconds),
                self._session.get(
                    URL(url, encoded=True), headers=headers, allow_redirects=False, timeout=timeout
                ) as response,
            ):
                captured = int(time.time())
                body = None
                if wants_body(response.status, response.raw_headers):
                    body = await read_body(response, limits.max_bytes, truncate)
                else:
                    response.close()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, Failure, Refused):
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise failure_of(error) from None
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


def guarded_session(user_agent: str, resolver: PinnedResolver, rule: AddressRule) -> aiohttp.ClientSession:
    """The session behind every request: vetted addresses, TLS verified, no proxy, no cookies, bounded headers."""
    connector = aiohttp.TCPConnector(
        limit=0,  # slots bound what is under way
        resolver=resolver,
        use_dns_cache=False,
        happy_eyeballs_delay=None,  # one pinned address, one socket
        ssl=ssl.create_default_context(),  # one for all: making it costs 26 ms of CPU
        socket_factory=guarded_socket(rule),
    )
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
    )


def host_and_port(url: str) -> tuple[str, int]:
    """Host (without brackets) and port of a canonical URL.

    >>> host_and_port("http://[::1]:8080/"), host_and_port("https://example.com/")
    (('::1', 8080), ('example.com', 443))
    """
    return host_of(url).strip("[]"), port_of(url)


def lower_headers(headers: Headers) -> list[tuple[str, str]]:
    """Headers as text, names in lower case."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


async def read_body(response: aiohttp.ClientResponse, max_bytes: int, truncate: bool) -> bytes:
    """The body as sent. Above max_bytes it is cut where `truncate` says so, else a Failure, as are transfer codings unknown."""
    coding = response.headers.get("Transfer-Encoding", "chunked").strip().lower()
    if coding not in ("chunked", "identity"):
        raise Failure("bad_response", f"transfer coding {coding!r}")
    if not truncate and (response.content_length or 0) > max_bytes:
        response.close()
        raise Failure("too_large", f"{response.content_length} bytes announced")
    room = max_bytes
    with tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES) as body:
        async for chunk in response.content.iter_any():
            body.write(chunk[:room] if truncate else chunk)
            room -= len(chunk)
            if room < 0:
                response.close()
                if truncate:
                    break
                raise Failure("too_large", f"more than {max_bytes} bytes")
        body.seek(0)
        return body.read()


def failure_of(error: Exception) -> Failure:
    """The fetch log's reason for an error of aiohttp, asyncio or the system."""
    cause = f"{type(error).__name__}: {error}"[:200]
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return Failure("tls_failed", cause)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Failure("dns_failed", cause)
    if isinstance(error, TimeoutError):
        return Failure("timed_out", cause)
    cut_short = isinstance(error.__cause__, aiohttp.http_exceptions.ContentLengthError)
    if cut_short or isinstance(error, (aiohttp.ClientConnectionError, OSError)):
        return Failure("connection_failed", cause)
    return Failure("bad_response", cause)
