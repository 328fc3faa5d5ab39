"""Finds the target of a redirect."""

from __future__ import annotations

from webtext.base.web.urls import join_url
from webtext.crawl.pages.warc_writer import Headers

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
