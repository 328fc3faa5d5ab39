"""Reddit's submissions: monthly dumps (`RS_*`), and harvested answers of Reddit's API (`crawl/links/reddit_api/harvest.py`).

A dump has one JSON object per line, whose fields changed over twenty years. These changes are handled here (schemas of
248 months: github.com/ArthurHeitmann/arctic_shift, schemas/RS):

    created_utc     a string from 2014-01 to 2015-11; a float in some exports
    score           null in 2017-10 and 2017-11
    url, domain     null in 2022-08 and 2022-09
    is_self         absent or null in early rows and some exports: derived from the domain or the post's own address
    retrieved_on    absent in many months; `retrieved_utc` from 2020-05 to 2022-06; since 2023-11 the score was read a
                    second time, at `_meta.retrieved_2nd_on`

Reddit's JSON escapes `&`, `<` and `>` as HTML in the dumps; it is unescaped exactly once. Harvested answers were
requested as raw strings, so nothing in them is unescaped.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from webtext.crawl import _sift
from webtext.crawl.links.settings import PostRule
from webtext.crawl.links.sources.lines import Unreadable, read_lines
from webtext.crawl.links.sources.submission import DeletedPost, Sifted, Submission

SOURCE = "reddit"
SITE = "https://www.reddit.com"

DELETED_BY_USER = "deleted_by_user"
REMOVED_BY_MODERATOR = "removed_by_moderator"
_BY_USER = ("deleted", "author")
"""Values of `removed_by_category`; all others are moderators, filters, Reddit's staff or legal removals."""

Number = int | float | str | None


class _Meta(msgspec.Struct):
    """Fields that the publishers of later dumps added."""

    retrieved_2nd_on: Number = None


class _Row(msgspec.Struct):
    """The fields needed of a post, out of 36 to 152."""

    id: str | None = None
    name: str | None = None
    subreddit: str | None = None
    score: Number = None
    created_utc: Number = None
    retrieved_on: Number = None
    retrieved_utc: Number = None
    over_18: bool | None = None
    meta: _Meta | None = msgspec.field(default=None, name="_meta")
    domain: str | None = None
    url: str | None = None
    is_self: bool | None = None

    @property
    def post_id(self) -> str:
        """The id without the prefix of its kind; empty if the row has none."""
        return self.id or (self.name or "").removeprefix("t3_")

    def retrieved(self) -> int | None:
        """Return when the score was read, in UTC seconds; None if unknown."""
        later = self.meta.retrieved_2nd_on if self.meta else None
        return as_int64(later or self.retrieved_on or self.retrieved_utc, "retrieved_on")


class _Answer(_Row):
    """A post as Reddit's API returns it."""

    author: str | None = None
    selftext: str | None = None
    removed_by_category: str | None = None


AnyRow = TypeVar("AnyRow", bound=msgspec.Struct)


class RowReader(Generic[AnyRow]):
    """Decodes lines into rows of one type."""

    def __init__(self, row_type: type[AnyRow]) -> None:
        self._type = row_type
        self._decode = msgspec.json.Decoder(row_type).decode
        self._fields = tuple(field.encode_name for field in msgspec.structs.fields(row_type))

    def row(self, line: bytes) -> AnyRow | Unreadable:
        try:
            return self._row(line)
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))
        except (ValueError, RecursionError) as error:
            return Unreadable("invalid_json", f"{type(error).__name__}: {error}"[:200])

    def _row(self, line: bytes) -> AnyRow:
        try:
            return self._decode(line)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # A lone surrogate in any field (half an emoji in a title) is valid JSON that the fast decoder rejects.
            value = json.loads(line)
            if isinstance(value, dict):
                value = {key: _encodable(value[key]) for key in self._fields if key in value}
            return msgspec.convert(value, self._type)


_rows, _answers = RowReader(_Row), RowReader(_Answer)
_decode_lines = msgspec.json.Decoder(_Row).decode_lines


class RedditDump:
    """The link source for `RS_*` files."""

    records = staticmethod(read_lines)

    def parse(self, record: bytes) -> Sequence[Submission] | Unreadable:
        """Return the submission in one line.

        >>> RedditDump().parse(b'{"id": "88", "url": "http://a.com/?x&amp;y", "score": 8, "created_utc": 1119552314}')[0].url
        'http://a.com/?x&y'
        """
        row = _rows.row(record)
        return row if isinstance(row, Unreadable) else _vote(row, lambda: _of_dump(row))

    def sift(self, lines: bytes | memoryview, rule: PostRule) -> Sifted:
        """Judge many lines at once in C++; lines that are not plain (`tests/reference/sift.py`) are left for `parse`."""
        dropped, posts, others = _sift.sift(_native(rule), memoryview(lines))  # type: ignore[arg-type]  # takes any bytes
        rows = _decode_lines(posts)  # only our fields, with types that always decode
        return Sifted(dropped, [_of_dump(row) for row in rows], others)


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


