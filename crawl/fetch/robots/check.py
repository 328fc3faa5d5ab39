"""Check a site's current robots.txt and tdmrep.json before taking one of its pages, from the site or from an archive."""

from __future__ import annotations

import math
import time

from webtext.base.web.opt_outs import AI_TRAINING_CRAWLERS, OPT_OUTS, PRODUCT_TOKEN, obeyed
from webtext.base.web.urls import target_of
from webtext.crawl.fetch.answers import limits_of
from webtext.crawl.fetch.client.client import Client, host_and_port
from webtext.crawl.fetch.hosts import MAX_CRAWL_DELAY
from webtext.crawl.fetch.robots.cache import RobotsCache, SilentSites, origin_of
from webtext.crawl.fetch.robots.robots_txt import TDM_PATH, Robots
from webtext.crawl.fetch.settings import WEB, FetchSettings
from webtext.crawl.pages.reasons import CRAWL_DELAY_TOO_LONG, HOST_KEPT_FAILING, ROBOTS_UNREACHABLE
from webtext.crawl.pages.visit import FetchFailed, FetchRefused, Visit

_NOBODY_ANSWERED = frozenset({ROBOTS_UNREACHABLE, HOST_KEPT_FAILING, "dns_unanswered"})


class OptOutCheck:
    """Checks robots.txt, once a day per origin. It is read and recorded even if settings say not to obey it."""

    def __init__(self, client: Client, settings: FetchSettings, silent: SilentSites) -> None:
        self._client = client
        self._silent = silent
        self._settings = settings
        # The pages of slower sites come from archives only, if any are asked.
        max_delay = MAX_CRAWL_DELAY if settings.sources == (WEB,) else math.inf
        max_tdm_delay = max_delay if settings.obey_tdm_reservation else None
        self._robots = RobotsCache(client, limits_of(settings), silent, max_tdm_delay)
        self._obeys_robots = settings.obey_robots or settings.obey_ai_robots or settings.obey_content_signal

    async def ask(self, visit: Visit, url: str) -> None:
        """Record in `visit` the opt-outs that the site's robots.txt states for `url`.

        Raises FetchRefused if an obeyed opt-out applies, if robots.txt can't be fetched or asks for longer delays than
        MAX_CRAWL_DELAY, or if the host was given up. Raises FetchFailed if the host has no address.
        """
        robots = await self._ask(visit, url, once=False)
        delay = robots.group(PRODUCT_TOKEN).crawl_delay if robots is not None else None
        if delay is not None and delay > MAX_CRAWL_DELAY and self._settings.obey_robots:
            raise FetchRefused(CRAWL_DELAY_TOO_LONG, f"Crawl-delay: {delay:g}")

    async def ask_for_archive(self, visit: Visit, url: str) -> bool:
        """Like `ask`, for a page from an archive: each host is looked up once per run, and a Crawl-delay of any length
        is fine, because the site's pages are not requested.

        With `take_gone_sites`, return False for a site that is gone: its host name does not exist, or it never answered
        in GONE_RUNS runs over GONE_DAYS days.
        """
        try:
            await self._ask(visit, url, once=True)
            return True
        except (FetchFailed, FetchRefused) as error:
            is_silent = error.reason in _NOBODY_ANSWERED and self._silent.is_gone(origin_of(url))
            if not (self._settings.take_gone_sites and (is_silent or error.reason == "dns_failed")):
                raise
            visit.note([ROBOTS_UNREACHABLE] * is_silent, f"{origin_of(url)}/robots.txt", int(time.time()))
            return False

    def is_waiting(self, visit: Visit) -> bool:
        """Whether the visit failed at a site that never answered, so that a later run may take the archived page."""
        return (
            self._settings.take_gone_sites
            and visit.reason in _NOBODY_ANSWERED
            and self._silent.is_waiting(origin_of(visit.asked))
        )

    async def _ask(self, visit: Visit, url: str, *, once: bool) -> Robots | None:
        visit.asked = url
        refusal = self._client.hosts.refusal(host_and_port(url)[0])
        if refusal is not None and not once:
            raise FetchRefused(refusal)
        try:
            visit.arrive(await self._client.address(url, once=once))
        except (FetchFailed, FetchRefused) as error:
            if error.reason in ("dns_unanswered", HOST_KEPT_FAILING):  # the latter of its address
                self._silent.did_not_answer(origin_of(url))
            raise
        if refusal is not None:  # only after the look-up, so that a host without an address counts as gone
            raise FetchRefused(refusal)
        robots = await self._robots.get(url)
        if not isinstance(robots, str):
            await self.apply(visit, url, robots)
            return robots
        if self._obeys_robots:
            raise FetchRefused(ROBOTS_UNREACHABLE, robots)
        return None

    async def apply(self, visit: Visit, url: str, robots: Robots, archive: str = "") -> None:
        """Record the opt-outs for `url` in `robots`, from the site or an archive. Raises FetchRefused if an opt-out is obeyed."""
        found = await robots.judged(robots_opt_outs, robots, target_of(url))
        for each in found:
            place = TDM_PATH if each == "tdm_reserved" else "/robots.txt"
            visit.note([each], origin_of(url) + place + archive, robots.fetched)
        reason = obeyed(found, self._settings)
        if reason is not None:
            raise FetchRefused(reason)


def robots_opt_outs(robots: Robots, path: str) -> list[str]:
    """Return the opt-outs of a site's files for `path` (with query), in the table's order, whether obeyed or not."""
    if robots.is_silent:
        return []
    own, others = robots.group(PRODUCT_TOKEN), robots.own_groups(AI_TRAINING_CRAWLERS)
    stated = (own, robots.outside, *others)
    found = {
        "robots_disallowed": not own.allows(path),
        "robots_disallowed_ai_training": not all(group.allows(path) for group in others),
        "content_signal_no_training": any(group.content_signal.get("ai-train") == "no" for group in stated),
        "content_usage_no_training": any(group.forbids_training(path) for group in stated),
        "tdm_reserved": robots.tdm_file.reserves(path),
    }
    return [reason for reason in OPT_OUTS if found.get(reason)]
