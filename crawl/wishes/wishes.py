"""What a site wishes today, asked before its page is taken: from the site itself, or from an archive that holds it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from webtext.base.opt_outs import obeyed
from webtext.base.urls import target_of
from webtext.crawl.fetch.client import Client, Limits, host_and_port
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.resolver import Refused
from webtext.crawl.wishes.opt_outs import robots_opt_outs
from webtext.crawl.wishes.robots_cache import RobotsCache

if TYPE_CHECKING:
    from webtext.crawl.fetch.visit import Visit


class Wishes:
    """Asks robots.txt of each origin once a day, also where it is not obeyed: what it says is recorded."""

    def __init__(self, client: Client, settings: FetchSettings) -> None:
        self._client = client
        self._settings = settings
        limits = Limits(
            max_bytes=settings.max_bytes,
            total_seconds=settings.total_seconds,
            connect_seconds=settings.connect_seconds,
        )
        self._robots = RobotsCache(client, limits, settings.retry_seconds)
        self._obeys_robots = settings.obey_robots or settings.obey_ai_robots or settings.obey_content_signal

    async def is_gone(self, url: str) -> bool:
        """Whether the host of `url` has a name that does not exist: nobody is there who could wish anything."""
        try:
            await self._client.resolver.address(*host_and_port(url))
        except socket.gaierror as error:
            return error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
        except (OSError, Refused):
            pass
        return False

    async def ask(self, visit: Visit, url: str) -> None:
        """Note in `visit` what the site of `url` wishes.

        Raises Refused for a wish that is obeyed, or an unknown one, and when the host is given up.
        """
        standing = self._client.hosts.refusal(host_and_port(url)[0])
        if standing is not None:
            raise Refused(standing)
        await self._client.address(url)
        robots = await self._robots.get(url)
        if robots is not None:
            found = robots_opt_outs(robots, target_of(url))
            visit.note(found)
            reason = obeyed(found, self._settings)
            if reason is not None:
                raise Refused(reason)
        elif self._obeys_robots:
            raise Refused("robots_unreachable")
