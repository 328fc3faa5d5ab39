"""Politeness: one request at a time per host and per address, with a pause between the end of one and the next.

Many names share one server, so the pause holds for the address too. A host's own wish (`Crawl-delay`) holds for the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

MAX_CRAWL_DELAY = 30.0  # what a Crawl-delay may ask for at most, as Nutch and StormCrawler have it
MAX_PAUSE = 300.0  # what a Retry-After may ask for at most
CLOCKS_KEPT = 100_000


@dataclass(slots=True, eq=False)
class _Clock:
    free_at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Hosts:
    """The clocks of all hosts and addresses that were met."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._clocks: dict[str, _Clock] = {}
        self._crawl_delays: dict[str, float] = {}

    def ask_for_delay(self, host: str, crawl_delay: float | None) -> None:
        """Remember the Crawl-delay that `host` asks for, if it does."""
        if crawl_delay is not None and crawl_delay > self._delay:
            self._crawl_delays[host] = min(crawl_delay, MAX_CRAWL_DELAY)

    def pause(self, host: str, seconds: float) -> None:
        """Leave `host` alone for so long: it said that it has enough."""
        clock = self._clocks.setdefault(host, _Clock())
        clock.free_at = max(clock.free_at, time.monotonic() + min(seconds, MAX_PAUSE))

    @contextlib.asynccontextmanager
    async def turn(self, host: str, address: str) -> AsyncIterator[None]:
        """Hold the right to send one request to `host` at `address`; never take two turns at once."""
        async with self._held(host, self._crawl_delays.get(host, self._delay)), self._held(f"@{address}", self._delay):
            yield

    @contextlib.asynccontextmanager
    async def _held(self, name: str, delay: float) -> AsyncIterator[None]:
        clock = self._clocks.setdefault(name, _Clock())
        clock.users += 1
        try:
            async with clock.lock:
                await _sleep_until(clock.free_at)
                try:
                    yield
                finally:
                    clock.free_at = time.monotonic() + delay
        finally:
            clock.users -= 1
            self._forget_old()

    def _forget_old(self) -> None:
        if len(self._clocks) > CLOCKS_KEPT:
            now = time.monotonic()
            self._clocks = {k: c for k, c in self._clocks.items() if c.users or c.free_at > now}


async def _sleep_until(moment: float) -> None:
    wait = moment - time.monotonic()
    if wait > 0:
        await asyncio.sleep(wait)
