"""URLs: one canonical form by the WHATWG URL standard, and the registrable domain by the public suffix list.

Both answers depend on the input and on two pinned libraries only (`VERSIONS_FROM`); nothing is ever fetched.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable

import can_ada

SCHEMES = ("http:", "https:")
VERSIONS_FROM = ("can-ada", "tldextract")


def canonical_url(raw: str) -> str | None:
    """The URL as WHATWG serialises it, without fragment and credentials; None when it is no http(s) URL.

    Blanks and control characters around it, and tabs and line ends inside it, go as the standard says. Idempotent.

    >>> canonical_url(" HTTP://user@Example.COM:80/a/../b?x=\\u00e9#top ")
    'http://example.com/b?x=%C3%A9'
    >>> canonical_url("mailto:someone@example.com") is None
    True
    """
    try:
        url = can_ada.parse(raw)
    except (ValueError, TypeError):  # TypeError: a lone surrogate, which no UTF-8 has
        return None
    if url.protocol not in SCHEMES:
        return None
    if url.has_credentials():
        url.username = url.password = ""
    if url.has_hash():
        url.hash = ""
    return str(url.href)


def host_of(url: str) -> str:
    """The host of a canonical URL, without port; an IPv6 address keeps its brackets.

    >>> host_of("http://example.com:8080/")
    'example.com'
    """
    return str(can_ada.parse(url).hostname)


def path_of(url: str) -> str:
    """The path of a canonical URL.

    >>> path_of("http://example.com/a/b?c")
    '/a/b'
    """
    return str(can_ada.parse(url).pathname)


def registrable_domain(url: str) -> str:
    """The domain under a public suffix that somebody registered, or the host when there is none.

    Only suffixes of registries count: `name.blogspot.com` belongs to `blogspot.com`.

    >>> registrable_domain("https://news.bbc.co.uk/page")
    'bbc.co.uk'
    >>> registrable_domain("http://127.0.0.1:8000/")
    '127.0.0.1'
    """
    host = host_of(url)
    return _registrable_domain(host)


def library_versions() -> dict[str, str]:
    """The versions of the libraries that decide these answers, for recipes."""
    return {name: importlib.metadata.version(name) for name in VERSIONS_FROM}


@functools.lru_cache(maxsize=65_536)
def _registrable_domain(host: str) -> str:
    return _suffix_list()(host) or host


@functools.cache
def _suffix_list() -> Callable[[str], str]:
    """The list that tldextract carries; imported here because the library brings an HTTP client along."""
    import tldextract

    extract = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None, fallback_to_snapshot=True)
    return lambda host: str(extract.extract_str(host).top_domain_under_public_suffix)
