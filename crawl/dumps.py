"""Reddit's monthly submission dumps (`RS_*`): one JSON object a line, whose fields changed over twenty years.

What changed, and is met here or in crawl/reddit_rows.py (schemas of 248 months: github.com/ArthurHeitmann/arctic_shift,
schemas/RS):

    created_utc     a string from 2014-01 to 2015-11
    score           null in 2017-10 and 2017-11
    url, domain     null in 2022-08 and 2022-09
    is_self         absent or null in early rows and some exports: told by the domain or by the post's own address
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np

from webtext.crawl.reddit_rows import SITE, Row, RowReader, unescaped, whole_number
from webtext.crawl.streams import read_lines
from webtext.crawl.submission import Sifted, Submission, Unreadable

SOURCE = "reddit"
NEWLINE, OPENING, CLOSING = b"\n{}"


class _Row(Row):
    domain: str | None = None
    url: str | None = None
    is_self: bool | None = None


_READER = RowReader(_Row)

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _PlainMeta(msgspec.Struct, gc=False):
    retrieved_2nd_on: _Int64 | None = None


class _PlainRow(msgspec.Struct, gc=False, kw_only=True):
    """A row as nearly all are: nothing in it is a string, a float or absent that need not be.

    Whatever is such a row is a `_Row` too and gives the same submission, so that lines may be tried as this first. The
    order is that of the fields in a line, which makes them quick to find.
    """

    meta: _PlainMeta | None = msgspec.field(default=None, name="_meta")
    created: _Int64 | str | None = msgspec.field(name="created_utc")
    domain: str | None = None
    id: Annotated[str, msgspec.Meta(min_length=1)]
    is_self: bool
    name: str | None = None
    over_18: bool | None = None
    retrieved_on: _Int64 | None = None
    retrieved_utc: _Int64 | None = None
    score: _Int64 | None
    subreddit: str | None = None
    url: Annotated[str, msgspec.Meta(min_length=1)] | None

    @property
    def retrieved(self) -> int | None:
        """When the score was read."""
        later = self.meta.retrieved_2nd_on if self.meta else None
        return later or self.retrieved_on or self.retrieved_utc


_decode_lines = msgspec.json.Decoder(_PlainRow).decode_lines


class RedditDump:
    """The link source of `RS_*` files."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, bytes | Unreadable]]:
        """Lines with their positions."""
        return read_lines(file)

    def parse(self, record: bytes) -> Sequence[Submission] | Unreadable:
        """The submission in one line.

        >>> RedditDump().parse(b'{"id": "88", "url": "http://a.com/?x&amp;y", "score": 8, "created_utc": 1119552314}')[0].url
        'http://a.com/?x&y'
        """
        row = _READER.row(record)
        if isinstance(row, Unreadable):
            return row
        post_id = row.post_id("t3_")
        if not post_id:
            return Unreadable("no_post_id", "neither id nor name")
        try:
            return (_submission(row, post_id),)
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))

    def sift(self, lines: bytes, judge_post: Callable[[Any], str | None]) -> Sifted | None:
        """What `parse` and then `judge_post` make of these lines, all at once; None when one of them is not plain."""
        rows = _plain_rows(lines)
        if rows is None:
            return None
        dropped: dict[str, int] = {}
        posts = []
        for row in rows:
            created = row.created
            if created.__class__ is str:
                try:
                    row.created = created = whole_number(created, "created_utc")
                except msgspec.ValidationError:
                    return None
            reason = judge_post(row)
            if reason is not None:
                dropped[reason] = dropped.get(reason, 0) + 1
                continue
            posts.append(
                Submission(
                    source=SOURCE,
                    post_id=row.id,
                    subreddit=row.subreddit,
                    url=_link(row.url),
                    score=row.score,
                    created=created,  # type: ignore[arg-type]  # no more a string
                    retrieved=row.retrieved,
                    is_self=row.is_self,
                    over_18=bool(row.over_18),
                )
            )
        return dropped, posts


def _plain_rows(lines: bytes) -> list[_PlainRow] | None:
    """The rows, one in each line; None when a line is no plain row.

    The decoder takes any blank between two rows, and none, for a line's end. But between a `}` and a `{` JSON has a bare
    newline only where one value ends and the next begins, so where each line begins with `{` and ends with `}` no row
    is spread over two; and if there are as many rows as lines, no line holds two.
    """
    codes = np.frombuffer(lines, np.uint8)
    newlines = np.flatnonzero(codes == NEWLINE)
    if not (lines.startswith(b"{") and lines.endswith(b"}")):
        return None
    if not ((codes[newlines - 1] == CLOSING).all() and (codes[newlines + 1] == OPENING).all()):
        return None
    try:
        rows = _decode_lines(lines)
    except (ValueError, RecursionError):
        return None
    return rows if len(rows) == len(newlines) + 1 else None


def _submission(row: _Row, post_id: str) -> Submission:
    return Submission(
        source=SOURCE,
        post_id=post_id,
        subreddit=row.subreddit,
        url=_link(row.url),
        score=whole_number(row.score, "score"),
        created=whole_number(row.created_utc, "created_utc"),
        retrieved=row.retrieved(),
        is_self=_is_self(row, post_id) if row.is_self is None else row.is_self,
        over_18=bool(row.over_18),
    )


def _link(url: str | None) -> str | None:
    """Unescaped once, and made absolute where Reddit names a page of its own by its path."""
    if not url:
        return None
    url = unescaped(url)
    return SITE + url if url.startswith("/") and not url.startswith("//") else url


def _is_self(row: _Row, post_id: str) -> bool:
    own_address = f"/comments/{post_id}/"
    return (row.domain or "").startswith("self.") or own_address in f"{row.url}/"
