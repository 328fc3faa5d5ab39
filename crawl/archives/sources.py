"""Opens the archives that the settings name as sources of pages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection

from webtext.crawl.archives.captures import Archive, CaptureJudge, Preference
from webtext.crawl.archives.server import BUSY_STATUSES, MAX_RETRY_SECONDS, ArchiveServer
from webtext.crawl.archives.wayback import Wayback
from webtext.crawl.fetch.answers import Known, limits_of
from webtext.crawl.fetch.client.addresses import AddressRule
from webtext.crawl.fetch.client.client import Client
from webtext.crawl.fetch.host_queues import HostQueues
from webtext.crawl.fetch.hosts import MAX_DELAY, Hosts, Pace
from webtext.crawl.fetch.page_source import PageSource
from webtext.crawl.fetch.robots.check import OptOutCheck
from webtext.crawl.fetch.settings import COMMON_CRAWL, WARC, WAYBACK, FetchSettings
from webtext.crawl.user_agent import user_agent

CONNECTIONS = 4  # to Common Crawl's file server, each with its pause; it answers 403 or 503 to more


async def open_archives(
    settings: FetchSettings,
    opt_outs: OptOutCheck,
    known: Known,
    rule: AddressRule,
    hosts: Hosts,
    stack: contextlib.AsyncExitStack,
) -> dict[str, PageSource]:
    """Open the archives that `settings.sources` name. `hosts` keeps their clocks across runs; `stack` closes them."""
    judge = CaptureJudge(opt_outs, settings, known)
    preference = Preference(settings.before)
    limits = limits_of(settings)
    found: dict[str, PageSource] = {}
    if COMMON_CRAWL in settings.sources:
        from webtext.crawl.archives.common_crawl import CommonCrawl  # imports pyarrow.dataset, 25 MiB

        server = None
        if settings.cc_data.startswith(("http://", "https://")):
            busy = BUSY_STATUSES | {403}  # Common Crawl's file server uses 403 for "slow down"
            clients = [await stack.enter_async_context(_client(settings, rule, busy)) for _ in range(CONNECTIONS)]
            server = ArchiveServer(settings.cc_data, clients, limits, hosts, busy=busy)
        found[COMMON_CRAWL] = CommonCrawl(server, judge, settings, preference)
    if WAYBACK in settings.sources:
        client = await stack.enter_async_context(_client(settings, rule))
        server = ArchiveServer(settings.wayback_replay, [client], limits, hosts)
        found[WAYBACK] = _one_by_one(judge, Wayback(server, settings, preference), settings)
    if WARC in settings.sources:
        from webtext.crawl.archives.replay import WarcReplay

        replay = stack.enter_context(WarcReplay(settings.warc, preference, settings.max_bytes))
        found[WARC] = _one_by_one(judge, replay, settings)
    return found


def _client(settings: FetchSettings, rule: AddressRule, busy: Collection[int] = BUSY_STATUSES) -> Client:
    """Make a client for one connection. It never gives a host up, because `ArchiveServer` decides that."""
    pace = Pace(
        delay=settings.archive_delay,
        concurrency=1,
        max_delay=MAX_DELAY,
        max_pause=MAX_RETRY_SECONDS,
        max_host_failures=sys.maxsize,
    )
    return Client(user_agent(settings.contact), rule, Hosts(pace), busy)


def _one_by_one(judge: CaptureJudge, archive: Archive, settings: FetchSettings) -> HostQueues:
    return HostQueues(archive.name, lambda link, earlier: judge.find(archive, link.url, link.voted, earlier), settings)
