"""`/.well-known/tdmrep.json` (W3C Community Group report TDMRep, 2024-05-10): where text and data mining is reserved.

It is an array of rules, each with a path pattern as in robots.txt (`*`, and `$` at the end). The first that matches
counts. What isn't such an array or rule states nothing, as the report says of protocol errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

PATH = "/.well-known/tdmrep.json"
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
