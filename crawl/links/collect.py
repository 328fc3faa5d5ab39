"""Link collection: dumps and lists in, one row per canonical URL out, with every post that voted for it.

    dumps ──► spills ──► parts      first one task a file (crawl/links/votes.py), then one task a part

Parts are ranges of link_id, so the whole set is sorted by it. How many there are depends on the input's size alone. A part
is merged a few buckets at a time (crawl/links/spill.py), so its memory does not depend on its size. Spills lie in `OUT/_work`
until the set is sealed.

The funnel counts votes. One counts in the part where its link lies: kept, or dropped as `duplicate_post` when the same
post is there twice, in one file or in two (the later reading of its score stays), or, where the rule adds up scores, as
`too_little_karma_sum` with all other posts of its link. What never became a vote has no link, so part 0 counts it for
all files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from webtext.base.config import recipe_settings
from webtext.base.counts import Counts
from webtext.base.errors import RunFailed
from webtext.base.partset import Failure, PartSet, Source, part_name
from webtext.base.partwriter import SetWriter, part_key
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import link_id, split_of
from webtext.base.stage import PartContext, PartTask, run_parts
from webtext.base.storage import Folder
from webtext.base.urls import library_versions, registrable_domain
from webtext.crawl.apis.inputs import parse_input
from webtext.crawl.apis.settings import ApiSettings
from webtext.crawl.links.inputs import find_files
from webtext.crawl.links.karma import Judge
from webtext.crawl.links.score_ages import DAY, SUFFIX, ScoreAges, score_ages
from webtext.crawl.links.settings import MAX_PARTS, LinkSettings
from webtext.crawl.links.spill import N_BUCKETS, Block, read_blocks
from webtext.crawl.links.submission import Submission
from webtext.crawl.links.votes import Dump, Spill, SpillJob, identify_dumps, spill_dumps

STAGE = "crawl.links"
CODE_VERSION = 2
INPUT_BYTES_PER_PART = 1 << 30
MIN_INPUT_BYTES_PER_PART, FEW_PARTS = 64 << 20, 8  # so that workers share the merge of a single dump, too
MERGE_BYTES = 16 << 20  # of votes that are merged at a time, or one bucket where that is more; in Python they take 8x
WORK = "_work"
ROWS_AT_A_TIME = 1024
MONTHS_NAMED = 6


def collect_links(
    inputs: Sequence[str], out: str, settings: LinkSettings, run: Run, api: ApiSettings | None = None
) -> PartSet:
    """Write the links of the dumps to the part set `out` and open it.

    `inputs` are files, folders (their `RS_*` files) and patterns, local or at fsspec URLs, or name an API, which is asked
    as `api` says (`crawl/apis/harvest_inputs.py`). Neither their order nor the number of workers changes a byte. A dump that
    breaks off gives what it holds, and one failure of reason `truncated_stream` or `damaged_stream`: see `broken_dumps`.
    """
    rule = recipe_settings(settings) | Judge.of(settings).about()
    recipe = Recipe(stage=STAGE, code_version=CODE_VERSION, settings=rule, versions=library_versions())
    SetWriter(out, "links", recipe).check_place()
    files = find_files(_with_answers(inputs, out, api or ApiSettings(), run), settings.source)
    dumps = identify_dumps(files, run)
    n_parts = settings.parts or parts_for(sum(dump.n_bytes for dump in dumps))
    tasks = _tasks(dumps, n_parts)
    work = Folder(out).child(WORK)
    outputs = {"links": (out, "links")}
    if run.dry_run or _all_done(out, recipe, tasks):
        sets = run_parts(_merge_part, tasks, recipe=recipe, outputs=outputs, parents=[], run=run, label="links")
        return _with_warning(sets["links"], run)
    with work.held():
        jobs = [SpillJob.of(dump, work, recipe, settings) for dump in dumps]
        tasks = _with_spills(tasks, spill_dumps(jobs, run), work, settings)
        sets = run_parts(_merge_part, tasks, recipe=recipe, outputs=outputs, parents=[], run=run, label="links")
        work.remove_all()
    return _with_warning(sets["links"], run)


def _with_warning(links: PartSet, run: Run) -> PartSet:
    """The set, once it is said which of its months have scores that few had voted on."""
    fresh = score_ages(links).fresh_months()
    if fresh:
        others = f" and {len(fresh) - MONTHS_NAMED:,} more" if len(fresh) > MONTHS_NAMED else ""
        run.console.warn(
            f"most scores of {', '.join(fresh[:MONTHS_NAMED])}{others} were read within a day, before many could vote\n"
            f"  --min-score-age {DAY} leaves out what was read too soon; crawl refresh asks Reddit for today's scores"
        )
    return links


def _with_answers(inputs: Sequence[str], out: str, api: ApiSettings, run: Run) -> Sequence[str]:
    if not any(parse_input(text) for text in inputs):
        return inputs
    from webtext.crawl.apis.harvest_inputs import harvest_inputs  # network code, for those who ask an API only

    return harvest_inputs(inputs, out, api, run)


def parts_for(n_bytes: int) -> int:
    """The number of parts for that many bytes of input: one for each GiB begun; of less than 8 GiB one for each 64 MiB, up to 8.

    >>> parts_for(0), parts_for(2**26 + 1), parts_for(2**30), parts_for(2**33), parts_for(2**33 + 1)
    (1, 2, 8, 8, 9)
    """
    few = min(-(-n_bytes // MIN_INPUT_BYTES_PER_PART), FEW_PARTS)
    return min(max(1, few, -(-n_bytes // INPUT_BYTES_PER_PART)), MAX_PARTS)


def broken_dumps(links: PartSet) -> list[Failure]:
    """The dumps that could not be read to their end, as the set's manifest tells."""
    reasons = ("truncated_stream", "damaged_stream")
    return [failure for part in links.parts for failure in part.failures if failure.reason in reasons]


