"""Visits one link: follows its URL, by the rules, to a page or to the reason why it has none.

Each hop checks, in this order: whether the host was given up, address, robots.txt, request, redirect, status, opt-outs
in headers, content type, opt-outs in meta tags. After a failure that may pass, the next try resumes at the hop that
failed.
"""

from __future__ import annotations

from webtext.crawl.fetch.answers import Known, limits_of, next_hop, objection, refuse_marked_page, text_type
from webtext.crawl.fetch.client.client import Client
from webtext.crawl.fetch.client.headers import is_redirect, retry_after
from webtext.crawl.fetch.robots.check import OptOutCheck
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.pages.exchange import Headers
from webtext.crawl.pages.reasons import REDIRECTS_TO_LINK
from webtext.crawl.pages.visit import FetchFailed, FetchRefused, Visit

HEADERS = {
    "Accept": "text/html,application/xhtml+xml,text/plain;q=0.9,text/markdown;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip",  # bodies are stored as they come, so ask only for what every WARC reader decodes
}


class Visitor:
    """Visits links on the web."""

    def __init__(self, client: Client, opt_outs: OptOutCheck, settings: FetchSettings, known: Known) -> None:
        self._client = client
        self._opt_outs = opt_outs
        self._settings = settings
        self._limits = limits_of(settings, of_page=True)
        self._known = known

    async def visit(self, visit: Visit) -> Visit:
        """Follow the visit's URL to its page, or resume an earlier try. Never raises because of what the web does."""
        visit.n_tries += 1
        visit.reason = visit.cause = None
        visit.retry_after = 0.0
        try:
            await self._follow(visit)
        except (FetchFailed, FetchRefused) as error:
            visit.fail(error)
        return visit

    async def _follow(self, visit: Visit) -> None:
        while True:
            self._known.check(visit, visit.at)
            await self._opt_outs.ask(visit, visit.at)
            reply = await self._client.get(visit.at, HEADERS, self._limits, self._wants_body, visit)
            visit.final_url, visit.status = visit.at, reply.status
            visit.seconds = (visit.seconds or 0.0) + reply.seconds
            visit.retry_after = retry_after(reply.header("retry-after"), reply.header("date"))
            if not is_redirect(reply.status):
                break
            visit.at = next_hop(visit, reply.url, reply.headers)
        visit.note_headers(reply)
        reason = objection(reply.status, reply.headers, self._settings) if not reply.has_body else None
        if reason is not None:
            raise FetchFailed(reason, f"Content-Type: {reply.header('content-type')}" if reason == "not_text" else "")
        reply.identified_type = text_type(reply)
        refuse_marked_page(visit, reply, self._settings)
        if visit.redirects and self._known.is_held(visit.at):  # by a link that was visited at the same time
            raise FetchFailed(REDIRECTS_TO_LINK)
        visit.exchange = reply

    def _wants_body(self, status: int, headers: Headers) -> bool:
        return objection(status, headers, self._settings) is None
