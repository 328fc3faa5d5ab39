"""Links in, pages out: every link gets a row with what came of it, every page a WARC record.

A host is one queue, worked off politely by one task; many hosts at once. Fetching is no pure function, so it writes its
part set itself (`crawl/pages_set.py`): part by part, resumable after any death by giving the same command again.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from webtext.base.config import recipe_settings
from webtext.base.errors import ConfigError, InputError
from webtext.base.partset import PartSet
from webtext.base.progress import Progress
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.crawl.addresses import AddressRule, AllowedAddress, is_loopback_host
from webtext.crawl.client import Client, host_and_port
from webtext.crawl.fetch_settings import FetchSettings
from webtext.crawl.hosts import Hosts
from webtext.crawl.link_table import LinkTable
from webtext.crawl.pages_set import Link, PagesSet, user_agent
from webtext.crawl.visit import Visit, Visitor
from webtext.crawl.wishes import Wishes

__all__ = ["FetchSettings", "fetch_pages"]

logger = logging.getLogger(__name__)

CODE_VERSION = 2
BACKLOG = 100_000  # links that wait in their hosts' queues: bounds memory, whatever the size of the links set


def fetch_pages(links: str, out: str, settings: FetchSettings, run: Run) -> PartSet | None:
    """Fetch every link of the set `links` that has no row yet in the pages set `out`, and seal it.

    Raises ConfigError when a link leaves this machine and there is no contact, before anything is sent; InputError when
    `out` was begun with other settings or other links. Ctrl-C publishes what is complete. None under `run.dry_run`.
    """
    started = time.time()
    parent = PartSet.open(links, "links")
    recipe = Recipe(stage="crawl.fetch", code_version=CODE_VERSION, settings=recipe_settings(settings))
    pages = PagesSet(out, recipe, parent, settings)
    table = LinkTable(_column(parent, "link_id"))
    n_gone = pages.done.missing_from(table)
    if n_gone:
        raise InputError(
            f"'{out}' has pages of {n_gone:,} links that '{links}' does not hold",
            "choose another --out for these links",
        )
    if settings.contact is None:
        _check_loopback(parent)
    n_missing = len(table) - len(pages.done)
    run.console.say(f"crawl.fetch: {len(table):,} links, {len(pages.done):,} done, {n_missing:,} to fetch")
    if run.dry_run:
        return None
    if n_missing or pages.is_under_way:
        _crawl(parent, table, pages, settings, n_missing, run)
    about = {"started": started, "seconds": time.time() - started, "host": platform.node(), "workers": 1}
    return pages.seal(about)


def _check_loopback(links: PartSet) -> None:
    for url in _column(links, "url"):
        host, _ = host_and_port(url)
        if not is_loopback_host(host):
            raise ConfigError(
                f"no contact: '{url}' is not on this machine, and its owner could not reach you",
                "give --contact with an e-mail address or a URL; it is sent in the User-Agent",
            )


def _crawl(
    links: PartSet, table: LinkTable, pages: PagesSet, settings: FetchSettings, n_missing: int, run: Run
) -> None:
    missing = (link for link in _links(links) if link.link_id not in pages.done)
    with pages.writing(), run.console.progress(n_missing, "crawl.fetch", "links") as progress:
        try:
            asyncio.run(_Crawl(table, pages, settings, progress).run(missing))
        except KeyboardInterrupt:
            pages.publish()
            raise
        pages.publish()


class _Crawl:
    """One run of the crawl: hosts' queues and the tasks that work them off."""

    def __init__(self, table: LinkTable, pages: PagesSet, settings: FetchSettings, progress: Progress) -> None:
        self._table = table
        self._pages = pages
        self._settings = settings
        self._progress = progress
        self._queues: dict[str, deque[Link]] = {}
        self._room = asyncio.Semaphore(BACKLOG)

    async def run(self, links: Iterator[Link]) -> None:
        """Visit all links; an error in writing ends the run, what the web does never."""
        contact = self._settings.contact
        allowed = tuple(AllowedAddress.parse(text) for text in self._settings.allow_address)
        rule = AddressRule(allowed, has_contact=contact is not None)
        hosts = Hosts(self._settings.delay)
        try:
            async with (
                Client(user_agent(contact), rule, hosts, self._settings.concurrency) as client,
                asyncio.TaskGroup() as tasks,
            ):
                wishes = Wishes(client, self._settings)
                visitor = Visitor(
                    client, wishes, self._settings, is_link=self._table.has_url, is_held=self._pages.held.has_url
                )
                for link in links:
                    await self._room.acquire()
                    host, _ = host_and_port(link.url)
                    if host in self._queues:
                        self._queues[host].append(link)
                    else:
                        self._queues[host] = deque([link])
                        tasks.create_task(self._work_off(host, visitor))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _work_off(self, host: str, visitor: Visitor) -> None:
        queue = self._queues[host]
        while queue:
            link = queue.popleft()
            visit = await _guarded(visitor, link.url)
            self._pages.add(link, visit)
            self._room.release()
            self._progress.advance(note=f"{self._pages.n_pages:,} pages, {self._pages.n_bytes / 2**20:,.0f} MiB")
        del self._queues[host]


async def _guarded(visitor: Visitor, url: str) -> Visit:
    """The boundary where one page's surprise stays that page's: it is a counted reason, never the end of a crawl."""
    try:
        return await visitor.visit(url)
    except Exception:
        logger.exception("the fetcher raised at '%s'", url)
        return Visit(url=url, reason="fetcher_raised")


def _links(links: PartSet) -> Iterator[Link]:
    for row in _rows(links, ["link_id", "url", "karma", "split", "first_created"]):
        yield Link(voted=row.pop("first_created"), **row)


def _column(links: PartSet, name: str) -> Iterator[str]:
    for row in _rows(links, [name]):
        yield row[name]


def _rows(links: PartSet, columns: list[str]) -> Iterator[dict[str, Any]]:
    for part in links.parts:
        for batch in links.batches(part, columns, batch_size=8192):
            yield from batch.to_pylist()
