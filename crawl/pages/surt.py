"""The sort-friendly key of a URL (SURT), as in the indexes of Common Crawl and the Wayback Machine.

URLs that usually name the same page have the same key: scheme, `www.`, default port, letter case, session ids, a
trailing slash and the order of query arguments make no difference. The rules are from iipc/webarchive-commons
(WaybackURLKeyMaker), which makes these indexes. They don't normalise the host or dots in the path, so pass canonical
URLs.
"""

from __future__ import annotations

import functools
import re

from webtext.base.web.urls import host_of

_WWW = re.compile(r"^(?:www\d*\.)+")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_IS_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_~!$&*+,;=:@.-]+)+").fullmatch  # most paths: only the letters' case changes
_SLASHES = re.compile(r"/{2,}")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_TO_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})|[\x00-\x20#%\x7f-\xff]")
_MAX_UNESCAPES = 64  # for %252525...; a URL with deeper nesting gets a key of its own
_SESSION_IN_PATH = re.compile(r"(.*/)\((?:(?:[a-z]\([0-9a-z]{24}\))+|[0-9a-z]{24})\)/([^?]+\.aspx.*)", re.I | re.S)
_SESSIONS_IN_QUERY = [
    re.compile(rf"(.*)(?:{session})(?:&(.*))?", re.I | re.S)
    for session in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
        "cfid=[^&]+&cftoken=[^&]+",
    )
]


def surt(url: str) -> str:
    """Return the SURT key of an http(s) URL.

    >>> surt("https://www.example.com:8080/B/?d=2&c=1"), surt("http://example.com:80")
    ('com,example:8080)/b?c=1&d=2', 'com,example)/')
    """
    scheme, _, rest = url.partition("://")
    authority, slash, rest = rest.partition("/")
    path, mark, query = (slash + rest).partition("?")
    return f"{_authority(scheme, authority)}){_path(path)}{_query(query) if mark else ''}"


@functools.lru_cache(maxsize=4096)  # hosts repeat
def _authority(scheme: str, authority: str) -> str:
    named = host_of(f"{scheme}://{authority}/")
    host = _WWW.sub("", named.rstrip(".").lower())
    port = authority[len(named) :]
    port = "" if port in (":", _DEFAULT_PORTS.get(scheme)) else port
    return (host.strip("[]") if host.startswith("[") else ",".join(host.split(".")[::-1])) + port


def _path(path: str) -> str:
    if _IS_PLAIN_PATH(path):
        return path.lower()
    path = _SLASHES.sub("/", _unescaped(path) or "/")
    path = _escaped(path).lower()
    session = _SESSION_IN_PATH.fullmatch(path)
    path = session[1] + session[2] if session else path
    return path[:-1] if path.endswith("/") and len(path) > 1 else path


def _query(query: str) -> str:
    query = _escaped(_unescaped(query))
    for pattern in _SESSIONS_IN_QUERY:
        found = pattern.fullmatch(query)
        if found:
            query = found[1] + (found[2] or "")
    arguments = sorted(argument.partition("=")[::2] + (argument,) for argument in query.lower().split("&"))
    joined = "&".join(argument for _, _, argument in arguments)
    return f"?{joined}" if joined else ""


def _unescaped(text: str) -> str:
    """Decode the percent-escapes in `text` until none is left. Escapes that are not UTF-8 are kept."""
    for _ in range(_MAX_UNESCAPES):
        before, text = text, _ESCAPES.sub(_decoded, text)
        if text == before:
            break
    return text


def _decoded(escapes: re.Match[str]) -> str:
    data = bytes.fromhex(escapes[0].replace("%", ""))
    return data.decode("utf-8", "surrogateescape").translate(_KEPT_ESCAPES)


_KEPT_ESCAPES = {0xDC00 + byte: f"%{byte:02X}" for byte in range(0x80, 0x100)}


def _escaped(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return _TO_ESCAPE.sub(lambda match: b"%" + (match[1] or b"%02X" % match[0][0]), data).decode("ascii")
