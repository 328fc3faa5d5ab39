"""The link source for harvested files: answers of Reddit's and Hacker News' APIs by line (`crawl/apis/harvest.py`).

Nothing is unescaped here: Reddit was asked for raw strings, and Hacker News escapes titles and texts, but not URLs. A
story without a URL, or with one on Hacker News itself, is a self post.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from webtext.crawl.links.reddit_rows import NO_POST_ID, LineSource, Row, RowReader, on_site, whole_number
from webtext.crawl.links.submission import Dropped, Submission
from webtext.crawl.streams.lines import Unreadable

DELETED_BY_USER = "deleted_by_user"
REMOVED_BY_MODERATOR = "removed_by_moderator"
HACKER_NEWS = "hackernews"
_BY_USER = (
    "deleted",
    "author",
)  # values of Reddit's removed_by_category; all others are moderators, filters, Reddit's staff or legal removals
_OWN_SITE = re.compile(r"https?://news\.ycombinator\.com(?:[/?#:]|$)", re.IGNORECASE)
_LINE = re.compile(rb'\{"api":"([a-z]+)","retrieved":(\d{1,15}),"data":(.*)\}')

Votes = Sequence[Submission] | Dropped | Unreadable


class _Post(Row):
    url: str | None = None
    is_self: bool | None = None
    author: str | None = None
    selftext: str | None = None
    removed_by_category: str | None = None


class _Item(msgspec.Struct):
    """An item from Firebase: a story, comment, job, poll or part of a poll."""

    id: int
    type: str | None = None
    url: str | None = None
    score: int | None = None
    time: int | None = None
    deleted: bool = False
    dead: bool = False


class _Hit(msgspec.Struct):
    """A story from Algolia."""

    object_id: str = msgspec.field(name="objectID")
    url: str | None = None
    points: int | None = None
    created_at_i: int | None = None


class Harvested(LineSource):
    """The link source for `*.harvest.jsonl.zst` files."""

    def parse(self, record: bytes) -> Votes:
        """Return the vote in one line, in the format of the API that it came from.

        >>> line = b'{"api":"firebase","retrieved":9,"data":{"id":7,"type":"story","url":"http://a.com/?x&amp;","score":3,"time":1}}'
        >>> Harvested().parse(line)[0].url
        'http://a.com/?x&amp;'
        """
        match = _LINE.fullmatch(record)
        if match is None or match[1] not in _PARSERS:
            return Unreadable("wrong_type", "not a line of a harvest")
        try:
            return _PARSERS[match[1]](match[3], int(match[2]))
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))


def reddit_removal(author: str | None, selftext: str | None, removed_by_category: str | None) -> str | None:
    """Return why a post on Reddit was deleted or removed; None if it was not.

    Since 2019 `removed_by_category` says so. For older posts, and for deleted accounts, author or text show it.

    >>> reddit_removal("[deleted]", "", None), reddit_removal("someone", "", "automod_filtered")
    ('deleted_by_user', 'removed_by_moderator')
    """
    if removed_by_category:
        return DELETED_BY_USER if removed_by_category in _BY_USER else REMOVED_BY_MODERATOR
    if selftext == "[removed]":
        return REMOVED_BY_MODERATOR
    return DELETED_BY_USER if "[deleted]" in (author, selftext) else None


_posts, _items, _hits = RowReader(_Post), RowReader(_Item), RowReader(_Hit)


def _reddit(data: bytes, retrieved: int) -> Votes:
    row = _posts.row(data)
    if isinstance(row, Unreadable):
        return row
    removal = reddit_removal(row.author, row.selftext, row.removed_by_category)
    if removal is not None:
        return Dropped(removal)
    if not row.post_id:
        return NO_POST_ID
    return (
        Submission(
            source="reddit",
            post_id=row.post_id,
            subreddit=row.subreddit,
            url=on_site(row.url) if row.url else row.url,
            score=whole_number(row.score, "score"),
            created=whole_number(row.created_utc, "created_utc"),
            retrieved=retrieved,
            is_self=bool(row.is_self),
            over_18=bool(row.over_18),
        ),
    )


def _firebase(data: bytes, retrieved: int) -> Votes:
    if data == b"null":
        return ()
    item = _items.row(data)
    if isinstance(item, Unreadable):
        return item
    if item.deleted or item.dead:
        return Dropped(DELETED_BY_USER if item.deleted else REMOVED_BY_MODERATOR)
    return (_story(str(item.id), item.url, item.score, item.time, retrieved),) if item.type == "story" else ()


def _algolia(data: bytes, retrieved: int) -> Votes:
    hit = _hits.row(data)
    if isinstance(hit, Unreadable):
        return hit
    return (_story(hit.object_id, hit.url, hit.points, hit.created_at_i, retrieved),)


def _story(number: str, url: str | None, score: int | None, created: int | None, retrieved: int) -> Submission:
    own = f"https://news.ycombinator.com/item?id={number}"
    return Submission(
        source=HACKER_NEWS,
        post_id=number,
        subreddit=None,
        url=url or own,
        score=whole_number(score, "score"),
        created=whole_number(created, "created"),
        retrieved=retrieved,
        is_self=not url or _OWN_SITE.match(url) is not None,
        over_18=False,
    )


_PARSERS = {b"reddit": _reddit, b"firebase": _firebase, b"algolia": _algolia}
