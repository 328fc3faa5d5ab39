"""One post that links somewhere: what every link source gives, whatever its format.

A source reads a file in two steps, so that a record that kills its worker can be named and set aside:

    records(file)    (position, raw record) or (position, Unreadable), streaming
    parse(raw)       the Submissions in it, one for each URL that it votes for, or Dropped, or Unreadable
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeVar, runtime_checkable

import msgspec


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
    """What `crawl/votes.py` needs to know about a format. A position is unique in its file and tells people where to look."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Raw | Unreadable]]:
        """The file's raw records in order."""

    def parse(self, record: Raw) -> Sequence[Submission] | Dropped | Unreadable:
        """The votes in one raw record: none where it links nowhere, several where it links to several URLs."""


Sifted = tuple[dict[str, int], list[Submission]]
"""Of many records at once: how many are dropped, by reason, and the posts that are not, in order."""


@runtime_checkable
class SiftingSource(LinkSource[bytes], Protocol):
    """A source of lines that may judge many at a time. Its records are the lines that `crawl/streams.py` reads."""

    def sift(self, lines: bytes, judge_post: Callable[[Any], str | None]) -> Sifted | None:
        """What `parse` and then `judge_post` make of whole lines; None when they must be looked at one by one.

        `judge_post` gives the reason to drop what has the attributes of a Submission, but for `source` and `post_id`, with
        the URL as it stands in the line.
        """