def _vote(row: _Row, make: Callable[[], Submission]) -> Sequence[Submission] | Unreadable:
    if not row.post_id:
        return Unreadable("no_post_id", "neither id nor name")
    try:
        return (make(),)
    except msgspec.ValidationError as error:
        return Unreadable("wrong_type", str(error))


def _of_dump(row: _Row) -> Submission:
    is_self = _is_self(row) if row.is_self is None else row.is_self
    return _submission(row, unescaped(row.url) if row.url else None, row.retrieved(), is_self)


def _submission(row: _Row, url: str | None, retrieved: int | None, is_self: bool) -> Submission:
    return Submission(
        source=SOURCE,
        post_id=row.post_id,
        subreddit=row.subreddit,
        url=_on_site(url) if url else url,
        score=as_int64(row.score, "score"),
        created=as_int64(row.created_utc, "created_utc"),
        retrieved=retrieved,
        is_self=is_self,
        over_18=bool(row.over_18),
    )


def _is_self(row: _Row) -> bool:
    own_address = f"/comments/{row.post_id}/"
    return (row.domain or "").startswith("self.") or own_address in f"{row.url}/"


class Harvested:
    """The link source for `*.harvest.jsonl.zst` files."""

    records = staticmethod(read_lines)

    def parse(self, record: bytes) -> Sequence[Submission] | DeletedPost | Unreadable:
        """Return the vote in one line.

        >>> line = b'{"api":"reddit","retrieved":9,"data":{"id":"p7","url":"http://a.com/?x&amp;","score":3,"created_utc":1}}'
        >>> Harvested().parse(line)[0].url
        'http://a.com/?x&amp;'
        """
        match = _LINE.fullmatch(record)
        if match is None:
            return Unreadable("wrong_type", "not a line of a harvest")
        row = _answers.row(match[2])
        if isinstance(row, Unreadable):
            return row
        removal = removal_of(row.author, row.selftext, row.removed_by_category)
        if removal is not None:
            return DeletedPost(removal)
        return _vote(row, lambda: _submission(row, row.url, int(match[1]), bool(row.is_self)))


_LINE = re.compile(rb'\{"api":"reddit","retrieved":(\d{1,15}),"data":(.*)\}')


def removal_of(author: str | None, selftext: str | None, removed_by_category: str | None) -> str | None:
    """Return why a post on Reddit was deleted or removed; None if it was not.

    Since 2019 `removed_by_category` says so. For older posts, and for deleted accounts, author or text show it.

    >>> removal_of("[deleted]", "", None), removal_of("someone", "", "automod_filtered")
    ('deleted_by_user', 'removed_by_moderator')
    """
    if removed_by_category:
        return DELETED_BY_USER if removed_by_category in _BY_USER else REMOVED_BY_MODERATOR
    if selftext == "[removed]":
        return REMOVED_BY_MODERATOR
    return DELETED_BY_USER if "[deleted]" in (author, selftext) else None


def _on_site(url: str) -> str:
    """Return the URL; a path is made absolute, since it names a page of Reddit."""
    return SITE + url if url.startswith("/") and not url.startswith("//") else url


def _encodable(value: Any) -> Any:
    """Return the value with U+FFFD for each lone surrogate, as browsers read it: a '?' would begin a URL's query."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def unescaped(text: str) -> str:
    """Return the text with Reddit's HTML escapes undone once.

    Reddit escapes only `&`, `<` and `>`; `html.unescape` would also turn the parameter `&copy=1` into `©=1`.

    >>> unescaped("http://a.com/?x&amp;y&amp;amp;&copy=1")
    'http://a.com/?x&y&amp;&copy=1'
    """
    return _ESCAPED.sub(lambda match: _UNESCAPED[match[1]], text) if "&" in text else text


_ESCAPED = re.compile("&(amp|lt|gt);")
_UNESCAPED = {"amp": "&", "lt": "<", "gt": ">"}


def as_int64(value: Number, field: str) -> int | None:
    """Return the value as a whole number of 64 bits; floats are rounded down.

    Raises msgspec.ValidationError, which names the field, for anything else.
    """
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise msgspec.ValidationError(f"{field} is {value[:40]!r}, not a number")
        value = float(value) if "." in value else int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise msgspec.ValidationError(f"{field} is {value}, not a number")
        value = math.floor(value)
    if value is not None and not -(2**63) <= value < 2**63:
        raise msgspec.ValidationError(f"{field} does not fit in 64 bits")
    return value


_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]*)?")
