"""One link, from its URL to a page or to the reason why there is none: the rules, hop by hop.

At every hop, in this order: address, robots.txt, request, redirect, status, opt-outs in headers, kind of content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from webtext.crawl.client import Client, Failure, Limits, Reply, host_and_port, lower_headers
from webtext.crawl.fetch_settings import FetchSettings
from webtext.crawl.opt_outs import header_opt_outs, obeyed
from webtext.crawl.reasons import REDIRECTS_TO_LINK
from webtext.crawl.redirects import is_redirect, redirect_target
from webtext.crawl.resolver import Refused
from webtext.crawl.sniff import TEXT_TYPES, identified_type, media_type
from webtext.crawl.warc_writer import Exchange, Headers
from webtext.crawl.wishes import Wishes

PAGE_STATUSES = frozenset({200, 203})
BUSY_STATUSES = frozenset({429, 503})
HEADERS = {
    "Accept": "text/html,application/xhtml+xml,text/plain;q=0.9,text/markdown;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip",  # stored as it comes, so ask only for what every WARC reader decodes
}


@dataclass(slots=True, kw_only=True)
class Visit:
    """What came of one link. `reason` is None if and only if `exchange` holds a page."""

    url: str
    source: str = "web"  # what was asked
    reason: str | None = None
    exchange: Exchange | None = None
    final_url: str | None = None  # of the last response; for a link that leads to another, that one's URL
    redirects: list[str] = field(default_factory=list)  # the URLs that answered with a redirect
    status: int | None = None
    seconds: float | None = None  # of all exchanges, without waiting for turns
    requests: int = 0  # for pages; robots.txt is not counted
    cause: str | None = None  # what happened, for people
    opt_outs: list[str] = field(default_factory=list)  # wishes that held, obeyed or not

    def note(self, opt_outs: list[str]) -> None:
        """Record wishes, each once."""
        self.opt_outs += [wish for wish in opt_outs if wish not in self.opt_outs]


class Visitor:
    """Visits links. `is_link` tells URLs that have a row of their own, `is_held` those that a redirected link has got."""

    def __init__(
        self,
        client: Client,
        wishes: Wishes,
        settings: FetchSettings,
        *,
        is_link: Callable[[str], bool],
        is_held: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._wishes = wishes
        self._settings = settings
        self._limits = Limits(
            max_bytes=settings.max_bytes,
            total_seconds=settings.total_seconds,
            connect_seconds=settings.connect_seconds,
        )
        self._is_link = is_link
        self._is_held = is_held

    async def visit(self, url: str) -> Visit:
        """Follow `url` to its end. Never raises for what the web does."""
        visit = Visit(url=url)
        try:
            await self._follow(visit)
        except (Failure, Refused) as error:
            visit.reason, visit.cause = error.reason, getattr(error, "cause", None)
        return visit

    async def _follow(self, visit: Visit) -> None:
        url = visit.url
        while True:
            reply = await self._request(visit, url)
            visit.final_url, visit.status = url, reply.status
            visit.seconds = (visit.seconds or 0.0) + reply.seconds
            if not is_redirect(reply.status):
                break
            url = self._next(visit, reply)
            if self._is_link(url) or self._is_held(url):
                visit.final_url = url
                raise Failure(REDIRECTS_TO_LINK)
        if reply.status in BUSY_STATUSES:
            self._client.hosts.pause(host_and_port(url)[0], retry_after(reply.header("retry-after")))
        visit.reason = objection(reply.status, reply.headers, self._settings)
        visit.note(header_opt_outs(lower_headers(reply.headers)))
        if visit.reason is None:
            visit.exchange = _exchange(reply)
            if visit.redirects and self._is_held(url):  # by a link that was under way at the same time
                visit.exchange, visit.reason = None, REDIRECTS_TO_LINK

    async def _request(self, visit: Visit, url: str) -> Reply:
        await self._wishes.ask(visit, url)
        visit.requests += 1
        return await self._client.get(url, HEADERS, self._limits, self._wants_body)

    def _next(self, visit: Visit, reply: Reply) -> str:
        return next_hop(visit, reply.url, reply.headers, self._settings.max_redirects)

    def _wants_body(self, status: int, headers: Headers) -> bool:
        return objection(status, headers, self._settings) is None


def next_hop(visit: Visit, url: str, headers: Headers, max_redirects: int) -> str:
    """Where the redirect that `url` answered with leads. Raises Failure where the visit may not go on."""
    visit.redirects.append(url)
    target = redirect_target(url, headers)
    if target is None:
        raise Failure("bad_redirect")
    if target in visit.redirects:
        raise Failure("redirect_loop")
    if len(visit.redirects) > max_redirects:
        raise Failure("too_many_redirects")
    return target


def objection(status: int, headers: Headers, settings: FetchSettings) -> str | None:
    """Why an answer is not a page we may keep, told from its head alone."""
    if status not in PAGE_STATUSES:
        return f"http_{status}"
    known = lower_headers(headers)
    opted_out = obeyed(header_opt_outs(known), settings)
    if opted_out is not None:
        return opted_out
    kind = media_type(next((value for name, value in known if name == "content-type"), None))
    return None if kind is None or kind in TEXT_TYPES else "not_text"


def text_type(body: bytes, content_encoding: str) -> str | None:
    """The type that the body's first bytes tell, None when they tell none. Raises Refused when it is no text's."""
    identified = identified_type(body, content_encoding)
    if identified is not None and identified not in TEXT_TYPES:
        raise Refused("not_text")
    return identified


def retry_after(value: str | None) -> float:
    """The seconds that a Retry-After header asks for, 0 when it asks for none; its form as a date is not read.

    >>> retry_after("120"), retry_after("Fri, 31 Dec 1999 23:59:59 GMT"), retry_after(None)
    (120.0, 0.0, 0.0)
    """
    text = (value or "").strip()
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _exchange(reply: Reply) -> Exchange:
    """The reply as it is stored. Raises Refused when its first bytes are no text's."""
    body = reply.body or b""
    identified = text_type(body, reply.header("content-encoding") or "")
    return Exchange(
        url=reply.url,
        captured=reply.captured,
        address=reply.address,
        method_line=reply.method_line,
        request_headers=reply.request_headers,
        status=reply.status,
        status_line=reply.status_line,
        headers=reply.headers,
        body=body,
        identified_type=identified,
    )
