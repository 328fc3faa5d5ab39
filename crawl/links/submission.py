"""One post that links somewhere: what every link source gives, whatever its format.

A source reads a file in two steps, so that a record that kills its worker can be named and set aside:

    records(file)    (position, raw record) or (position, Unreadable), streaming
    parse(raw)       the Submissions in it, one for each URL that it votes for, or Dropped, or Unreadable
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeVar, runtime_checkable

import msgspec

from webtext.crawl.links.settings import PostRule


class Submission(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """A post and its votes. `url` is as the source gave it, unescaped as that source demands; nothing is judged yet."""

    source: str  # "reddit", "reddit-comment", "hackernews", "list", or what a list says
    post_id: str
    subreddit: str | None
    url: str | None
    score: int | None
    created: int | None  # UTC seconds
    retrieved: int | None  # when the score was read, where the source tells
    is_self: bool
    over_18: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a record that could not be read: `reason` is the counted key, `cause` is for people."""

    reason: str
    cause: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """Stands for a record that was read and does not vote, for the `reason` that is counted: its author took it back."""

    reason: str


NO_LINK = "no_link"
"""The record votes for nothing. What the funnel counts is votes, and a record that holds none as one."""

Raw = TypeVar("Raw")


class LinkSource(Protocol[Raw]):
    """What `crawl/links/votes.py` needs to know of a format. A position is unique in its file and tells people where to look."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Raw | Unreadable]]:
        """The file's raw records in order."""

    def parse(self, record: Raw) -> Sequence[Submission] | Dropped | Unreadable:
        """The votes in one raw record: none where it links nowhere, several where it links to several URLs."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """Of many lines at once: how many votes drop, by reason; the posts that are left, in order; and the other lines.

    These are (begin, end) of each line that must be looked at alone.
    """

    dropped: Mapping[str, int]
    posts: Sequence[Submission]
    others: Sequence[tuple[int, int]]


@runtime_checkable
class SiftingSource(LinkSource[bytes], Protocol):
    """A source of lines that may judge many at a time. Its records are the lines that `crawl/streams/lines.py` reads."""

    keeps_up: bool
    """Whether one process that sifts keeps up with one that decompresses, whatever the format."""

    def sift(self, lines: bytes | memoryview, rule: PostRule) -> Sifted:
        """What `parse` makes of whole lines. What the rule drops may be left out of the posts and counted; it is asked again."""
