"""Processes one queue per host, each in one task, and many hosts at once. Links whose failure may pass are retried.

Many hosts share one address (blogs, content delivery networks), and an address takes one request at a time. If all of
them were begun, they would wait for each other in place of hosts that could be asked. So a host whose address has
enough visits under way is parked until one of them ends, as in Mercator (Heydon and Najork, 1999) and the workbench of
BUbiNG (Boldi et al., 2018). A parked host costs no task and no open queue. Hosts that were begun are finished first.

While a link waits for its next try, the other links of its host continue. Tries are not recorded on disk, so after a
kill such a link starts from its first try.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from webtext.base.errors import WebtextError
from webtext.crawl.fetch.page_source import Finish, Queue
from webtext.crawl.fetch.settings import MAX_JITTER, MIN_JITTER, RETRY_SECONDS, FetchSettings
from webtext.crawl.pages.visit import FetchFailed, QueuedLink, Visit

HOSTS_AT_ONCE = 10_000  # begun and not finished; 20 KiB each, with connection and clocks
VISITS_PER_ADDRESS = 4  # one has the address's turn; the others wait for it, for their host's, or for another address
MAX_WAITING = 1000  # links per host that may wait for a retry; beyond that, the host takes no new links

MakeVisit = Callable[[QueuedLink, Visit], Awaitable[Visit]]
"""Begins the visit of a link, or resumes it after an earlier try."""
Pause = Callable[[str], float]
"""Returns the seconds for which the host of a URL must still be left alone."""

logger = logging.getLogger(__name__)


class _Parked(Exception):
    """The host's address has enough visits under way."""


@dataclass(slots=True, kw_only=True)
class _Visit(Visit):
    """A visit that enters the first address it arrives at."""

    enter: Callable[[str], None]

    def arrive(self, address: str) -> None:
        self.enter(address)


@dataclass(slots=True, eq=False)
class _Address:
    """The visits under way at one address, and the hosts parked until one ends: none below VISITS_PER_ADDRESS."""

    n_visits: int = 0
    parked: deque[Queue] = field(default_factory=deque)


class HostQueues:
    """A source of pages (`crawl/fetch/page_source.py`) that visits links one by one."""

    def __init__(self, name: str, visit: MakeVisit, settings: FetchSettings, pause: Pause = lambda _: 0.0) -> None:
        self.name = name
        self._visit = visit
        self._pause = pause
        self._settings = settings

    async def run(self, queues: Iterable[Queue], finish: Finish) -> None:
        """Process all queues, HOSTS_AT_ONCE of them at a time: see `PageSource.run`."""
        self._finish = finish
        self._new = iter(queues)
        self._addresses: dict[str, _Address] = {}
        self._released: deque[tuple[Queue, str]] = deque()  # were parked, each with a visit at its address
        self._n_begun = 0
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._begin()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _begin(self) -> None:
        while self._n_begun < HOSTS_AT_ONCE:
            links, address = self._released.popleft() if self._released else (next(self._new, None), None)
            if links is None:
                return
            self._n_begun += 1
            self._tasks.create_task(self._process(links, address))

    async def _process(self, links: Queue, address: str | None) -> None:
        """Visit the links of a host, one by one. `address` is given if a visit there is reserved for the first."""
        queue, is_first = links(), True
        again: list[tuple[float, int, QueuedLink, Visit]] = []  # a heap, by the moment of the next try
        ticket = itertools.count()

        def enter(at: str) -> None:
            nonlocal address
            if address is None:
                self._enter(at, links if is_first else None)
                address = at

        while True:
            due = bool(again) and again[0][0] <= time.monotonic()
            earlier: Visit
            link = None if due or len(again) >= MAX_WAITING else next(queue, None)
            if link is not None:
                earlier = _Visit(url=link.url, source=self.name, at=link.url, enter=enter)
            elif again:
                moment, _, link, earlier = heapq.heappop(again)
                await asyncio.sleep(moment - time.monotonic())
            else:
                break
            if not is_first and (wait := self._pause(link.url)) > 0:
                await asyncio.sleep(wait)  # here, where it doesn't count as a visit of the address
            try:
                visit = await self._guarded(link, earlier)
            except _Parked:
                break
            if address is not None:
                self._leave(address)
            address, is_first = None, False
            if visit.may_pass and visit.n_tries <= self._settings.retries:
                heapq.heappush(again, (time.monotonic() + self._wait(visit), next(ticket), link, visit))
            else:
                self._finish(link, visit)
        self._n_begun -= 1
        self._begin()

    def _enter(self, address: str, new: Queue | None) -> None:
        """Count a visit at the address. A new host, given with its links, is parked if there are enough."""
        known = self._addresses.setdefault(address, _Address())
        if new is not None and known.n_visits >= VISITS_PER_ADDRESS:
            known.parked.append(new)
            raise _Parked
        known.n_visits += 1

    def _leave(self, address: str) -> None:
        """End a visit at the address, or pass it on to a parked host."""
        known = self._addresses[address]
        if known.parked and known.n_visits <= VISITS_PER_ADDRESS:
            self._released.append((known.parked.popleft(), address))
            self._begin()
            return
        known.n_visits -= 1
        if not known.n_visits:
            del self._addresses[address]

    async def _guarded(self, link: QueuedLink, earlier: Visit) -> Visit:
        """Visit a link. An unexpected exception becomes a failure of this link, so that it can't end the crawl."""
        try:
            return await self._visit(link, earlier)
        except (WebtextError, _Parked):  # the source itself is unusable
            raise
        except Exception as error:
            logger.exception("the fetcher raised at '%s'", link.url)
            visit = Visit(url=link.url, source=self.name)
            visit.fail(FetchFailed("fetcher_raised", repr(error)))
            return visit

    def _wait(self, visit: Visit) -> float:
        if 0.0 < visit.retry_after <= self._settings.max_pause:
            return visit.retry_after  # the site knows best
        return float(RETRY_SECONDS * 2.0 ** (visit.n_tries - 1) * random.uniform(MIN_JITTER, MAX_JITTER))
