"""What a site wishes today, asked before its page is taken: from the site itself, or from an archive that holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webtext.base.opt_outs import obeyed
from webtext.base.urls import target_of
from webtext.crawl.fetch.client import Client, Limits, host_and_port
from webtext.crawl.fetch.failures import Failure
from webtext.crawl.fetch.reasons import HOST_KEPT_FAILING, ROBOTS_UNREACHABLE
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.fetch.silent_sites import SilentSites
from webtext.crawl.resolver import Refused
from webtext.crawl.wishes.opt_outs import robots_opt_outs
from webtext.crawl.wishes.robots_cache import RobotsCache, origin_of

if TYPE_CHECKING:
    from webtext.crawl.fetch.visit import Visit


_NOBODY_ANSWERED = frozenset({ROBOTS_UNREACHABLE, HOST_KEPT_FAILING, "dns_unanswered"})


class Wishes:
    """Asks robots.txt of each origin once a day, also where it is not obeyed: what it says is recorded."""

    def __init__(self, client: Client, settings: FetchSettings, silent: SilentSites) -> None:
        self._client = client
        self._silent = silent
        self._settings = settings
        limits = Limits(
            max_bytes=settings.max_bytes,
            total_seconds=settings.total_seconds,
            connect_seconds=settings.connect_seconds,
        )
        self._robots = RobotsCache(client, limits, silent, settings.retry_seconds)
        self._obeys_robots = settings.obey_robots or settings.obey_ai_robots or settings.obey_content_signal

    async def ask(self, visit: Visit, url: str) -> None:
        """Note in `visit` what the site of `url` wishes.

        Raises Refused for a wish that is obeyed, or an unknown one, and when the host is given up.
        """
        await self._ask(visit, url, once=False)

    async def ask_for_archive(self, visit: Visit, url: str) -> None:
        """As `ask`, for a page that an archive holds: each host is looked up once per run, so all its pages fare alike.

        With `take_gone_sites`, a site is not asked whose name does not exist, nor one that never answered in enough runs.
        """
        try:
            await self._ask(visit, url, once=True)
        except (Failure, Refused) as error:
            is_silent = error.reason in _NOBODY_ANSWERED and self._silent.is_gone(origin_of(url))
            if not (self._settings.take_gone_sites and (is_silent or error.reason == "dns_failed")):
                raise
            visit.note([ROBOTS_UNREACHABLE] if is_silent else [])

    def is_waiting(self, visit: Visit) -> bool:
        """Whether the visit failed at a site that never answered, for which a later run may take what archives hold."""
        return (
            self._settings.take_gone_sites
            and visit.reason in _NOBODY_ANSWERED
            and self._silent.is_waiting(origin_of(visit.asked))
        )

    async def _ask(self, visit: Visit, url: str, *, once: bool) -> None:
        visit.asked = url
        standing = self._client.hosts.refusal(host_and_port(url)[0])
        if standing is not None and not once:
            raise Refused(standing)
        try:
            await self._client.address(url, once=once)
        except Failure as failure:
            if failure.reason == "dns_unanswered":
                self._silent.did_not_answer(origin_of(url))
            raise
        if standing is not None:  # after the look-up: a host without an address is gone, however often it was asked for
            raise Refused(standing)
        robots = await self._robots.get(url)
        if not isinstance(robots, str):
            found = robots_opt_outs(robots, target_of(url))
            visit.note(found)
            reason = obeyed(found, self._settings)
            if reason is not None:
                raise Refused(reason)
        elif self._obeys_robots:
            raise Refused(ROBOTS_UNREACHABLE, robots)
