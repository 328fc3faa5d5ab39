"""The rules for every answer, from the web or an archive: redirects, statuses, types, opt-outs.

Only text is kept, by the page's Content-Type and its first bytes: a subset of the WHATWG MIME sniffing standard, enough
to catch an image or a PDF that is labelled text/html, and HTML that has no label. At most 1,445 bytes are decoded here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from webtext.base.web.content_coding import BodyError, decoded_start, looks_like_text
from webtext.base.web.http_head import media_type
from webtext.base.web.opt_outs import body_opt_outs, header_opt_outs, obeyed
from webtext.crawl.fetch.client.client import RequestLimits
from webtext.crawl.fetch.client.headers import redirect_target
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.pages.exchange import Exchange, Headers, lower_headers
from webtext.crawl.pages.reasons import EXCLUDED_DOMAIN, REDIRECTS_TO_LINK
from webtext.crawl.pages.visit import MAX_CAUSE, FetchFailed, FetchRefused, Visit
from webtext.crawl.tracking import without_tracking

PAGE_STATUSES = frozenset({200, 203})
CONNECT_SECONDS = 15.0  # the longest time to connect: four tries of TCP's first packet
MIN_RATE = 500.0  # bytes per second on average, after ten seconds; slower bodies hold a host's turn for nothing
MAX_REDIRECTS = 5  # as for robots.txt (RFC 9309); longer chains are nearly always loops through a log-in
TEXT_TYPES = frozenset({"text/html", "application/xhtml+xml", "text/plain", "text/markdown", "text/x-markdown"})

SNIFFED_BYTES = 1445  # the resource header of WHATWG MIME Sniffing §5.2
GLANCED_BYTES = 64  # enough to identify most pages, at half the cost
_MAGIC = {
    b"%PDF-": "application/pdf",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b\x08": "application/gzip",
    b"7z\xbc\xaf\x27\x1c": "application/x-7z-compressed",
    b"OggS\x00": "application/ogg",
    b"\x1aE\xdf\xa3": "video/webm",
    b"ID3": "audio/mpeg",
    b"%!PS-Adobe-": "application/postscript",
}
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<title", b"<!--", b"<div", b"<p", b"<h1")


@dataclass(frozen=True, slots=True)
class Known:
    """Predicates on the URLs of links, and on those that redirects lead to."""

    is_link: Callable[[str], bool]  # the URL is a link, with a row of its own
    # Another link that redirected there has the page. The first to get there has it: a visit that waited for another one
    # on its way to the same URL could be waited for by it.
    is_held: Callable[[str], bool]
    is_excluded: Callable[[str], bool]  # the URL's site is excluded from the links

    def check(self, visit: Visit, url: str) -> None:
        """Raise FetchRefused if the URL is excluded, and FetchFailed if the visit was redirected to it and it has another row."""
        if self.is_excluded(url):
            raise FetchRefused(EXCLUDED_DOMAIN, url)
        if url == visit.url:
            return
        if self.is_link(url) or self.is_held(url):
            visit.final_url = url
            raise FetchFailed(REDIRECTS_TO_LINK)
        link = without_tracking(url)  # the form of stored links; a page may redirect to itself with tracking parameters
        if link not in visit.redirects and link != visit.url and self.is_link(link):
            visit.final_url = link
            raise FetchFailed(REDIRECTS_TO_LINK)


def limits_of(settings: FetchSettings, *, of_page: bool = False) -> RequestLimits:
    """Return the limits of one exchange in these settings; only a page of the web must come at MIN_RATE."""
    return RequestLimits(
        max_bytes=settings.max_bytes,
        total_seconds=settings.total_seconds,
        connect_seconds=CONNECT_SECONDS,
        min_rate=MIN_RATE if of_page else 0.0,
    )


def next_hop(visit: Visit, url: str, headers: Headers) -> str:
    """Return the target of the redirect that `url` answered with. Raises FetchFailed if it can't be followed."""
    visit.redirects.append(url)
    target = redirect_target(url, headers)
    if target is None:
        named = next((value for name, value in headers if name.lower() == b"location"), b"")
        raise FetchFailed("bad_redirect", f"Location: {named[:MAX_CAUSE]!r}")
    if target in visit.redirects:
        raise FetchFailed("redirect_loop", f"to {target}")
    if len(visit.redirects) > MAX_REDIRECTS:
        raise FetchFailed("too_many_redirects", f"the next would be {target}")
    return target


def objection(status: int, headers: Headers, settings: FetchSettings) -> str | None:
    """Return the reason why an answer is not a page to keep, judged by its head, or None."""
    if status not in PAGE_STATUSES:
        return f"http_{status}"
    known = lower_headers(headers)
    opted_out = obeyed(header_opt_outs(known), settings)
    if opted_out is not None:
        return opted_out
    kind = media_type(next((value for name, value in known if name == "content-type"), ""))
    return None if not kind or kind in TEXT_TYPES else "not_text"


def refuse_marked_page(visit: Visit, page: Exchange, settings: FetchSettings) -> None:
    """Record the opt-outs in the page's meta tags. Raises FetchRefused if one is obeyed."""
    found = body_opt_outs(page.body, *page.codings, page.header("content-type") or "")
    visit.note(found, f"meta tag of {page.url}", page.captured)
    reason = obeyed(found, settings)
    if reason is not None:
        raise FetchRefused(reason)


def text_type(page: Exchange) -> str | None:
    """Return the type that the page's first bytes show, or None.

    Raises FetchRefused if it is not a type of text, and FetchFailed if the body can't be decoded, so that it can't be read later.
    """
    try:
        identified = identified_type(page.body, *page.codings)
    except BodyError as error:
        raise FetchFailed("bad_content_coding", str(error)) from None
    if identified is None and not page.header("content-type"):  # WHATWG MIME Sniffing §7.1
        start = decoded_start(page.body, *page.codings, SNIFFED_BYTES)
        identified = None if looks_like_text(start, SNIFFED_BYTES) else "application/octet-stream"
    if identified is not None and identified not in TEXT_TYPES:
        raise FetchRefused("not_text", f"begins as {identified}")
    return identified


def identified_type(body: bytes, transfer: str, content: str) -> str | None:
    """Return the type that the first bytes show, or None if they show none; raises BodyError if they can't be decoded."""
    starts = (decoded_start(body, transfer, content, n_bytes) for n_bytes in (GLANCED_BYTES, SNIFFED_BYTES))
    return next(filter(None, map(_type_of, starts)), None)


def _type_of(start: bytes) -> str | None:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(_HTML_STARTS):
        return "text/html"
    return next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None)
