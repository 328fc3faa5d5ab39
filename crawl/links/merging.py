"""Merge the votes of one part into rows of links.

Runs in a worker, on a few buckets at a time (crawl/links/spill.py), so its memory does not depend on the part's size.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from webtext.base.parts.counts import Counts
from webtext.base.parts.identifiers import link_id, split_of
from webtext.base.parts.partset import FailedRecord
from webtext.base.parts.schemas import LINK, POST
from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.storage import Folder
from webtext.crawl.links.sources.submission import Submission
from webtext.crawl.links.spill import N_BUCKETS, SpillBlock, Vote, read_votes

MERGE_BYTES = 16 << 20  # encoded votes merged at a time, or one bucket if larger; as Python objects they take 8x
ROWS_AT_A_TIME = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePayload:
    """The input of one part."""

    work: Folder
    blocks: tuple[tuple[str, tuple[SpillBlock, ...]], ...]  # (spill file, its blocks for this part)
    unlinked: Counts  # records of all dumps that gave no vote; only in part 0
    failures: tuple[FailedRecord, ...]
    validation_ratio: float
    min_karma_sum: int | None  # if the rule adds up the scores of a link


def merge_part(context: PartContext, task: PartTask) -> None:
    """Group the votes of one part by URL and write one row per link."""
    payload: MergePayload = task.payload
    writer = context.output("links")
    writer.counts += payload.unlinked
    writer.name_failures(payload.failures)
    for buckets in _batches_of_buckets(payload.blocks):
        identifiers, votes = _votes_of(buckets, payload)
        for start, stop in _ranges(identifiers):
            columns = LinkColumns(payload.validation_ratio)
            _add_links(identifiers[start:stop], votes[start:stop], columns, payload.min_karma_sum, writer.counts)
            writer.write_table(columns.table())


def _batches_of_buckets(blocks: Sequence[tuple[str, tuple[SpillBlock, ...]]]) -> Iterator[range]:
    """Yield ranges of buckets in order, each with up to MERGE_BYTES of votes, but at least one bucket."""
    n_bytes: Counter[int] = Counter()
    for _, its_blocks in blocks:
        for block in its_blocks:
            n_bytes[block.bucket] += block.n_bytes
    start, held = 0, 0
    for bucket in sorted(n_bytes):
        if held and held + n_bytes[bucket] > MERGE_BYTES:
            yield range(start, bucket)
            start, held = bucket, 0
        held += n_bytes[bucket]
    if held:
        yield range(start, N_BUCKETS)


def _votes_of(buckets: range, payload: MergePayload) -> tuple[list[str], list[Vote]]:
    """Return (link_ids, votes) of these buckets, sorted by link_id."""
    votes: list[Vote] = []
    for name, blocks in payload.blocks:
        wanted = [block for block in blocks if block.bucket in buckets]
        if wanted:
            with payload.work.open(name) as file:
                for vote in read_votes(file, wanted, payload.work.location(name)):
                    if votes and vote.url == votes[-1].url:  # a link may have millions of posts: share their strings
                        shared = {"source": sys.intern(vote.post.source), "url": sys.intern(vote.post.url or "")}
                        vote = Vote(votes[-1].url, votes[-1].domain, msgspec.structs.replace(vote.post, **shared))
                    votes.append(vote)
    identifiers = [sys.intern(link_id(vote.url)) for vote in votes]
    order = sorted(range(len(votes)), key=identifiers.__getitem__)
    return [identifiers[place] for place in order], [votes[place] for place in order]


def _ranges(identifiers: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of ranges of about ROWS_AT_A_TIME sorted identifiers; equal ones stay together."""
    start = 0
    while start < len(identifiers):
        stop = min(start + ROWS_AT_A_TIME, len(identifiers))
        while stop < len(identifiers) and identifiers[stop] == identifiers[stop - 1]:
            stop += 1
        yield start, stop
        start = stop


def _add_links(
    identifiers: Sequence[str], votes: Sequence[Vote], columns: LinkColumns, min_karma_sum: int | None, counts: Counts
) -> None:
    """Add the links of `votes`, which are sorted by link, to `columns`, and count the votes."""
    at = 0
    # Links with one vote, which most are, are added many at once, unless min_karma_sum must be checked for each.
    for start, stop in [*_links_in(identifiers, 2 if min_karma_sum is None else 1), (len(votes), len(votes))]:
        columns.add_of_one_post(identifiers[at:start], votes[at:start])
        counts.keep(start - at)
        at = stop
        if start == stop:
            break
        posts = merge_posts([vote.post for vote in votes[start:stop]])
        if len(posts) < stop - start:
            counts.drop("duplicate_post", stop - start - len(posts))
        if min_karma_sum is not None and sum(post.score or 0 for post in posts) < min_karma_sum:
            counts.drop("too_little_karma_sum", len(posts))
            continue
        counts.keep(len(posts))
        columns.add(identifiers[start], votes[start], posts)


def _links_in(identifiers: Sequence[str], min_votes: int) -> list[tuple[int, int]]:
    """Return (start, stop) of each link with at least `min_votes` votes."""
    stops = [place for place, (one, other) in enumerate(itertools.pairwise(identifiers), 1) if one != other]
    stops += [len(identifiers)]
    return [(start, stop) for start, stop in zip([0, *stops], stops, strict=False) if stop - start >= min_votes]


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


class LinkColumns:
    """Rows of links, gathered by column: a fifth of the time of one dictionary per row."""

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
        self._karma_sum.append(min(max(sum(scores), -(2**63)), 2**63 - 1))  # absurd scores must not overflow the column
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
        fields = [pa.array(list(map(attrgetter(field.name), self.posts)), field.type) for field in POST]
        posts = pa.StructArray.from_arrays(fields, fields=list(POST))
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
