"""robots.txt by RFC 9309: what a file says to one product token, as Google's reference parser reads it.

Protego matches paths; it is given a file mended for it, because its own reading of lines and groups differs from the
RFC's: it lets `Crawl-delay` and unknown lines close a group, and matches a product token anywhere in a name. Here the
file is read line by line after google/robotstxt's rules, and Protego gets one group: the one that holds for the token.
Measured over 4,231 real files and 150,600 verdicts (`tests/bench/bench_robots.py`): see README.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from protego import Protego

from webtext.base.opt_outs import content_signal

MAX_ROBOTS_BYTES = 500 * 1024  # RFC 9309 §2.5: parse at least the first 500 KiB; the rest is not read
MAX_LINE_BYTES = 2083 * 8 - 1  # google/robotstxt: longer lines are cut

# Spellings that google/robotstxt accepts; a key counts when it starts with one of them.
_USER_AGENT = (b"user-agent", b"useragent", b"user agent")
_ALLOW = (b"allow",)
_DISALLOW = (b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw")
_CRAWL_DELAY = (b"crawl-delay", b"crawl delay")
_CONTENT_SIGNAL = (b"content-signal",)

_PRODUCT_TOKEN = re.compile(rb"[A-Za-z_-]*")
ANY_AGENT = "*"


@dataclass(slots=True, eq=False)
class Group:
    """What a robots.txt says to one product token."""

    rules: list[str] = field(default_factory=list)
    crawl_delay: float | None = None
    content_signal: dict[str, str] = field(default_factory=dict)
    _matcher: Protego | None = None

    def allows(self, path: str) -> bool:
        """Whether `path` (path and query of a canonical URL) may be fetched: the longest rule decides, allow wins ties."""
        if not self.rules:
            return True
        if self._matcher is None:
            self._matcher = Protego.parse("\n".join(["User-agent: *", *self.rules]))
        if path.partition("?")[0] == "/robots.txt":
            path = path.replace(".", "%2E", 1)  # a link to it is judged like any page; Protego always allows it
        return bool(self._matcher.can_fetch("http://host" + path, "webtext"))


class Robots:
    """A parsed robots.txt."""

    def __init__(self, content: bytes) -> None:
        self._groups = _groups(content[:MAX_ROBOTS_BYTES])

    @property
    def is_silent(self) -> bool:
        """Whether it says nothing to anybody who is known."""
        return not self._groups

    def group(self, token: str) -> Group:
        """The rules for `token`: its own groups, merged; else those for every agent; else none."""
        return self._groups.get(token.lower()) or self._groups.get(ANY_AGENT) or Group()

    def own_groups(self, tokens: Container[str]) -> list[Group]:
        """The groups that name one of `tokens` (in lower case), those of one token merged."""
        return [group for token, group in self._groups.items() if token in tokens]

    def allows(self, path: str, token: str) -> bool:
        """Whether `token` may fetch `path`.

        >>> robots = Robots(b"User-agent: *\\nCrawl-delay: 5\\nDisallow: /private\\n")
        >>> robots.allows("/private/a", "webtext"), robots.allows("/public?q=1", "webtext")
        (False, True)
        """
        return self.group(token).allows(path)

    def keep_only(self, tokens: frozenset[str]) -> Robots:
        """Forget groups that nobody will ask for: a cache of robots files should be small."""
        self._groups = {token: group for token, group in self._groups.items() if token in tokens or token == ANY_AGENT}
        return self


def _groups(content: bytes) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    current: list[Group] = []
    rules_seen = False
    for key, value in _lines(content):
        if key.startswith(_USER_AGENT):
            if rules_seen:
                current, rules_seen = [], False
            group = groups.setdefault(_token(value), Group())
            if group not in current:
                current.append(group)
        else:
            rules_seen |= bool(current) and key.startswith((*_ALLOW, *_DISALLOW))
            for group in current:
                _add(group, key, value)
    return groups


def _add(group: Group, key: bytes, value: bytes) -> None:
    """Add one line to a group; lines of other kinds mean nothing and end nothing."""
    if key.startswith(_ALLOW):
        group.rules.append(f"Allow: {_escaped(value)}")
    elif key.startswith(_DISALLOW):
        group.rules.append(f"Disallow: {_escaped(value)}")
    elif key.startswith(_CRAWL_DELAY) and group.crawl_delay is None:
        group.crawl_delay = _seconds(value)
    elif key.startswith(_CONTENT_SIGNAL):
        group.content_signal |= content_signal(value.decode("latin-1"))


def _lines(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(lower-case key, value) of each line that has both, without comments and blanks around."""
    for line in re.split(rb"[\r\n]+", content.removeprefix(b"\xef\xbb\xbf")):
        line = line[:MAX_LINE_BYTES].partition(b"#")[0].strip()
        key, colon, value = line.partition(b":")
        if not colon:
            words = line.split()
            if len(words) != 2:
                continue
            key, value = words
        yield key.strip().lower(), value.strip()


def _token(value: bytes) -> str:
    """The product token of a User-agent line: `Foobot/2.1 (x)` is `foobot`; `*` and `* x` are everybody."""
    if value[:1] == b"*" and not value[1:2].strip():
        return ANY_AGENT
    match = _PRODUCT_TOKEN.match(value)
    return match[0].decode().lower() if match else ""


def _escaped(value: bytes) -> str:
    """Bytes outside ASCII percent-encoded, whatever the file's encoding, as they are in canonical URLs."""
    return "".join(chr(byte) if byte < 128 else f"%{byte:02X}" for byte in value)


def _seconds(value: bytes) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
