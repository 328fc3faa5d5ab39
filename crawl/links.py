"""Link collection: submission dumps in, one row per canonical URL out, with every post that voted for it.

    dumps ──► spills ──► parts      first one task a file (crawl/votes.py), then one task a part

Parts are equal ranges of link_id, so the whole set is sorted by it, and a part's memory is its share of the votes. How many
there are depends on the input's size alone. Spills lie in `OUT/_work` until the set is sealed.

The funnel counts posts. A vote counts in the part where its link lies: kept, or dropped as `duplicate_post` when the same
post is there twice, in one file or in two (the later reading of its score stays). What never became a vote has no link,
so part 0 counts it for all files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webtext.base.config import recipe_settings
from webtext.base.counts import Counts
from webtext.base.errors import RunFailed
from webtext.base.partset import Failure, PartSet, Source
from webtext.base.partwriter import SetWriter, part_key
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import link_id, split_of
from webtext.base.stage import PartContext, PartTask, run_parts
from webtext.base.storage import Folder
from webtext.base.urls import library_versions, registrable_domain
from webtext.crawl.inputs import find_files
from webtext.crawl.link_settings import MAX_PARTS, LinkSettings
from webtext.crawl.spill import Block, read_blocks
from webtext.crawl.submission import Submission
from webtext.crawl.votes import Dump, Spill, SpillJob, identify_dumps, spill_dumps

STAGE = "crawl.links"
CODE_VERSION = 1
INPUT_BYTES_PER_PART = 1 << 30
WORK = "_work"
ROWS_AT_A_TIME = 1024


def collect_links(inputs: Sequence[str], out: str, settings: LinkSettings, run: Run) -> PartSet:
    """Write the links of the dumps to the part set `out` and open it.

    `inputs` are files, folders (their `RS_*` files) and patterns, local or at fsspec URLs; neither their order nor the
    number of workers changes a byte. A dump that breaks off gives what it holds, and one failure of reason
    `truncated_stream` or `damaged_stream`: see `broken_dumps`.
    """
    recipe = Recipe(
        stage=STAGE, code_version=CODE_VERSION, settings=recipe_settings(settings), versions=library_versions()
    )
    dumps = identify_dumps(find_files(inputs), run)
    n_parts = settings.parts or parts_for(sum(dump.n_bytes for dump in dumps))
    tasks = _tasks(dumps, n_parts)
    work = Folder(out).child(WORK)
    outputs = {"links": (out, "links")}
    SetWriter(out, "links", recipe).check_place()
    if run.dry_run or _all_done(out, recipe, tasks):
        sets = run_parts(_merge_part, tasks, recipe=recipe, outputs=outputs, parents=[], run=run, label="links")
        return sets["links"]
    with work.held():
        jobs = [SpillJob.of(dump, work, recipe, n_parts, settings) for dump in dumps]
        tasks = _with_spills(tasks, spill_dumps(jobs, run), work, settings)
        sets = run_parts(_merge_part, tasks, recipe=recipe, outputs=outputs, parents=[], run=run, label="links")
        work.remove_all()
    return sets["links"]


def parts_for(n_bytes: int) -> int:
    """The number of parts for that many bytes of input: one for each GiB begun.

    >>> parts_for(0), parts_for(2**30), parts_for(2**30 + 1)
    (1, 1, 2)
    """
    return min(max(1, -(-n_bytes // INPUT_BYTES_PER_PART)), MAX_PARTS)


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


def _tasks(dumps: Sequence[Dump], n_parts: int) -> list[PartTask]:
    sources = tuple(Source("dumps", dump.name, dump.sha256) for dump in dumps)
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
            of_part.setdefault(block.part, []).append(block)
        for part, its_blocks in of_part.items():
            blocks[part].append((spill.file_name, tuple(its_blocks)))
    unlinked = Counts()
    for spill in spills:
        n_records = sum(spill.dropped.values()) + sum(spill.failed.values())
        unlinked += Counts(n_records, 0, spill.dropped, spill.failed)
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
            ),
        )
        for task in tasks
    ]


def _merge_part(context: PartContext, task: PartTask) -> None:
    """Runs in a worker: gather the votes of one part by URL and write a row for each."""
    payload: _MergePayload = task.payload
    writer = context.output("links")
    writer.counts += payload.unlinked
    writer.failures += payload.failures
    by_url: dict[str, list[Submission]] = {}
    for name, blocks in payload.blocks:
        with payload.work.open(name) as file:
            for vote in read_blocks(file, blocks, payload.work.location(name)):
                by_url.setdefault(vote.url, []).append(vote.post)
    rows = []
    for identifier, url in sorted((link_id(url), url) for url in by_url):
        posts = merge_posts(by_url[url])
        writer.counts.keep(len(posts))
        if len(posts) < len(by_url[url]):
            writer.counts.drop("duplicate_post", len(by_url[url]) - len(posts))
        rows.append(_link_row(identifier, url, posts, payload.validation_ratio))
        if len(rows) == ROWS_AT_A_TIME:
            writer.write(rows)
            rows = []
    writer.write(rows)


def merge_posts(posts: Sequence[Submission]) -> list[Submission]:
    """Each post once, as it was read last, earliest first."""
    latest: dict[tuple[str, str], Submission] = {}
    for post in sorted(posts, key=_reading):
        latest[post.source, post.post_id] = post
    return sorted(latest.values(), key=lambda post: (post.created, post.post_id, post.source))


def _reading(post: Submission) -> tuple[Any, ...]:
    """A total order of the readings of one post: by time, then by content, so that input order never decides."""
    return (post.retrieved or 0, post.score, post.created, post.subreddit or "", post.url)


def _link_row(identifier: str, url: str, posts: Sequence[Submission], validation_ratio: float) -> dict[str, Any]:
    return {
        "link_id": identifier,
        "url": url,
        "url_raw": posts[0].url,
        "domain": registrable_domain(url),
        "karma": max(post.score for post in posts if post.score is not None),
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
