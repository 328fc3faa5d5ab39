"""Takes pages from archives by the rules of the web, hop by hop, with `Visit` as on the web.

An archive has captures: responses that it stored. The live site's current opt-outs are checked before a capture is
requested. Archives are not trusted either: the fetcher's bounds and address rule apply to them too.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from webtext.base.web.content_coding import BodyError
from webtext.crawl.fetch.answers import Known, next_hop, objection, refuse_marked_page, text_type
from webtext.crawl.fetch.client.headers import is_redirect
from webtext.crawl.fetch.robots.cache import KeptFiles, origin_of, read_robots
from webtext.crawl.fetch.robots.check import OptOutCheck
from webtext.crawl.fetch.robots.robots_txt import Robots
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.pages.exchange import Exchange
from webtext.crawl.pages.reasons import NOT_ARCHIVED, ROBOTS_UNREACHABLE
from webtext.crawl.pages.visit import FetchFailed, FetchRefused, Visit


class Archive(Protocol):
    """An archive that is asked for one capture at a time."""

    name: str

    async def find(self, visit: Visit, url: str, voted: int) -> Exchange:
        """Return the best capture of `url` for a link that was voted for at `voted`, and count requests in `visit`.

        Raises FetchFailed, with the reason `not_archived` if none exists.
        """
        ...


Rank = tuple[bool, bool, bool, int]


@dataclass(frozen=True, slots=True)
class Preference:
    """The rule for the best capture of a page: the one nearest to the vote, or the newest one made before a moment."""

    before: int | None  # UTC seconds

    def rank(
        self, captured: int, voted: int, *, is_exact: bool, is_redirect: bool = False, is_truncated: bool = False
    ) -> Rank | None:
        """Return the rank of a capture (the lowest is the best), or None if the capture is too new.

        Pages rank before redirects, complete ones before truncated ones, the exact URL before others with its SURT key.

        >>> Preference(None).rank(90, 100, is_exact=True) < Preference(None).rank(120, 100, is_exact=True)
        True
        """
        if self.before is None:
            distance = abs(captured - voted)
        elif captured < self.before:
            distance = self.before - captured
        else:
            return None
        return is_redirect, is_truncated, not is_exact, distance


class CaptureJudge:
    """Decides which captures are taken as pages."""

    def __init__(self, opt_outs: OptOutCheck, settings: FetchSettings, known: Known) -> None:
        self.opt_outs = opt_outs
        self.known = known
        self._settings = settings
        self._stored = KeptFiles[Robots | None]()  # by archive and origin, of gone sites

    async def find(self, archive: Archive, url: str, voted: int, earlier: Visit) -> Visit:
        """Look up `url` in `archive` and follow its redirects. Never raises because of an archive's contents."""
        visit = dataclasses.replace(earlier, n_tries=earlier.n_tries + 1, redirects=[], evidence=[])
        visit.reason = visit.cause = visit.final_url = visit.status = None
        next_url: str | None = url
        with reasons(visit):
            while next_url is not None:
                self.known.check(visit, next_url)
                if not await self.opt_outs.ask_for_archive(visit, next_url):
                    await self._ask_archive(archive, visit, next_url, voted)
                next_url = self.take(visit, await archive.find(visit, next_url, voted))
        return visit

    async def _ask_archive(self, archive: Archive, visit: Visit, url: str, voted: int) -> None:
        """Check the robots.txt that the archive has of a site that is gone. Raises FetchRefused if it opts out."""
        place = (archive.name, origin_of(url))
        stored = self._stored.get(place)
        robots = stored[1] if stored else None
        if stored is None:
            try:
                robots = archived_robots(await archive.find(Visit(url=url), f"{origin_of(url)}/robots.txt", voted))
            except FetchFailed as failure:
                if failure.reason != NOT_ARCHIVED:
                    raise
            self._stored.keep(place, robots)
        await self.obey(visit, url, robots, archive.name)

    async def obey(self, visit: Visit, url: str, robots: Robots | None, archive: str) -> None:
        """Record the opt-outs for `url` in a gone site's archived robots.txt. Raises FetchRefused if it opts out."""
        if robots is not None:
            await self.opt_outs.apply(visit, url, robots, f" in {archive}")

    def take(self, visit: Visit, capture: Exchange) -> str | None:
        """Make `capture` the page of the visit and return None; for a redirect, return the URL to look up next.

        Raises FetchFailed or FetchRefused if it is neither a page nor a redirect, or if it may not be taken or followed.
        """
        self.known.check(visit, capture.url)
        visit.final_url, visit.status = capture.url, capture.status
        if is_redirect(capture.status):
            target = next_hop(visit, capture.url, capture.headers)
            self.known.check(visit, target)
            return target
        self._accept(visit, capture)
        return None

    def _accept(self, visit: Visit, capture: Exchange) -> None:
        visit.note_headers(capture)
        reason = objection(capture.status, capture.headers, self._settings)
        if reason is not None:
            raise FetchFailed(reason)
        if len(capture.body) > self._settings.max_bytes:
            raise FetchFailed("too_large", f"{len(capture.body)} bytes")
        refuse_marked_page(visit, capture, self._settings)
        capture.identified_type = text_type(capture)
        visit.exchange = capture


def archived_robots(capture: Exchange) -> Robots | None:
    """Parse an archived robots.txt; a redirect states nothing. Raises FetchRefused if it can't be read."""
    if is_redirect(capture.status):
        return None
    if capture.has_body:  # otherwise it is not text, or marked like a page, e.g. with noindex
        with contextlib.suppress(BodyError):
            return read_robots(capture)
    raise FetchRefused(ROBOTS_UNREACHABLE, "the archived robots.txt can't be read")


@contextlib.contextmanager
def reasons(visit: Visit) -> Iterator[None]:
    """Turn a FetchFailed or FetchRefused raised inside the context into the reason of the visit."""
    try:
        yield
    except (FetchFailed, FetchRefused) as error:
        visit.fail(error)


def not_archived(cause: str = "") -> FetchFailed:
    """Make the failure of a look-up that found nothing."""
    return FetchFailed(NOT_ARCHIVED, cause)
