"""The row of a link, from the posts that voted for it: one by one, or in columns where there are many."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from webtext.base.identifiers import split_of
from webtext.base.schemas import LINK, POST
from webtext.base.urls import registrable_domain
from webtext.crawl.links.spill import Vote
from webtext.crawl.links.submission import Submission


def merge_posts(posts: Sequence[Submission]) -> list[Submission]:
    """Each post once, as it was read last, earliest first."""
    if len(posts) == 1:  # as most links have
        return list(posts)
    latest: dict[tuple[str, str], Submission] = {}
    for post in sorted(posts, key=_reading):
        latest[post.source, post.post_id] = post
    return sorted(latest.values(), key=lambda post: (post.created, post.post_id, post.source))


def _reading(post: Submission) -> tuple[Any, ...]:
    """A total order of the readings of one post: by time, then by content, so that input order never decides."""
    return (post.retrieved or 0, post.score, post.created, post.subreddit or "", post.url)


def link_row(identifier: str, url: str, posts: Sequence[Submission], validation_ratio: float) -> dict[str, Any]:
    """The row of a link, of its posts in their order."""
    scores = [post.score for post in posts if post.score is not None]
    return {
        "link_id": identifier,
        "url": url,
        "url_raw": posts[0].url,
        "domain": registrable_domain(url),
        "karma": max(scores),
        "karma_sum": _within_64_bits(sum(scores)),
        "first_created": posts[0].created,
        "posts": [
            {
                "source": post.source,
                "post_id": post.post_id,
                "subreddit": post.subreddit,
                "score": post.score,
                "created": post.created,
                "retrieved": post.retrieved,
            }
            for post in posts
        ],
        "split": split_of(identifier, validation_ratio),
    }


class LinkColumns:
    """Rows of links as `link_row` makes them, gathered by column: a fifth of the time that a dictionary a row takes."""

    def __init__(self, validation_ratio: float) -> None:
        self._ratio = validation_ratio
        self._links: list[tuple[Any, ...]] = []
        self._posts: list[Submission] = []

    def __len__(self) -> int:
        return len(self._links)

    def add(self, identifier: str, vote: Vote, posts: Sequence[Submission]) -> None:
        """Add a link, known from one of its votes, with its posts in their order."""
        if len(posts) == 1:
            karma = karma_sum = posts[0].score
        else:
            scores = [post.score for post in posts if post.score is not None]
            karma, karma_sum = max(scores), _within_64_bits(sum(scores))
        first = posts[0]
        split = split_of(identifier, self._ratio)
        row = (identifier, vote.url, first.url, vote.domain, karma, karma_sum, first.created, len(posts), split)
        self._links.append(row)
        self._posts += posts

    def take(self) -> pa.Table:
        """The rows as a table of the schema LINK; none of them stays."""
        links: list[Sequence[Any]] = [*zip(*self._links, strict=True)] or [()] * len(LINK)
        of_posts = [[getattr(post, name) for post in self._posts] for name in POST.names]
        posts = pa.StructArray.from_arrays(
            [pa.array(values, field.type) for values, field in zip(of_posts, POST, strict=True)], fields=list(POST)
        )
        at = LINK.get_field_index("posts")
        offsets = pa.array(itertools.accumulate(links[at], initial=0), pa.int32())
        columns = [
            pa.ListArray.from_arrays(offsets, posts, type=field.type) if i == at else pa.array(links[i], field.type)
            for i, field in enumerate(LINK)
        ]
        self._links, self._posts = [], []
        return pa.Table.from_arrays(columns, schema=LINK)


def _within_64_bits(number: int) -> int:
    return min(max(number, -(2**63)), 2**63 - 1)  # absurd scores must not break the column
