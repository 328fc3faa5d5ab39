"""A host is one queue, worked off by one task; many hosts at once. A link that may do better later comes back to its queue.

While a link waits for its next try the others of its host go on. Nothing is remembered of a try: a run that is killed
begins such a link anew.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator

from webtext.crawl.fetch_settings import MAX_JITTER, MIN_JITTER
from webtext.crawl.pages_set import Link
from webtext.crawl.visit import Visit

HOSTS_AT_ONCE = 2048  # at a second or two between requests, enough for over a thousand pages a second
MOST_WAITING = 1000  # links of one host that wait for another try; then the host waits with them

MakeVisit = Callable[[Link, Visit | None], Awaitable[Visit]]
"""Visits a link, or goes on with an earlier visit of it."""


class HostQueues:
    """Works off the queues of one run; `done` is called once for each link with what came of it."""

    def __init__(
        self, visit: MakeVisit, done: Callable[[Link, Visit], None], *, retries: int, retry_seconds: float
    ) -> None:
        self._visit = visit
        self._done = done
        self._retries = retries
        self._retry_seconds = retry_seconds

    async def run(self, queues: Iterable[Iterator[Link]]) -> None:
        """Work all queues off, HOSTS_AT_ONCE of them at a time. An error of `visit` or `done` ends the run."""
        waiting = iter(queues)
        try:
            async with asyncio.TaskGroup() as tasks:
                for queue in itertools.islice(waiting, HOSTS_AT_ONCE):
                    tasks.create_task(self._work_off_all(itertools.chain([queue], waiting)))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _work_off_all(self, queues: Iterator[Iterator[Link]]) -> None:
        for queue in queues:
            await self._work_off(queue)

    async def _work_off(self, queue: Iterator[Link]) -> None:
        again: list[tuple[float, int, Link, Visit]] = []  # a heap, by the moment of the next try
        ticket = itertools.count()
        while True:
            due = bool(again) and again[0][0] <= time.monotonic()
            link = None if due or len(again) >= MOST_WAITING else next(queue, None)
            earlier = None
            if link is None:
                if not again:
                    return
                moment, _, link, earlier = heapq.heappop(again)
                await asyncio.sleep(moment - time.monotonic())
            visit = await self._visit(link, earlier)
            if visit.may_pass and visit.n_tries <= self._retries:
                heapq.heappush(again, (time.monotonic() + self._wait(visit), next(ticket), link, visit))
            else:
                self._done(link, visit)

    def _wait(self, visit: Visit) -> float:
        seconds: float = self._retry_seconds * 2.0 ** (visit.n_tries - 1) * random.uniform(MIN_JITTER, MAX_JITTER)
        return seconds
