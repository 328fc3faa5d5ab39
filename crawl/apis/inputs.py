"""Inputs that name an API instead of a file.

reddit:r/programming/top?t=year      a listing (hot, new, top, rising or controversial) of subreddits (r/a+b),
reddit:domain/example.org/new        of posts that link to a site, or of all of Reddit (reddit:top?t=all)
hackernews:2016-01-01..2016-02-01    Hacker News' stories by time; the end is exclusive
hackernews:8863..10000               its items by number; the end is exclusive
hackernews:8863..                    its items up to the newest
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from webtext.base.config import timestamp
from webtext.base.errors import ConfigError

SORTS = ("hot", "new", "top", "rising", "controversial")
PERIODS = ("hour", "day", "week", "month", "year", "all")
_LISTING = re.compile(
    r"(?:r/[A-Za-z0-9_]{2,50}(?:\+[A-Za-z0-9_]{2,50})*/|domain/[A-Za-z0-9.-]{1,253}/)?" + f"(?:{'|'.join(SORTS)})"
)


@dataclass(frozen=True, slots=True)
class Listing:
    """A listing of Reddit's posts; `period` is the time that `top` and `controversial` cover."""

    path: str
    period: str | None


@dataclass(frozen=True, slots=True)
class Stories:
    """Hacker News' stories created in [start, end), UTC seconds."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Items:
    """Hacker News' items with numbers in [start, end); without an end, up to the newest when the harvest begins."""

    start: int
    end: int | None


ApiInput = Listing | Stories | Items


def parse_input(text: str) -> ApiInput | None:
    """Return the request in an input, or None if it names no API. Raises ConfigError for an unknown request.

    >>> parse_input("reddit:r/programming/top?t=year")
    Listing(path='r/programming/top', period='year')
    >>> parse_input("hackernews:2016-01-01..2016-02-01")
    Stories(start=1451606400, end=1454284800)
    >>> parse_input("hackernews:8863.."), parse_input("RS_2016-01.zst")
    (Items(start=8863, end=None), None)
    """
    api, colon, rest = text.partition(":")
    if colon and api == "reddit":
        return _listing(text, rest)
    if colon and api == "hackernews":
        return _hacker_news(text, rest)
    return None


def _listing(text: str, rest: str) -> Listing:
    path, _, query = rest.strip("/").partition("?")
    path = path.strip("/")
    if not _LISTING.fullmatch(path):
        raise ConfigError(
            f"'{text}' is not a listing of Reddit",
            "write reddit:r/NAME/SORT, reddit:domain/SITE/SORT or reddit:SORT, e.g. reddit:r/programming/top?t=year",
            f"SORT is one of {', '.join(SORTS)}",
        )
    given = parse_qsl(query, keep_blank_values=True)
    period = dict(given).get("t")
    if query and (len(given) != 1 or period not in PERIODS):
        raise ConfigError(f"'{text}': '?{query}' is not a period", f"use {', '.join('?t=' + each for each in PERIODS)}")
    return Listing(path, period)


def _hacker_news(text: str, rest: str) -> Stories | Items:
    start, dots, end = rest.partition("..")
    if dots and re.fullmatch(r"\d{1,12}", start) and re.fullmatch(r"\d{0,12}", end):
        items = Items(int(start), int(end) if end else None)
        if items.start >= 1 and (items.end is None or items.start < items.end):
            return items
    elif dots and "-" in start and "-" in end:
        stories = Stories(timestamp(start, text), timestamp(end, text))
        if 0 <= stories.start < stories.end:
            return stories
    raise ConfigError(
        f"'{text}' is not a range of Hacker News",
        "write hackernews:2016-01-01..2016-02-01 for stories by time, or hackernews:8863..10000 for items by number",
        "the end is exclusive; hackernews:8863.. ends at the newest item",
    )
