"""A host is one queue, worked off by one task; many hosts at once. A link that may do better later comes back to its queue.

While a link waits for its next try the others of its host go on. Nothing is remembered of a try: a run that is killed
begins such a link anew.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from webtext.crawl.client import host_and_port
from webtext.crawl.fetch_settings import MAX_JITTER, MIN_JITTER
from webtext.crawl.pages_set import Link
from webtext.crawl.visit import Visit

BACKLOG = 100_000  # links that wait in their hosts' queues: bounds memory, whatever the size of the links set

MakeVisit = Callable[[Link, Visit | None], Awaitable[Visit]]
"""Visits a link, or goes on with an earlier visit of it."""


class HostQueues:
    """The queues of one run: links go in, `done` is called once for each with what came of it."""

    def __init__(
        self, visit: MakeVisit, done: Callable[[Link, Visit], None], *, retries: int, retry_seconds: float
    ) -> None:
        self._visit = visit
        self._done = done
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._queues: dict[str, deque[tuple[Link, Visit | None]]] = {}
        self._room = asyncio.Semaphore(BACKLOG)
        self._tasks: asyncio.TaskGroup | None = None
        self._n_open = 0
        self._all_done = asyncio.Event()

    async def run(self, links: Iterable[Link]) -> None:
        """Work all links off. An error of `visit` or `done` ends the run."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for link in links:
                    await self._room.acquire()
                    self._n_open += 1
                    self._enqueue(link, None)
                while self._n_open:
                    self._all_done.clear()
                    await self._all_done.wait()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _enqueue(self, link: Link, earlier: Visit | None) -> None:
        host, _ = host_and_port(link.url)
        if host in self._queues:
            self._queues[host].append((link, earlier))
        elif self._tasks is not None:
            self._queues[host] = deque([(link, earlier)])
            self._tasks.create_task(self._work_off(host))

    async def _work_off(self, host: str) -> None:
        queue = self._queues[host]
        while queue:
            link, earlier = queue.popleft()
            visit = await self._visit(link, earlier)
            if visit.may_pass and visit.n_tries <= self._retries:
                asyncio.get_running_loop().call_later(self._wait(visit), self._enqueue, link, visit)
            else:
                self._done(link, visit)
                self._room.release()
                self._n_open -= 1
                if not self._n_open:
                    self._all_done.set()
        del self._queues[host]

    def _wait(self, visit: Visit) -> float:
        seconds: float = self._retry_seconds * 2.0 ** (visit.n_tries - 1) * random.uniform(MIN_JITTER, MAX_JITTER)
        return seconds
