"""Reddit's monthly submission dumps (`RS_*`): one JSON object a line, whose fields changed over twenty years.

What changed, and is met here (schemas of 248 months: github.com/ArthurHeitmann/arctic_shift, schemas/RS):

    created_utc     a string from 2014-01 to 2015-11; a float in some exports
    score           null in 2017-10 and 2017-11
    url, domain     null in 2022-08 and 2022-09
    is_self         absent or null in early rows and some exports: told by the domain or by the post's own address
    retrieved_on    absent in many months; `retrieved_utc` from 2020-05 to 2022-06; since 2023-11 the score is read a
                    second time, at `_meta.retrieved_2nd_on`

Reddit's JSON escapes `&`, `<` and `>` as HTML; a URL is unescaped exactly once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import msgspec

from webtext.crawl.streams import read_lines
from webtext.crawl.submission import Submission, Unreadable

SOURCE = "reddit"
PREFIX = "RS_"
SITE = "https://www.reddit.com"

_Number = int | float | str | None


class _Meta(msgspec.Struct):
    retrieved_2nd_on: _Number = None


class _Row(msgspec.Struct):
    """The fields that matter, of the 36 to 152 there are."""

    id: str | None = None
    name: str | None = None
    subreddit: str | None = None
    domain: str | None = None
    url: str | None = None
    score: _Number = None
    created_utc: _Number = None
    retrieved_on: _Number = None
    retrieved_utc: _Number = None
    is_self: bool | None = None
    over_18: bool | None = None
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


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
        try:
            post = _submission(_decode(record))
            return post if isinstance(post, Unreadable) else (post,)
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))
        except (ValueError, RecursionError) as error:
            return Unreadable("invalid_json", f"{type(error).__name__}: {error}"[:200])


_decoder = msgspec.json.Decoder(_Row)


def _decode(line: bytes) -> _Row:
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # A lone surrogate in any field (half an emoji in a title) is valid JSON that the fast decoder refuses.
        value = json.loads(line)
        if isinstance(value, dict):
            value = {key: _encodable(value[key]) for key in _FIELDS if key in value}
        return msgspec.convert(value, _Row)


_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(_Row))


def _encodable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _submission(row: _Row) -> Submission | Unreadable:
    post_id = row.id or (row.name or "").removeprefix("t3_")
    if not post_id:
        return Unreadable("no_post_id", "neither id nor name")
    retrieved = (row.meta.retrieved_2nd_on if row.meta else None) or row.retrieved_on or row.retrieved_utc
    return Submission(
        source=SOURCE,
        post_id=post_id,
        subreddit=row.subreddit,
        url=_link(row.url),
        score=_whole(row.score, "score"),
        created=_whole(row.created_utc, "created_utc"),
        retrieved=_whole(retrieved, "retrieved_on"),
        is_self=_is_self(row, post_id) if row.is_self is None else row.is_self,
        over_18=bool(row.over_18),
    )


def _link(url: str | None) -> str | None:
    """Unescaped once, and made absolute where Reddit names a page of its own by its path.

    Only what Reddit escapes is unescaped: `html.unescape` would also turn the parameter `&copy=1` into `©=1`.
    """
    if not url:
        return None
    if "&" in url:
        url = _ESCAPED.sub(lambda match: _UNESCAPED[match[1]], url)
    return SITE + url if url.startswith("/") and not url.startswith("//") else url


_ESCAPED = re.compile("&(amp|lt|gt);")
_UNESCAPED = {"amp": "&", "lt": "<", "gt": ">"}


def _is_self(row: _Row, post_id: str) -> bool:
    own_address = f"/comments/{post_id}/"
    return (row.domain or "").startswith("self.") or own_address in f"{row.url}/"


def _whole(value: _Number, field: str) -> int | None:
    """A whole number of 64 bits; seconds and scores that come as floats are rounded down."""
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise msgspec.ValidationError(f"{field} is {value[:40]!r}, no number")
        value = float(value) if "." in value else int(value)
    if isinstance(value, float):
        value = math.floor(value)
    if value is not None and not -(2**63) <= value < 2**63:
        raise msgspec.ValidationError(f"{field} is beyond 64 bits")
    return value


_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]*)?")
