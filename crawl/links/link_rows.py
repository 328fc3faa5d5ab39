"""Build the rows of links from the posts that voted for them: one at a time, or many at once by column."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from webtext.base.parts.identifiers import split_of
from webtext.base.parts.schemas import LINK, POST
from webtext.base.web.urls import registrable_domain
from webtext.crawl.links.spill import Vote
from webtext.crawl.links.submission import Submission


def merge_posts(posts: Sequence[Submission]) -> list[Submission]:
    """Return each post once, in its latest reading; the earliest post comes first."""
    if len(posts) == 1:  # as for most links
        return list(posts)
    latest: dict[tuple[str, str], Submission] = {}
    for post in sorted(posts, key=_reading):
        latest[post.source, post.post_id] = post
    return sorted(latest.values(), key=lambda post: (post.created, post.post_id, post.source))


def _reading(post: Submission) -> tuple[Any, ...]:
    """Return the sort key of a post's readings: time, then content, so that the order of the input never decides."""
    return (post.retrieved or 0, post.score, post.created, post.subreddit or "", post.url)


def link_row(identifier: str, url: str, posts: Sequence[Submission], validation_ratio: float) -> dict[str, Any]:
    """Return the row of a link from its posts, which are in the order of `merge_posts`."""
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
    """Rows equal to those of `link_row`, gathered by column: a fifth of the time of one dictionary per row."""

    def __init__(self, validation_ratio: float) -> None:
        self._ratio = validation_ratio
        self.posts: list[Submission] = []  # of all links, concatenated
        self._identifiers: list[str] = []
        self._votes: list[Vote] = []  # the first vote of each link, for its URL and domain
        self._n_posts: list[int] = []
        self._karma: list[int | None] = []
        self._karma_sum: list[int | None] = []

    def add(self, identifier: str, vote: Vote, posts: Sequence[Submission]) -> None:
        """Add a link: one of its votes, for the URL, and its posts in the order of `merge_posts`."""
        scores = [post.score for post in posts if post.score is not None]
        self._identifiers.append(identifier)
        self._votes.append(vote)
        self._n_posts.append(len(posts))
        self._karma.append(max(scores))
        self._karma_sum.append(_within_64_bits(sum(scores)))
        self.posts += posts

    def add_of_one_post(self, identifiers: Sequence[str], votes: Sequence[Vote]) -> None:
        """Add links with one vote each, which most links are."""
        posts = [vote.post for vote in votes]
        scores = [post.score for post in posts]
        self._identifiers += identifiers
        self._votes += votes
        self._n_posts += [1] * len(votes)
        self._karma += scores
        self._karma_sum += scores
        self.posts += posts

    def table(self) -> pa.Table:
        """Return the rows as a table with the schema LINK."""
        of_posts = {
            "source": [post.source for post in self.posts],
            "post_id": [post.post_id for post in self.posts],
            "subreddit": [post.subreddit for post in self.posts],
            "score": [post.score for post in self.posts],
            "created": [post.created for post in self.posts],
            "retrieved": [post.retrieved for post in self.posts],
        }
        posts = pa.StructArray.from_arrays(
            [pa.array(of_posts[field.name], field.type) for field in POST], fields=list(POST)
        )
        offsets = pa.array(itertools.accumulate(self._n_posts, initial=0), pa.int32())
        first = [self.posts[at] for at in itertools.accumulate(self._n_posts[:-1], initial=0)] if self._n_posts else []
        columns = {
            "link_id": self._identifiers,
            "url": [vote.url for vote in self._votes],
            "url_raw": [post.url for post in first],
            "domain": [vote.domain for vote in self._votes],
            "karma": self._karma,
            "karma_sum": self._karma_sum,
            "first_created": [post.created for post in first],
            "posts": pa.ListArray.from_arrays(offsets, posts, type=LINK.field("posts").type),
            "split": [split_of(identifier, self._ratio) for identifier in self._identifiers],
        }
        return pa.table(columns, schema=LINK)


def _within_64_bits(number: int) -> int:
    return min(max(number, -(2**63)), 2**63 - 1)  # absurd scores must not overflow the column
