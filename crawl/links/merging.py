"""Votes to the rows of one part: runs in a worker, a few buckets at a time (crawl/links/spill.py), so that its memory does
not depend on the part's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from webtext.base.counts import Counts
from webtext.base.identifiers import link_id
from webtext.base.lean_arrow import keep_pandas_out
from webtext.base.partset import Failure, part_name
from webtext.base.stage import PartContext, PartTask
from webtext.base.storage import Folder
from webtext.crawl.links.link_rows import LinkColumns, merge_posts
from webtext.crawl.links.score_ages import SUFFIX, ScoreAges
from webtext.crawl.links.spill import N_BUCKETS, Block, Vote, read_blocks

MERGE_BYTES = 16 << 20  # of votes that are merged at a time, or one bucket where that is more; in Python they take 8x
ROWS_AT_A_TIME = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePayload:
    """What becomes one part."""

    work: Folder
    blocks: tuple[tuple[str, tuple[Block, ...]], ...]  # of this part, by spill
    unlinked: Counts  # of all dumps, in part 0
    failures: tuple[Failure, ...]
    validation_ratio: float
    min_karma_sum: int | None  # where the rule adds up the scores of a link


def merge_part(context: PartContext, task: PartTask) -> None:
    """Gather the votes of one part by URL and write a row for each link."""
    keep_pandas_out()
    payload: MergePayload = task.payload
    writer = context.output("links")
    writer.counts += payload.unlinked
    writer.failures += payload.failures
    ages = ScoreAges()
    columns = LinkColumns(payload.validation_ratio)
    for buckets in _batches_of_buckets(payload.blocks):
        for identifier, votes in _votes_of(buckets, payload):
            posts = merge_posts([vote.post for vote in votes])
            if len(posts) < len(votes):
                writer.counts.drop("duplicate_post", len(votes) - len(posts))
            if payload.min_karma_sum is not None and sum(post.score or 0 for post in posts) < payload.min_karma_sum:
                writer.counts.drop("too_little_karma_sum", len(posts))
                continue
            writer.counts.keep(len(posts))
            ages.add(posts)
            columns.add(identifier, votes[0], posts)
            if len(columns) == ROWS_AT_A_TIME:
                writer.write_table(columns.take())
    writer.write_table(columns.take())
    writer.attach(part_name(task.index).removesuffix(".parquet") + SUFFIX).write_bytes(ages.to_bytes())


def _batches_of_buckets(blocks: Sequence[tuple[str, tuple[Block, ...]]]) -> Iterator[range]:
    """Buckets in order, as many at a time as have MERGE_BYTES of votes, but at least one."""
    n_bytes: dict[int, int] = {}
    for _, its_blocks in blocks:
        for block in its_blocks:
            n_bytes[block.bucket] = n_bytes.get(block.bucket, 0) + block.n_bytes
    start, held = 0, 0
    for bucket in sorted(n_bytes):
        if held and held + n_bytes[bucket] > MERGE_BYTES:
            yield range(start, bucket)
            start, held = bucket, 0
        held += n_bytes[bucket]
    if held:
        yield range(start, N_BUCKETS)


def _votes_of(buckets: range, payload: MergePayload) -> list[tuple[str, list[Vote]]]:
    """(link_id, its votes) of all links in these buckets, sorted."""
    by_url: dict[str, list[Vote]] = {}
    for name, blocks in payload.blocks:
        wanted = [block for block in blocks if block.bucket in buckets]
        if wanted:
            with payload.work.open(name) as file:
                for vote in read_blocks(file, wanted, payload.work.location(name)):
                    by_url.setdefault(vote.url, []).append(vote)
    return sorted(((link_id(url), votes) for url, votes in by_url.items()), key=itemgetter(0))
