"""Pages out of archives: the same rules as on the web, hop by hop, and the same `Visit`.

An archive gives captures: responses that somebody stored. What its site wishes today is asked first, of the living site.
What the archive gives is as hostile as the web: the bounds and the address rule of the fetcher hold for it too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from webtext.base.opt_outs import header_opt_outs
from webtext.crawl.fetch.client import lower_headers
from webtext.crawl.fetch.failures import Failure
from webtext.crawl.fetch.reasons import NOT_ARCHIVED
from webtext.crawl.fetch.redirects import is_redirect
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.fetch.visit import Known, Visit, next_hop, objection, refuse_marked_page, text_type
from webtext.crawl.pages.warc_writer import Exchange, Headers
from webtext.crawl.resolver import Refused
from webtext.crawl.wishes.wishes import Wishes


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A response as an archive holds it. `head` is its HTTP head byte for byte, where the archive gives records."""

    url: str  # canonical
    captured: int  # UTC seconds
    status: int
    headers: Headers
    body: bytes
    head: bytes | None = None
    origin: Sequence[tuple[str, str]] = ()  # fields for the record that say where it comes from


class Archive(Protocol):
    """Where captures are looked for one by one."""

    name: str

    async def find(self, visit: Visit, url: str, voted: int) -> Capture:
        """The best capture of `url` for a link that was voted for at `voted`; counts its requests in `visit`.

        Raises Failure, with `not_archived` where there is none.
        """
        ...


Rank = tuple[bool, bool, bool, int]


@dataclass(frozen=True, slots=True)
class Preference:
    """Which capture of a page is the best: the one nearest to the vote, or the newest one made before a moment."""

    before: int | None  # UTC seconds

    def rank(
        self, captured: int, voted: int, *, is_exact: bool, is_redirect: bool = False, is_truncated: bool = False
    ) -> Rank | None:
        """The lowest rank is the best; None for a capture that is too new.

        Pages come before redirects, whole ones before truncated ones, the very URL before another one under its key.

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


class Judge:
    """The rules that captures are taken by."""

    def __init__(self, wishes: Wishes, settings: FetchSettings, known: Known) -> None:
        self._wishes = wishes
        self._settings = settings
        self._known = known

    async def find(self, archive: Archive, url: str, voted: int, earlier: Visit | None = None) -> Visit:
        """Look `url` up in `archive` and follow it to its end. Never raises for what archives hold."""
        visit = Visit(url=url, source=archive.name, n_tries=1)
        if earlier is not None:
            visit.n_tries, visit.requests, visit.seconds = earlier.n_tries + 1, earlier.requests, earlier.seconds
        next_url: str | None = url
        with reasons(visit):
            while next_url is not None:
                await self.ask_site(visit, next_url)
                next_url = self.take(visit, await archive.find(visit, next_url, voted))
        return visit

    async def ask_site(self, visit: Visit, url: str) -> None:
        """Raises Refused where the living site of `url` wishes so, and Failure where there is none, unless that may be."""
        await self._wishes.ask_for_archive(visit, url)

    def check(self, visit: Visit, url: str) -> None:
        """Raises Failure where another row answers for `url`, to which the visit has come."""
        self._known.check(visit, url)

    def take(self, visit: Visit, capture: Capture) -> str | None:
        """Make `capture` the page of the visit; of a redirect, give the URL to go on with.

        Raises Failure or Refused where it is neither, or may not be followed.
        """
        self.check(visit, capture.url)
        visit.final_url, visit.status = capture.url, capture.status
        if is_redirect(capture.status):
            target = next_hop(visit, capture.url, capture.headers, self._settings.max_redirects)
            self.check(visit, target)
            return target
        self._accept(visit, capture)
        return None

    def _accept(self, visit: Visit, capture: Capture) -> None:
        headers = lower_headers(capture.headers)
        visit.note(header_opt_outs(headers))
        reason = objection(capture.status, capture.headers, self._settings)
        if reason is not None:
            raise Failure(reason)
        if len(capture.body) > self._settings.max_bytes:
            raise Failure("too_large", f"{len(capture.body)} bytes")
        refuse_marked_page(visit, capture.body, capture.headers, self._settings)
        coding = next((value for name, value in headers if name == "content-encoding"), "")
        visit.exchange = Exchange(
            url=capture.url,
            captured=capture.captured,
            status=capture.status,
            status_line=f"HTTP/1.1 {capture.status}".encode(),
            headers=capture.headers,
            body=capture.body,
            identified_type=text_type(capture.body, coding),
            head=capture.head,
            origin=capture.origin,
        )


@contextlib.contextmanager
def reasons(visit: Visit) -> Iterator[None]:
    """Where a Failure or Refused inside becomes the reason of the visit."""
    try:
        yield
    except (Failure, Refused) as error:
        visit.fail(error)


def not_archived(cause: str = "") -> Failure:
    """The failure of a look-up that found nothing."""
    return Failure(NOT_ARCHIVED, cause)
