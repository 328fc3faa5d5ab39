"""Reddit's monthly submission dumps (`RS_*`): one JSON object per line, whose fields changed over twenty years.

These changes are handled here or in crawl/links/reddit_rows.py (schemas of 248 months:
github.com/ArthurHeitmann/arctic_shift, schemas/RS):

    created_utc     a string from 2014-01 to 2015-11
    score           null in 2017-10 and 2017-11
    url, domain     null in 2022-08 and 2022-09
    is_self         absent or null in early rows and some exports: derived from the domain or the post's own address
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from webtext.crawl import _sift
from webtext.crawl.links.reddit_rows import NO_POST_ID, LineSource, Row, RowReader, on_site, unescaped, whole_number
from webtext.crawl.links.settings import PostRule
from webtext.crawl.links.submission import Sifted, Submission
from webtext.crawl.streams.lines import Unreadable

SOURCE = "reddit"


class _Row(Row):
    domain: str | None = None
    url: str | None = None
    is_self: bool | None = None


_READER = RowReader(_Row)

_decode_lines = msgspec.json.Decoder(_Row).decode_lines


class RedditDump(LineSource):
    """The link source for `RS_*` files."""

    keeps_up = True

    def parse(self, record: bytes) -> Sequence[Submission] | Unreadable:
        """Return the submission in one line.

        >>> RedditDump().parse(b'{"id": "88", "url": "http://a.com/?x&amp;y", "score": 8, "created_utc": 1119552314}')[0].url
        'http://a.com/?x&y'
        """
        row = _READER.row(record)
        if isinstance(row, Unreadable):
            return row
        if not row.post_id:
            return NO_POST_ID
        try:
            return (_submission(row),)
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))

    def sift(self, lines: bytes | memoryview, rule: PostRule) -> Sifted:
        """Judge many lines at once in C++; lines that are not plain (sift_reference.py) are left for `parse`."""
        dropped, posts, others = _sift.sift(_native(rule), memoryview(lines))  # type: ignore[arg-type]  # takes any bytes
        rows = _decode_lines(posts)  # only our fields, with types that always decode
        return Sifted(dropped, [_submission(row) for row in rows], others)


@functools.cache
def _native(rule: PostRule) -> _sift.Rule:
    def within(limit: int | None) -> int | None:
        return None if limit is None else min(max(limit, -(2**63)), 2**63 - 1)  # plain numbers have at most 18 digits

    return _sift.Rule(
        end=within(rule.end),
        keep_over_18=rule.keep_over_18,
        keep_self_posts=rule.keep_self_posts,
        blocked_subreddits=sorted(rule.blocked_subreddits),
        min_karma=within(rule.min_karma),
        min_score_age=within(rule.min_score_age),
    )


def _submission(row: _Row) -> Submission:
    return Submission(
        source=SOURCE,
        post_id=row.post_id,
        subreddit=row.subreddit,
        url=on_site(unescaped(row.url)) if row.url else None,
        score=whole_number(row.score, "score"),
        created=whole_number(row.created_utc, "created_utc"),
        retrieved=row.retrieved(),
        is_self=_is_self(row) if row.is_self is None else row.is_self,
        over_18=bool(row.over_18),
    )


def _is_self(row: _Row) -> bool:
    own_address = f"/comments/{row.post_id}/"
    return (row.domain or "").startswith("self.") or own_address in f"{row.url}/"
