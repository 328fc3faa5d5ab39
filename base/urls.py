"""URLs: one canonical form by the WHATWG URL standard, and the registrable domain by the public suffix list.

Both answers depend on the input and on two pinned libraries only (`VERSIONS_FROM`); nothing is ever fetched.
Parsing is ada-url's, which agrees with all 891 of the web platform's vectors; can_ada 3.0.0, a faster binding of an older
version of the same parser, with 876 (it leaves `^` in paths as it is).
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Callable

import ada_url

SCHEMES = ("http://", "https://")
VERSIONS_FROM = ("ada-url", "tldextract")


def canonical_url(raw: str) -> str | None:
    """The URL as WHATWG serialises it, without fragment and credentials; None when it is no http(s) URL.

    Blanks and control characters around it, and tabs and line ends inside it, go as the standard says. Idempotent.

    >>> canonical_url(" HTTP://user@Example.COM:80/a/../b?x=\\u00e9#top ")
    'http://example.com/b?x=%C3%A9'
    >>> canonical_url("mailto:someone@example.com") is None
    True
    """
    if _IS_CANONICAL(raw):
        return raw
    try:
        return _bare(ada_url.normalize_url(raw))
    except ValueError:
        return None


_IS_CANONICAL = re.compile(
    # No number for a host (the last label begins with a letter), no punycode that might be wrong, no segment that might
    # be a dot or two, nothing that is encoded. Most URLs are so, and a parser takes six times as long to say it.
    r"https?://(?![^/]*xn--)(?:[a-z0-9_-]+\.)+[a-z][a-z0-9-]*"
    r"(?:/(?!\.)[A-Za-z0-9_~!$&()*+,;=:@.-]*)+(?:\?[A-Za-z0-9_~!$&()*+,;=:@/?.%-]*)?"
).fullmatch


def join_url(base: str, reference: str) -> str | None:
    """The canonical URL that `reference` names on the page `base`; None when that is no http(s) URL.

    >>> join_url("http://example.com/a/b", "../c?d")
    'http://example.com/c?d'
    """
    try:
        return _bare(ada_url.join_url(base, reference))
    except ValueError:
        return None


def is_fetchable(url: str) -> bool:
    """Whether a URL has what a request needs, as every canonical one has: http(s), a host and a path.

    >>> is_fetchable("http://example.com/"), is_fetchable(""), is_fetchable("example.com/")
    (True, False, False)
    """
    return _FETCHABLE(url) is not None


_FETCHABLE = re.compile(r"https?://[^/]+/").match


def host_of(url: str) -> str:
    """The host of a canonical URL, without port; an IPv6 address keeps its brackets. Empty where a URL has none.

    >>> host_of("http://example.com:8080/"), host_of("http://[::1]/")
    ('example.com', '[::1]')
    """
    authority = "".join(url.split("/", 3)[2:3])
    host, closing, _ = authority.partition("]")
    return host + closing if closing else host.partition(":")[0]


def port_of(url: str) -> int:
    """The port of a canonical URL, which names it only when it is not its scheme's own.

    >>> port_of("https://example.com/"), port_of("http://[::1]:8080/")
    (443, 8080)
    """
    authority = url.split("/", 3)[2]
    port = authority[len(host_of(url)) + 1 :]
    return int(port) if port else 443 if url.startswith("https:") else 80


def target_of(url: str) -> str:
    """Path and query of a canonical URL: what a request asks its host for.

    >>> target_of("http://example.com/a/b?c")
    '/a/b?c'
    """
    return "/" + url.split("/", 3)[3]


def path_of(url: str) -> str:
    """The path of a canonical URL.

    >>> path_of("http://example.com/a/b?c")
    '/a/b'
    """
    return "/" + url.partition("?")[0].split("/", 3)[3]


def registrable_domain(url: str) -> str:
    """The domain under a public suffix that somebody registered, or the host when there is none.

    Only suffixes of registries count: `name.blogspot.com` belongs to `blogspot.com`.

    >>> registrable_domain("https://news.bbc.co.uk/page")
    'bbc.co.uk'
    >>> registrable_domain("http://127.0.0.1:8000/")
    '127.0.0.1'
    """
    return _registrable_domain(host_of(url))


def library_versions() -> dict[str, str]:
    """The versions of the libraries that decide these answers, for recipes."""
    return {name: importlib.metadata.version(name) for name in VERSIONS_FROM}


def _bare(url: str) -> str | None:
    """A serialised URL without fragment and credentials: in it `#` begins nothing else, and `@` ends nothing else."""
    if not url.startswith(SCHEMES):
        return None
    if "#" in url:
        url = url[: url.index("#")]
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}" if "@" in authority else url


@functools.lru_cache(maxsize=65_536)
def _registrable_domain(host: str) -> str:
    return _suffix_list()(host) or host


@functools.cache
def _suffix_list() -> Callable[[str], str]:
    """The list that tldextract carries; imported here because the library brings an HTTP client along."""
    import tldextract

    extract = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None, fallback_to_snapshot=True)
    return lambda host: str(extract.extract_str(host).top_domain_under_public_suffix)
