"""A cache of robots.txt by origin. A file is fetched when it is first needed and kept for a day (RFC 9309 §2.4).

It is fetched by the client that fetches pages, under the same limits. If it could not be fetched, it is requested again
when the first link that it blocked is retried.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import OrderedDict
from dataclasses import replace

from webtext.base.web.opt_outs import KNOWN_TOKENS, PRODUCT_TOKEN
from webtext.crawl.exchange.client import NO_ANSWER, Client, Limits, host_and_port
from webtext.crawl.exchange.failures import Failure, Refused
from webtext.crawl.exchange.messages import Exchange, is_redirect, redirect_target
from webtext.crawl.opt_outs.robots import MAX_ROBOTS_BYTES, Robots
from webtext.crawl.opt_outs.silent_sites import SilentSites
from webtext.crawl.visits.settings import MIN_JITTER, RETRY_SECONDS

MAX_ROBOTS_REDIRECTS = 5  # RFC 9309 §2.3.1.2
KEPT_SECONDS = 24 * 3600.0
ORIGINS_KEPT = 50_000
HEADERS = {"Accept": "text/plain,*/*;q=0.1", "Accept-Encoding": "identity"}


class RobotsCache:
    """Fetches each origin's robots.txt once a day. Pages that need it at the same time share one request."""

    def __init__(
        self, client: Client, limits: Limits, silent: SilentSites, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self._client = client
        self._silent = silent
        self._unreachable_seconds = retry_seconds * MIN_JITTER  # so that a link's next try asks again
        self._limits = replace(limits, max_bytes=MAX_ROBOTS_BYTES)
        self._known: OrderedDict[str, tuple[float, Robots | str]] = OrderedDict()
        self._running: dict[str, asyncio.Task[Robots | str]] = {}

    async def get(self, url: str) -> Robots | str:
        """Return the robots.txt that applies to `url`, or, if it could not be fetched, the reason as text.

        A robots.txt that could not be fetched forbids everything until it is requested again.
        """
        origin = origin_of(url)
        known = self._known.get(origin)
        if known is not None:
            kept = self._unreachable_seconds if isinstance(known[1], str) else KEPT_SECONDS
            if time.monotonic() - known[0] < kept:
                return known[1]
        if origin not in self._running:
            self._running[origin] = asyncio.create_task(self._ask(origin))
        return await asyncio.shield(self._running[origin])

    async def _ask(self, origin: str) -> Robots | str:
        try:
            robots = await self._fetch(f"{origin}/robots.txt")
            if not isinstance(robots, str):
                delay = robots.group(PRODUCT_TOKEN).crawl_delay
                self._client.hosts.ask_for_delay(host_and_port(origin + "/")[0], delay)
            self._known[origin] = (time.monotonic(), robots)
            while len(self._known) > ORIGINS_KEPT:
                self._known.popitem(last=False)
            return robots
        finally:
            del self._running[origin]

    async def _fetch(self, url: str) -> Robots | str:
        origin = origin_of(url)
        for hop in range(1 + MAX_ROBOTS_REDIRECTS):
            try:
                reply = await self._client.get(
                    url, HEADERS, self._limits, lambda status, _: 200 <= status < 300, truncate=True
                )
            except (Failure, Refused) as error:
                if hop == 0 and error.reason in NO_ANSWER:
                    self._silent.did_not_answer(origin)
                return str(error)
            self._silent.answered(origin)
            if not is_redirect(reply.status):
                return _read(reply)
            target = redirect_target(url, reply.headers)
            if target is None:
                return "bad_redirect"
            url = target
        return Robots(b"")  # RFC 9309: after too many redirects, the file counts as unavailable, so all is allowed


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a canonical URL.

    >>> origin_of("http://example.com:8080/a?b")
    'http://example.com:8080'
    """
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _read(reply: Exchange) -> Robots | str:
    """Parse a 2xx answer. A 4xx allows everything, except 429 ("slow down"), which counts as unreachable like 5xx."""
    if reply.has_body:
        return Robots(_decoded(reply.body, reply.header("content-encoding") or "")).keep_only(KNOWN_TOKENS)
    return Robots(b"") if 400 <= reply.status < 500 and reply.status != 429 else f"http_{reply.status}"


def _decoded(body: bytes, content_encoding: str) -> bytes:
    """Decompress the body, since some servers compress unasked: at most MAX_ROBOTS_BYTES, even of a bomb."""
    if content_encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return body
    try:
        return zlib.decompressobj(47).decompress(body, MAX_ROBOTS_BYTES)
    except zlib.error:
        return body
