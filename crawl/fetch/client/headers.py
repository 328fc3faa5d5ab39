"""The redirects and pauses that an answer's headers ask for."""

from __future__ import annotations

import time
from datetime import UTC
from email.utils import parsedate_to_datetime

from webtext.base.web.urls import join_url
from webtext.crawl.pages.exchange import Headers

REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


def is_redirect(status: int) -> bool:
    """Whether the status is a redirect."""
    return status in REDIRECT_STATUSES


def redirect_target(url: str, headers: Headers) -> str | None:
    """Return the canonical URL of the Location header, relative to `url`.

    None if Location is missing, empty, given twice with different values, or not an http(s) URL.

    >>> redirect_target("http://a.example/b/c", [(b"Location", b"../d#top")])
    'http://a.example/d'
    >>> redirect_target("http://a.example/", [(b"Location", b"file:///etc/passwd")]) is None
    True
    """
    locations = {value.strip() for name, value in headers if name.lower() == b"location"}
    if len(locations) != 1 or not (location := locations.pop()):
        return None
    try:
        text = location.decode("utf-8")
    except UnicodeDecodeError:
        text = location.decode("latin-1")  # as browsers read it
    return join_url(url, text)


def retry_after(value: str | None, date: str | None = None) -> float:
    """Return the seconds that a Retry-After header asks for (RFC 9110 section 10.2.3), 0 if it is invalid or missing.

    A date is compared with the answer's own Date header if there is one, because clocks differ.

    >>> retry_after("120"), retry_after("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:58:59 GMT")
    (120.0, 60.0)
    >>> retry_after("NaN"), retry_after("-5"), retry_after(None)
    (0.0, 0.0, 0.0)
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    until = http_date(text)
    if until is None:
        return 0.0
    now = http_date(date or "")
    return max(0.0, until - (time.time() if now is None else now))


def http_date(text: str) -> float | None:
    """Return the UTC seconds of a date in a header, or None if it is invalid. The older forms of RFC 9110 name no zone."""
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
