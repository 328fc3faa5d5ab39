"""The record that every link source produces, whatever its format: a post with the URL that it votes for.

A source reads a file in two steps, so that a record that kills its worker can be identified and set aside:

    records(file)    yields (position, raw record) or (position, Unreadable)
    parse(raw)       returns its Submission, or DeletedPost, or Unreadable
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeVar, runtime_checkable

import msgspec

from webtext.crawl.links.settings import PostRule
from webtext.crawl.links.sources.lines import Unreadable


class Submission(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """A post and one URL that it votes for, not judged yet. `url` is as in the source, after its unescaping."""

    source: str  # "reddit" or "list"
    post_id: str
    subreddit: str | None
    url: str | None
    score: int | None
    created: int | None  # UTC seconds
    retrieved: int | None  # UTC seconds when the score was read, if known
    is_self: bool
    over_18: bool


@dataclass(frozen=True, slots=True)
class DeletedPost:
    """A record that was read but does not vote, since its post was deleted or removed; `reason` is the counted key."""

    reason: str


Raw = TypeVar("Raw")


class LinkSource(Protocol[Raw]):
    """The reader of a format. A position is unique in its file and shows people where to look."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Raw | Unreadable]]:
        """Yield the file's raw records in order, each with its position."""

    def parse(self, record: Raw) -> Sequence[Submission] | DeletedPost | Unreadable:
        """Return the vote in one raw record."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """The result of sifting many lines at once.

    `dropped` counts votes by reason, `posts` are the remaining posts in order, and `others` are (begin, end) of lines
    that must be parsed alone.
    """

    dropped: Mapping[str, int]
    posts: Sequence[Submission]
    others: Sequence[tuple[int, int]]


@runtime_checkable
class SiftingSource(LinkSource[bytes], Protocol):
    """A source of lines that can judge many at a time. Its records are the lines of `crawl/links/sources/lines.py`."""

    def sift(self, lines: bytes | memoryview, rule: PostRule) -> Sifted:
        """Sift complete lines. Posts that the rule drops may be counted here; the posts returned are judged again."""
