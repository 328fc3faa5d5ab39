"""Sends single HTTP requests, bounded in time and bytes, to vetted addresses, each in its host's turn.

aiohttp does its part: connections, TLS and strict parsing by llhttp. Redirects, limits and addresses are
handled here. Content is not decoded, and cookies are ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from webtext.base.web.urls import host_of, port_of
from webtext.crawl.fetch.client.addresses import AddressRule
from webtext.crawl.fetch.client.body import MinimumRate, SpoolMemory, read_body
from webtext.crawl.fetch.client.connections import Connections
from webtext.crawl.fetch.client.failures import KeptConnectionBroke, NotConnected, dns_failure, failure_of
from webtext.crawl.fetch.client.headers import retry_after
from webtext.crawl.fetch.client.resolver import PinnedResolver
from webtext.crawl.fetch.hosts import Hosts
from webtext.crawl.pages.exchange import Exchange, Headers
from webtext.crawl.pages.reasons import HOST_KEPT_FAILING
from webtext.crawl.pages.visit import FetchFailed, FetchRefused, Visit

MAX_TRIED_ADDRESSES = 3
KEEP_ALIVE_MARGIN = 2.0  # seconds beyond the delay: most hosts get two requests, and idle TLS connections are large
BUSY_STATUSES = frozenset({403, 429, 500, 502, 503, 504})  # 403 is how many sites block a crawler
# Of failures, only these count against a host. Any other is an answer, which shows that the host is there.
NO_ANSWER = frozenset({"timed_out", "connection_failed", "tls_failed", "dns_failed", "dns_unanswered"})


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """Limits on the size, time and rate of one exchange."""

    max_bytes: int
    total_seconds: float
    connect_seconds: float
    min_rate: float = 0.0  # bytes per second
    truncate: bool = False  # a body at max_bytes

    @functools.cached_property
    def timeout(self) -> aiohttp.ClientTimeout:
        """The timeout that aiohttp enforces. The other limits are enforced here."""
        return aiohttp.ClientTimeout(total=None, sock_connect=self.connect_seconds)


WantsBody = Callable[[int, Headers], bool]
"""Whether to read the body of an answer with this status and these headers."""


class Client(contextlib.AbstractAsyncContextManager["Client"]):
    """The HTTP client that all pages, robots.txt and archives are fetched with. Use as an async context manager."""

    def __init__(self, user_agent: str, rule: AddressRule, hosts: Hosts, busy: Collection[int] = BUSY_STATUSES) -> None:
        self._busy = busy
        self.resolver = PinnedResolver(rule)
        self.hosts = hosts
        self._memory = SpoolMemory()
        self._connections = Connections(self.resolver, rule, hosts.pace.delay + KEEP_ALIVE_MARGIN)
        self._user_agent = f"User-Agent: {user_agent}\r\n"

    async def __aexit__(self, *_: object) -> None:
        await self._connections.close()
        await self.resolver.close()

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        """The TLS context for all connections, made when it is first needed because that takes 20 ms of CPU."""
        return ssl.create_default_context()

    async def address(self, url: str, *, once: bool = False) -> str:
        """Return the vetted address of the URL's host; with `once`, look it up only once per run.

        Raises FetchFailed if the name has no address, and FetchRefused if the address is forbidden or was given up, like
        the host's others.
        """
        host, port = host_and_port(url)
        try:
            for _ in range(MAX_TRIED_ADDRESSES):
                address = await self.resolver.address(host, port, once=once)
                if self.hosts.refusal(f"@{address}") is None:
                    return address
                if not self.resolver.next_address(host):
                    break
        except OSError as error:
            if not once:
                self.hosts.failed(host)
            raise dns_failure(error) from None
        raise FetchRefused(HOST_KEPT_FAILING, f"no connection to {address}")

    async def get(
        self,
        url: str,
        headers: dict[str, str],
        limits: RequestLimits,
        wants_body: WantsBody,
        visit: Visit | None = None,
    ) -> Exchange:
        """GET `url` in its host's turn, and adapt the host's pace.

        If an address doesn't connect, the host's next address is tried, and if a kept connection broke, a new one: each
        in another turn, and counted in `visit`. Raises FetchFailed if no answer comes or it breaks a limit, and
        FetchRefused if the address is forbidden or the host was given up.
        """
        host, _ = host_and_port(url)
        for attempt in range(1, MAX_TRIED_ADDRESSES + 1):
            # Looked up before the turn, since the turn is the address's too: many hosts share one server.
            address = await self.address(url)
            async with self.hosts.turn(host, address):
                start = time.monotonic()
                if visit is not None:
                    visit.requests += 1
                try:
                    reply = await self._exchange(url, address, headers, limits, wants_body)
                except KeptConnectionBroke:
                    if attempt == MAX_TRIED_ADDRESSES:
                        raise
                except FetchFailed as failure:
                    has_connected = not isinstance(failure, NotConnected)
                    is_late = failure.reason == "timed_out" and not has_connected
                    if has_answered := failure.reason not in NO_ANSWER:
                        self.hosts.answered(host, time.monotonic() - start)
                    else:
                        self.hosts.failed(host)
                    self.hosts.tried(address, is_late=is_late, has_answered=has_answered)
                    if attempt == MAX_TRIED_ADDRESSES or has_connected or not self.resolver.next_address(host):
                        raise
                else:
                    self.hosts.tried(address, has_answered=True)
                    self._adapt_pace(host, reply)
                    return reply
        raise AssertionError("unreachable")

    def _adapt_pace(self, host: str, reply: Exchange) -> None:
        if reply.status in self._busy:
            self.hosts.failed(host, is_busy=True)
            self.hosts.pause(host, retry_after(reply.header("retry-after"), reply.header("date")))
        else:
            self.hosts.answered(host, reply.seconds)

    async def _exchange(
        self, url: str, address: str, headers: dict[str, str], limits: RequestLimits, wants_body: WantsBody
    ) -> Exchange:
        start = time.monotonic()
        scheme, _, authority, target = url.split("/", 3)
        tls = self._tls if scheme == "https:" else True
        lines = self._user_agent + "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        rate: MinimumRate | None = None
        truncated = None
        try:
            async with asyncio.timeout(limits.total_seconds) as deadline:
                request, answer = await self._connections.get(
                    f"{scheme}//{authority}", "/" + target, lines, tls, limits.timeout
                )
                with answer:
                    message = answer.message
                    captured = int(time.time())
                    # Judged by the head: a refused page or an image costs no body, only its connection.
                    body, has_body = b"", wants_body(message.code, message.raw_headers)
                    if has_body:
                        # Most bodies have come with the head and need no timer.
                        if limits.min_rate > 0 and not answer.content.is_eof():
                            rate = MinimumRate(deadline, limits.min_rate)
                        body = await read_body(
                            message.headers, answer.content, limits.max_bytes, limits.truncate, self._memory, rate
                        )
                        truncated = "disconnect" if answer.was_cut else None
        except FetchFailed:
            raise
        except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError) and rate is not None and rate.is_below:
                raise FetchFailed("too_slow", f"fewer than {limits.min_rate:g} bytes per second") from None
            raise failure_of(error) from None
        finally:
            if rate is not None:
                rate.close()
        version = message.version
        status_line = f"HTTP/{version.major}.{version.minor} {message.code} {message.reason or ''}"
        return Exchange(
            url=url,
            address=address,
            captured=captured,
            seconds=time.monotonic() - start,
            request=request,
            status=message.code,
            status_line=status_line.rstrip().encode("utf-8", "surrogateescape"),
            headers=message.raw_headers,
            body=body,
            has_body=has_body,
            truncated=truncated,
        )


@functools.lru_cache(maxsize=4096)  # called several times in a row for the same URL
def host_and_port(url: str) -> tuple[str, int]:
    """Return the host (without brackets) and port of a canonical URL.

    >>> host_and_port("http://[::1]:8080/"), host_and_port("https://example.com/")
    (('::1', 8080), ('example.com', 443))
    """
    return host_of(url).strip("[]"), port_of(url)
