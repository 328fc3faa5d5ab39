"""Hacker News: stories by time from Algolia's index, items by number from Firebase.

Algolia returns at most 1,000 hits per query, so a slice of time is halved until its stories fit. Its index can no
longer filter by points; the karma rule does that when the links are collected. Firebase has every item, one request
each, including comments and deleted, dead or missing items (`null`).
Documentation: hn.algolia.com/api and github.com/HackerNews/API.
"""

from __future__ import annotations

import asyncio
from typing import Any

from webtext.base.errors import NetworkError
from webtext.crawl.apis.api import Answer, Api
from webtext.crawl.apis.harvest import Step
from webtext.crawl.apis.settings import ApiSettings

MAX_HITS = 1000
FEW_HITS = 300  # below that, the next slice is twice as long
FIRST_SLICE_SECONDS = 86_400
ITEMS_AT_A_TIME = 64
CONCURRENT_ITEMS = 16


class StoriesByTime:
    """The stories created in [`start`, `end`), UTC seconds. A cursor is the start of the next slice."""

    api = "algolia"

    def __init__(self, api: Api, settings: ApiSettings, start: int, end: int) -> None:
        self._api = api
        self._url = settings.algolia_url.rstrip("/") + "/search_by_date"
        self._end = end
        self._slice_seconds = FIRST_SLICE_SECONDS
        self.first = str(start)

    async def ask(self, cursor: str) -> Step:
        """Return the stories of one slice."""
        start = int(cursor)
        while True:
            end = min(start + self._slice_seconds, self._end)
            answer, hits, fits = await self._hits(start, end)
            if fits:
                break
            if end - start <= 1:
                raise NetworkError(
                    f"Algolia returns only {len(hits):,} stories of second {start}, and has more",
                    "leave that second out, or request items by number: hackernews:8863..10000",
                )
            self._slice_seconds = (end - start) // 2
        if len(hits) < FEW_HITS:
            self._slice_seconds *= 2
        return Step(hits, answer.read, str(end) if end < self._end else None)

    async def _hits(self, start: int, end: int) -> tuple[Answer, list[Any], bool]:
        query = {
            "tags": "story",
            "numericFilters": f"created_at_i>={start},created_at_i<{end}",
            "hitsPerPage": str(MAX_HITS),
            "attributesToHighlight": "",
        }
        answer = await self._api.get(self._url, query)
        hits = answer.value.get("hits") if isinstance(answer.value, dict) else None
        n_found = answer.value.get("nbHits") if isinstance(answer.value, dict) else None
        if not isinstance(hits, list) or not isinstance(n_found, int):
            raise NetworkError(
                f"Algolia refused to list stories: status {answer.status}", "rerun the same command later"
            )
        return answer, hits, len(hits) < MAX_HITS and len(hits) >= n_found


class ItemsByNumber:
    """The items with numbers in [`start`, `end`). A cursor is the number of the next item."""

    api = "firebase"

    def __init__(self, api: Api, settings: ApiSettings, start: int, end: int) -> None:
        self._api = api
        self._url = settings.hacker_news_url.rstrip("/")
        self._end = end
        self._slots = asyncio.Semaphore(CONCURRENT_ITEMS)
        self.first = str(start)

    async def ask(self, cursor: str) -> Step:
        """Return the next items in order."""
        start = int(cursor)
        end = min(start + ITEMS_AT_A_TIME, self._end)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._item(number)) for number in range(start, end)]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        answers = [task.result() for task in tasks]
        read = min(answer.read for answer in answers)
        return Step([answer.value for answer in answers], read, str(end) if end < self._end else None)

    async def _item(self, number: int) -> Answer:
        async with self._slots:
            answer = await self._api.get(f"{self._url}/item/{number}.json", {})
        if not 200 <= answer.status < 300:
            raise NetworkError(
                f"Hacker News refused item {number}: status {answer.status}", "rerun the same command later"
            )
        return answer


async def newest_item(api: Api, settings: ApiSettings) -> int:
    """Return the number of the newest item."""
    answer = await api.get(settings.hacker_news_url.rstrip("/") + "/maxitem.json", {})
    if not isinstance(answer.value, int) or isinstance(answer.value, bool) or answer.value < 1:
        raise NetworkError(
            f"Hacker News did not return its newest item: status {answer.status}", "rerun the same command later"
        )
    return answer.value
