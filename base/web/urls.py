"""URLs: one canonical form by the WHATWG URL standard, and the registrable domain by the public suffix list.

Both depend only on the input and on two pinned libraries (`library_versions`); nothing is ever fetched. ada-url does the
parsing, because it passes all 891 of the web platform's test vectors. can_ada 3.0.0, a slower binding of an older
version of the same parser, passes 876 (it leaves `^` in paths unchanged).
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Callable

import ada_url

MAX_URL_BYTES = 8192  # canonical URLs are ASCII; RFC 9110 section 4.1 recommends to support at least 8,000
SCHEMES = ("http://", "https://")


def canonical_url(raw: str) -> str | None:
    """Return the URL as serialised by WHATWG, without fragment and credentials; None if it isn't an http(s) URL.

    As in the standard, spaces and control characters around the URL, and tabs and line ends inside it, are removed.
    Idempotent.

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
    # A URL that certainly is canonical: the host isn't a number (its last label begins with a letter), and there is no
    # punycode, no segment that starts with a dot and nothing encoded. Most URLs match; parsing takes six times as long.
    r"https?://(?![^/]*xn--)(?:[a-z0-9_-]+\.)+[a-z][a-z0-9-]*"
    r"(?:/(?!\.)[A-Za-z0-9_~!$&()*+,;=:@.-]*)+(?:\?[A-Za-z0-9_~!$&()*+,;=:@/?.%-]*)?"
).fullmatch


def join_url(base: str, reference: str) -> str | None:
    """Resolve `reference` on the page `base` to a canonical URL; None if the result isn't an http(s) URL.

    >>> join_url("http://example.com/a/b", "../c?d")
    'http://example.com/c?d'
    """
    try:
        return _bare(ada_url.join_url(base, reference))
    except ValueError:
        return None


def is_fetchable(url: str) -> bool:
    """Whether a URL may be requested: it is canonical, and no longer than MAX_URL_BYTES.

    >>> is_fetchable("http://example.com/"), is_fetchable("example.com/"), is_fetchable("http://example.com/\\n")
    (True, False, False)
    """
    return len(url) <= MAX_URL_BYTES and canonical_url(url) == url


def host_of(url: str) -> str:
    """Return the host of a canonical URL, without port; an IPv6 address keeps its brackets. Empty without a host.

    >>> host_of("http://example.com:8080/"), host_of("http://[::1]/")
    ('example.com', '[::1]')
    """
    authority = "".join(url.split("/", 3)[2:3])
    host, closing, _ = authority.partition("]")
    return host + closing if closing else host.partition(":")[0]


def port_of(url: str) -> int:
    """Return the port of a canonical URL, which contains it only if it isn't the scheme's default.

    >>> port_of("https://example.com/"), port_of("http://[::1]:8080/")
    (443, 8080)
    """
    authority = url.split("/", 3)[2]
    port = authority[len(host_of(url)) + 1 :]
    return int(port) if port else 443 if url.startswith("https:") else 80


def target_of(url: str) -> str:
    """Return path and query of a canonical URL: the target of its request.

    >>> target_of("http://example.com/a/b?c")
    '/a/b?c'
    """
    return "/" + url.split("/", 3)[3]


def path_of(url: str) -> str:
    """Return the path of a canonical URL.

    >>> path_of("http://example.com/a/b?c")
    '/a/b'
    """
    return "/" + url.partition("?")[0].split("/", 3)[3]


def registrable_domain(url: str) -> str:
    """Return the registered domain under a public suffix, or the host if there is none.

    Only the list's registry suffixes count: `name.blogspot.com` belongs to `blogspot.com`.

    >>> registrable_domain("https://news.bbc.co.uk/page")
    'bbc.co.uk'
    >>> registrable_domain("http://127.0.0.1:8000/")
    '127.0.0.1'
    """
    return _registrable_domain(host_of(url))


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that decide these results, for recipes."""
    return {name: importlib.metadata.version(name) for name in ("ada-url", "tldextract")}


def _bare(url: str) -> str | None:
    """Remove fragment and credentials from a serialised URL, in which `#` and the host's `@` occur for nothing else."""
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
    """Return a look-up in tldextract's bundled list; imported here because the library loads an HTTP client."""
    import tldextract

    extract = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None, fallback_to_snapshot=True)
    return lambda host: str(extract.extract_str(host).top_domain_under_public_suffix)
