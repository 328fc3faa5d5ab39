"""Processes one queue per host, each in one task, and many hosts at once. Links whose failure may pass are retried.

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
from collections.abc import Awaitable, Callable, Iterable, Iterator

from webtext.base.errors import WebtextError
from webtext.crawl.exchange.failures import Failure
from webtext.crawl.fetch.page_source import Answer
from webtext.crawl.pages.pages_set import Link
from webtext.crawl.visits.settings import MAX_JITTER, MIN_JITTER, FetchSettings
from webtext.crawl.visits.visit import Visit

HOSTS_AT_ONCE = 2048  # at a second or two between requests, enough for over 1,000 pages per second
MAX_WAITING = 1000  # links per host that may wait for a retry; beyond that, the host takes no new links

MakeVisit = Callable[[Link, Visit | None], Awaitable[Visit]]
"""Visits a link, or resumes an earlier visit of it."""

logger = logging.getLogger(__name__)


class HostQueues:
    """A source of pages (`crawl/fetch/page_source.py`) that visits links one by one."""

    def __init__(self, name: str, visit: MakeVisit, settings: FetchSettings) -> None:
        self.name = name
        self._visit = visit
        self._retries = settings.retries
        self._retry_seconds = settings.retry_seconds
        self._max_pause = settings.max_pause

    async def run(self, queues: Iterable[Iterator[Link]], answer: Answer) -> None:
        """Process all queues, HOSTS_AT_ONCE of them at a time: see `PageSource.run`."""
        waiting = iter(queues)
        try:
            async with asyncio.TaskGroup() as tasks:
                for queue in itertools.islice(waiting, HOSTS_AT_ONCE):
                    tasks.create_task(self._process_all(itertools.chain([queue], waiting), answer))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _process_all(self, queues: Iterator[Iterator[Link]], answer: Answer) -> None:
        for queue in queues:
            await self._process(queue, answer)

    async def _process(self, queue: Iterator[Link], answer: Answer) -> None:
        again: list[tuple[float, int, Link, Visit]] = []  # a heap, by the moment of the next try
        ticket = itertools.count()
        while True:
            due = bool(again) and again[0][0] <= time.monotonic()
            link = None if due or len(again) >= MAX_WAITING else next(queue, None)
            earlier = None
            if link is None:
                if not again:
                    return
                moment, _, link, earlier = heapq.heappop(again)
                await asyncio.sleep(moment - time.monotonic())
            visit = await self._guarded(link, earlier)
            if visit.may_pass and visit.n_tries <= self._retries:
                heapq.heappush(again, (time.monotonic() + self._wait(visit), next(ticket), link, visit))
            else:
                answer(link, visit)

    async def _guarded(self, link: Link, earlier: Visit | None) -> Visit:
        """Visit a link. An unexpected exception becomes a failure of this link, so that it can't end the crawl."""
        try:
            return await self._visit(link, earlier)
        except WebtextError:  # the source itself is unusable
            raise
        except Exception as error:
            logger.exception("the fetcher raised at '%s'", link.url)
            visit = Visit(url=link.url, source=self.name)
            visit.fail(Failure("fetcher_raised", repr(error)))
            return visit

    def _wait(self, visit: Visit) -> float:
        if 0.0 < visit.retry_after <= self._max_pause:
            return visit.retry_after  # the site knows best
        seconds: float = self._retry_seconds * 2.0 ** (visit.n_tries - 1) * random.uniform(MIN_JITTER, MAX_JITTER)
        return seconds
