"""robots.txt (RFC 9309) as Google's reference parser reads it, and tdmrep.json.

Protego only matches paths. Its own reading of lines and groups differs from the RFC: `Crawl-delay` and unknown lines
close a group, and a product token matches anywhere in a name. So this module reads the file line by line by the rules
of google/robotstxt and passes Protego a single group, the one that applies to the token.
`tests/crawl/test_robots.py` compares it with verdicts of Google's parser on real files.

`/.well-known/tdmrep.json` (W3C Community Group report TDMRep, 2024-05-10) says where text and data mining is reserved.
It is an array of rules, each with a path pattern as in robots.txt (`*`, and `$` at the end). The first that matches
counts. What isn't such an array or rule states nothing, as the report says of protocol errors.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from protego import Protego

from webtext.base.web.opt_outs import AI_TRAINING_CRAWLERS, content_signal, forbids_training, utf_16_codec

MAX_ROBOTS_BYTES = 500 * 1024  # RFC 9309 §2.5: parse at least the first 500 KiB; the rest is not read
LARGE_BYTES = 32 * 1024  # to be judged in a thread: 24,000 rules with stars and a long path take more than 0.1 s
MAX_LINE_BYTES = 2083 * 8 - 1  # google/robotstxt: longer lines are cut

# Spellings that google/robotstxt accepts. A key matches if it starts with one of them.
_USER_AGENT = (b"user-agent", b"useragent", b"user agent")
_ALLOW = b"allow"
_DISALLOW = (b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw")
_CRAWL_DELAY = (b"crawl-delay", b"crawl delay")
_CONTENT_SIGNAL = b"content-signal"
_CONTENT_USAGE = b"content-usage"

ANY_AGENT = "*"
T = TypeVar("T")
TDM_PATH = "/.well-known/tdmrep.json"
MAX_RULES = 1_000


@dataclass(frozen=True, slots=True)
class TdmFile:
    """The rules in their order: a pattern, and whether text and data mining is reserved where it matches."""

    rules: tuple[tuple[str, bool], ...] = ()

    @classmethod
    def read(cls, content: bytes) -> TdmFile:
        """Read any bytes; at most MAX_RULES rules count.

        >>> TdmFile.read(b'[{"location": "/a/*.html$", "tdm-reservation": 1}]').reserves("/a/b.html")
        True
        """
        try:
            given = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return cls()
        rules = given if isinstance(given, list) else []
        return cls(tuple(rule for each in rules[:MAX_RULES] if (rule := _rule(each)) is not None))

    def reserves(self, path: str) -> bool:
        """Whether mining is reserved for `path` (path and query of a canonical URL)."""
        return next((reserved for pattern, reserved in self.rules if _matches(pattern, path)), False)


def _rule(given: Any) -> tuple[str, bool] | None:
    if not isinstance(given, dict):
        return None
    pattern, reserved = given.get("location"), given.get("tdm-reservation")
    if not isinstance(pattern, str) or reserved not in (0, 1, "0", "1"):
        return None
    return pattern, reserved in (1, "1")


def _matches(pattern: str, path: str) -> bool:
    """Whether the pattern matches a start of the path, or all of it if it ends with `$`; linear in both."""
    first, *parts = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    end = len(first)
    last = parts.pop() if parts and pattern.endswith("$") else None
    for part in parts:
        found = path.find(part, end)
        if found < 0:
            return False
        end = found + len(part)
    if last is not None:
        return len(path) - len(last) >= end and path.endswith(last)
    return not pattern.endswith("$") or end == len(path)


@dataclass(slots=True, eq=False)
class Group:
    """The rules of a robots.txt for one product token."""

    rules: list[str] = field(default_factory=list)
    crawl_delay: float | None = None
    content_signal: dict[str, str] = field(default_factory=dict)
    usages: list[str] = field(default_factory=list)
    """Content-Usage rules for Protego: an allowed path is one whose use for training is disallowed."""
    _matcher: Protego | None = None
    _usage_matcher: Protego | None = None

    def allows(self, path: str) -> bool:
        """Whether `path` (path and query of a canonical URL) may be fetched. The longest rule wins, allow on a tie."""
        if not self.rules:
            return True
        if self._matcher is None:
            self._matcher = Protego.parse("\n".join(["User-agent: *", *self.rules]))
        if path.partition("?")[0] == "/robots.txt":
            path = path.replace(".", "%2E", 1)  # Protego always allows /robots.txt; judge a link to it like any page
        return bool(self._matcher.can_fetch("http://host" + path, "webtext"))

    def forbids_training(self, path: str) -> bool:
        """Whether the Content-Usage rule with the longest path that matches disallows training; it does on a tie."""
        if not self.usages:
            return False
        if self._usage_matcher is None:
            self._usage_matcher = Protego.parse("\n".join(["User-agent: *", "Disallow: /", *self.usages]))
        return bool(self._usage_matcher.can_fetch("http://host" + path, "webtext"))


class Robots:
    """A parsed robots.txt. `outside` has the usage preferences that precede all groups, which apply to everybody.

    Groups of other crawlers than `tokens` (in lower case; None for all) are skipped: a file may name thousands.
    `tdm_file` is the site's other file, if it has one; both were read at `fetched` (UTC seconds).
    """

    def __init__(self, content: bytes, tokens: Container[str] | None = None, fetched: int | None = None) -> None:
        self._is_large = len(content) > LARGE_BYTES
        self.outside, self.tdm_file, self.fetched = Group(), TdmFile(), int(time.time()) if fetched is None else fetched
        if len(content) >= MAX_ROBOTS_BYTES:  # without the line that was cut: of "Allow: /a", "Allow: /" may be left
            content = content[: 1 + max(content.rfind(end, 0, MAX_ROBOTS_BYTES) for end in (b"\n", b"\r"))]
        if (codec := utf_16_codec(content)) is not None:  # which some editors write
            content = content.decode(codec, "replace").encode()
        self._groups = _groups(content, self.outside, tokens)
        equal: dict[str, Group] = {}
        for token, group in self._groups.items():  # tokens with the same rules share a group, and so its matchers
            self._groups[token] = equal.setdefault(repr(group), group)

    async def judged(self, judge: Callable[..., T], *given: Any) -> T:
        """Return `judge(*given)`, from a thread if the file is large."""
        return await asyncio.to_thread(judge, *given) if self._is_large else judge(*given)

    @property
    def is_silent(self) -> bool:
        return not (self._groups or self.outside.content_signal or self.outside.usages or self.tdm_file.rules)

    @property
    def n_rules(self) -> int:
        """How many rules of both files are in memory."""
        groups = {id(group): group for group in (self.outside, *self._groups.values())}.values()
        return sum(len(group.rules) + len(group.usages) for group in groups) + len(self.tdm_file.rules)

    def group(self, token: str) -> Group:
        """Return the rules for `token`: its own groups, merged, or else those for every agent, or else no rules."""
        return self._groups.get(token.lower()) or self._groups.get(ANY_AGENT) or Group()

    def own_groups(self, tokens: Container[str]) -> list[Group]:
        """Return the different groups that name one of `tokens` (in lower case), merged by token."""
        return list({id(group): group for token, group in self._groups.items() if token in tokens}.values())

    def allows(self, path: str, token: str) -> bool:
        """Whether `token` may fetch `path`.

        >>> robots = Robots(b"User-agent: *\\nCrawl-delay: 5\\nDisallow: /private\\n")
        >>> robots.allows("/private/a", "webtext"), robots.allows("/public?q=1", "webtext")
        (False, True)
        """
        return self.group(token).allows(path)


def _groups(content: bytes, outside: Group, tokens: Container[str] | None) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    current, rules_seen = [outside], True
    for key, value in _lines(content):
        if key.startswith(_USER_AGENT):
            if rules_seen:
                current, rules_seen = [], False
            token = _token(value)
            if tokens is None or token in tokens or token == ANY_AGENT:
                group = groups.setdefault(token, Group())
                if group not in current:
                    current.append(group)
        elif key.startswith((_ALLOW, *_DISALLOW)):
            rules_seen = True
            rule = f"{'Allow' if key.startswith(_ALLOW) else 'Disallow'}: {_escaped(value)}"
            for group in current:
                group.rules.append(rule)
        else:
            for group in current:
                _add(group, key, value)
    return groups


def _add(group: Group, key: bytes, value: bytes) -> None:
    """Add a line that isn't a rule to a group. Lines of other kinds are ignored and don't close the group."""
    if key.startswith(_CRAWL_DELAY) and group.crawl_delay is None:
        group.crawl_delay = _seconds(value)
    elif key.startswith(_CONTENT_SIGNAL):
        for name, answer in content_signal(value.decode("latin-1")).items():
            if group.content_signal.get(name) != "no":
                group.content_signal[name] = answer
    elif key.startswith(_CONTENT_USAGE):
        path, *usage = value.split(None, 1) if value.startswith(b"/") else (b"/", value)
        forbids = forbids_training(b"".join(usage).decode("latin-1"))
        group.usages.append(f"{'Allow' if forbids else 'Disallow'}: {_escaped(path)}")


def _lines(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (lower-case key, value) of each line that has both, without comments and surrounding blanks."""
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
    """Return the product token of a User-agent line: `Foobot/2.1 (x)` is `foobot`; `*` and `* x` are every agent."""
    if value[:1] == b"*" and not value[1:2].strip():
        return ANY_AGENT
    name = b"".join(value.split(None, 1)[:1]).partition(b"/")[0].decode("latin-1").lower()
    if name in AI_TRAINING_CRAWLERS:  # some have a digit, which a product token can't have
        return name
    return re.split(rb"[^A-Za-z_-]", value, maxsplit=1)[0].decode().lower()


def _escaped(value: bytes) -> str:
    """Percent-encode bytes outside ASCII, whatever the file's encoding, and controls, at some of which Protego ends a line."""
    return "".join(chr(byte) if 32 <= byte < 127 else f"%{byte:02X}" for byte in value)


def _seconds(value: bytes) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None
