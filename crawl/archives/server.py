"""Sends polite requests to an archive's server: few connections, a pause on each, and fewer requests when it is busy.

Archives are free and shared by everybody. An answer that means "too much" (403, 429, 503 and the like) makes all
connections wait: for as long as Retry-After says, or twice as long each time, and at least a second per retry. If an
archive stops answering, or asks for more than MAX_RETRY_SECONDS, the run ends with an error and can be resumed later;
only the first few links fail. Both
pauses are recorded with the hosts' clocks, so that a run that is killed and restarted keeps them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Collection, Sequence

from webtext.base.errors import NetworkError
from webtext.crawl.fetch.client.client import Client, RequestLimits, WantsBody
from webtext.crawl.fetch.client.failures import BAD_RESPONSES
from webtext.crawl.fetch.client.headers import retry_after
from webtext.crawl.fetch.hosts import Hosts
from webtext.crawl.pages.exchange import Exchange
from webtext.crawl.pages.reasons import ARCHIVE_UNAVAILABLE
from webtext.crawl.pages.visit import FetchFailed, FetchRefused, Visit

RETRY_SECONDS = 1.0  # the shortest pause before a retry; it doubles with each
MAX_RETRY_SECONDS = 300.0
TRIES = 6
MAX_LOST = 5  # requests in a row that failed after all tries
BUSY_STATUSES = frozenset({429, 500, 502, 503, 504})
_LATER = "fetched pages are kept: rerun the same command later"


class ArchiveServer:
    """Sends requests to one archive over the given open clients, each of which sends one at a time."""

    def __init__(
        self,
        name: str,
        clients: Sequence[Client],
        limits: RequestLimits,
        hosts: Hosts,
        *,
        busy: Collection[int] = BUSY_STATUSES,
    ) -> None:
        """`hosts` has the clocks of this run and of earlier ones, including the archive's."""
        self._name = name
        self._hosts = hosts
        self._clock = f"archive {ascii(name)}"
        self._free: asyncio.Queue[Client] = asyncio.Queue()
        for client in clients:
            self._free.put_nowait(client)
        self._limits = limits
        self._delay = max(client.hosts.pace.delay for client in clients)
        self._busy = busy
        wait = hosts.wait(self._clock)
        self._quiet_until = time.monotonic() + wait
        self._is_slow = wait > RETRY_SECONDS
        self._n_lost = 0

    async def get(
        self, url: str, headers: dict[str, str], wants_body: WantsBody, visit: Visit, max_bytes: int
    ) -> Exchange:
        """GET `url` from the archive in up to TRIES tries, and add requests and seconds to `visit`.

        Raises FetchFailed if all tries fail, and NetworkError after MAX_LOST such requests in a row or if the archive's
        address is not allowed.
        """
        limits = dataclasses.replace(self._limits, max_bytes=max_bytes)
        for attempt in range(TRIES):
            client = await self._free.get()
            try:
                await self._wait()
                visit.requests += 1
                reply = await client.get(url, headers, limits, wants_body)
            except FetchFailed as error:
                if error.reason in {"too_large", *BAD_RESPONSES}:
                    raise
                failure, wanted = error, 0.0
            except FetchRefused as error:
                raise NetworkError(
                    f"requests to the archive '{self._name}' are not allowed: {error.reason}",
                    "see --contact and --allow-address",
                ) from None
            else:
                visit.seconds = (visit.seconds or 0.0) + reply.seconds
                if reply.status not in self._busy:
                    self._n_lost, self._is_slow = 0, False
                    return reply
                failure = FetchFailed(ARCHIVE_UNAVAILABLE, f"HTTP status {reply.status}")
                wanted = retry_after(reply.header("retry-after"), reply.header("date"))
            finally:
                self._free.put_nowait(client)
            pause = max(wanted, min(RETRY_SECONDS * 2**attempt, MAX_RETRY_SECONDS))
            self._quiet_until, self._is_slow = max(self._quiet_until, time.monotonic() + pause), True
            self._hosts.pause(self._clock, pause)
        self._n_lost += 1
        if self._n_lost >= MAX_LOST:
            raise NetworkError(f"the archive '{self._name}' does not answer: {failure}", _LATER)
        raise FetchFailed(ARCHIVE_UNAVAILABLE, str(failure))

    async def _wait(self) -> None:
        """Wait until a request may be sent. After a "too much", requests go one at a time until an answer comes."""
        while (wait := self._quiet_until - time.monotonic()) > 0:
            if wait > MAX_RETRY_SECONDS:
                raise NetworkError(f"the archive '{self._name}' asks for a pause of {wait:,.0f} s", _LATER)
            await asyncio.sleep(wait)
        if self._is_slow:
            self._quiet_until = time.monotonic() + RETRY_SECONDS
        self._hosts.pause(self._clock, self._delay)