def check_dumps(links: PartSet) -> None:
    """RunFailed when a dump could not be read to its end: what could be read is written, and nobody may overlook it."""
    broken = broken_dumps(links)
    if broken:
        name = broken[0].id.rpartition(":")[0]
        raise RunFailed(
            f"{len(broken)} dumps could not be read to the end; '{name}': {broken[0].reason} ({broken[0].cause})",
            "what could be read is written",
            "download the files again and give the same command",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MergePayload:
    work: Folder
    blocks: tuple[tuple[str, tuple[Block, ...]], ...]  # of this part, by spill
    unlinked: Counts  # of all dumps, in part 0
    failures: tuple[Failure, ...]
    validation_ratio: float
    min_karma_sum: int | None  # where the rule adds up the scores of a link


def _tasks(dumps: Sequence[Dump], n_parts: int) -> list[PartTask]:
    sources = tuple(Source(dump.source, dump.name, dump.sha256) for dump in dumps)
    return [PartTask(index=i, sources=sources, payload=None, depends=f"{n_parts} parts") for i in range(n_parts)]


def _all_done(out: str, recipe: Recipe, tasks: Sequence[PartTask]) -> bool:
    """Whether no dump need be read: `run_parts` will find every part as it should be."""
    done = SetWriter(out, "links", recipe).done()
    return all(
        task.index in done and done[task.index].key == part_key(recipe, task.sources, task.depends) for task in tasks
    )


def _with_spills(
    tasks: Sequence[PartTask], spills: Sequence[Spill], work: Folder, settings: LinkSettings
) -> list[PartTask]:
    blocks: list[list[tuple[str, tuple[Block, ...]]]] = [[] for _ in tasks]
    for spill in spills:
        of_part: dict[int, list[Block]] = {}
        for block in spill.blocks:
            of_part.setdefault(block.bucket * len(tasks) // N_BUCKETS, []).append(block)
        for part, its_blocks in of_part.items():
            blocks[part].append((spill.file_name, tuple(its_blocks)))
    unlinked = Counts()
    for spill in spills:
        n_records = sum(spill.dropped.values()) + sum(spill.failed.values())
        unlinked += Counts(n_records, 0, spill.dropped, spill.failed)
    rule = settings.rule
    failures = tuple(Failure(*failure) for spill in spills for failure in spill.failures)
    return [
        PartTask(
            index=task.index,
            sources=task.sources,
            depends=task.depends,
            payload=_MergePayload(
                work=work,
                blocks=tuple(blocks[task.index]),
                unlinked=unlinked if task.index == 0 else Counts(),
                failures=failures if task.index == 0 else (),
                validation_ratio=settings.validation_ratio,
                min_karma_sum=rule.min_karma if rule.sum_karma else None,
            ),
        )
        for task in tasks
    ]


def _merge_part(context: PartContext, task: PartTask) -> None:
    """Runs in a worker: gather the votes of one part by URL and write a row for each link."""
    payload: _MergePayload = task.payload
    writer = context.output("links")
    writer.counts += payload.unlinked
    writer.failures += payload.failures
    ages = ScoreAges()
    for buckets in _batches_of_buckets(payload.blocks):
        votes = _votes_of(buckets, payload)
        for start in range(0, len(votes), ROWS_AT_A_TIME):
            links = votes[start : start + ROWS_AT_A_TIME]
            rows = [_merge_link(*link, writer.counts, ages, payload) for link in links]
            writer.write([row for row in rows if row is not None])
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


def _votes_of(buckets: range, payload: _MergePayload) -> list[tuple[str, str, list[Submission]]]:
    """(link_id, URL, posts) of all links in these buckets, sorted."""
    by_url: dict[str, list[Submission]] = {}
    for name, blocks in payload.blocks:
        wanted = [block for block in blocks if block.bucket in buckets]
        if wanted:
            with payload.work.open(name) as file:
                for vote in read_blocks(file, wanted, payload.work.location(name)):
                    by_url.setdefault(vote.url, []).append(vote.post)
    return sorted((link_id(url), url, posts) for url, posts in by_url.items())


def _merge_link(
    identifier: str, url: str, posts: Sequence[Submission], counts: Counts, ages: ScoreAges, payload: _MergePayload
) -> dict[str, Any] | None:
    """The row of one link, its posts counted; None when the rule adds up their scores and the sum is too little."""
    merged = merge_posts(posts)
    if len(merged) < len(posts):
        counts.drop("duplicate_post", len(posts) - len(merged))
    row = link_row(identifier, url, merged, payload.validation_ratio)
    if payload.min_karma_sum is not None and row["karma_sum"] < payload.min_karma_sum:
        counts.drop("too_little_karma_sum", len(merged))
        return None
    counts.keep(len(merged))
    ages.add(merged)
    return row


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
        "karma_sum": min(max(sum(scores), -(2**63)), 2**63 - 1),  # absurd scores must not break the column
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
