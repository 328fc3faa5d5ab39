"""Link collection: dumps and lists in, one row per canonical URL out, with every post that voted for it.

    dumps ──► spills ──► parts      first one task per file (reading.py), then one task per part (merging.py)

A part is a range of link_id, so the set is sorted by it. The number of parts depends only on the size of the input.
Spills are kept in `OUT/_work` until the set is sealed.

The funnel counts votes, each in the part of its link. A vote is kept, or dropped as `duplicate_post` when the same post
was read more than once, from one file or several (the latest reading is kept), or dropped as `too_little_karma_sum`,
with all other posts of its link, when the rule adds up scores. Records that never became votes have no link, so part 0
counts them for all files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from webtext.base.config import recipe_settings
from webtext.base.errors import RunFailed
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import ENTRIES, FailedRecord, PartSet, SourcePart
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartTask, SetWriter, make_set
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.web.urls import library_versions
from webtext.crawl.links.karma import KarmaJudge
from webtext.crawl.links.merging import MergePayload, merge_part
from webtext.crawl.links.reading import Spill, SpillJob, identify_files, spill_files
from webtext.crawl.links.settings import MAX_PARTS, LinkSettings
from webtext.crawl.links.sources.inputs import LinkFile, find_files
from webtext.crawl.links.spill import N_BUCKETS, SpillBlock

STAGE = "crawl.links"
CODE_VERSION = 5  # 5: lists of URLs are split at carriage returns
INPUT_BYTES_PER_PART = 1 << 30
MIN_INPUT_BYTES_PER_PART, FEW_PARTS = 64 << 20, 8  # so that workers also share the merge of a single dump
WORK = "_work"


Harvest = Callable[[Sequence[str]], Sequence[str]]
"""Replaces the inputs that name a listing of Reddit's by files of its answers (`crawl/links/reddit_api/harvest.py`)."""


def collect_links(
    inputs: Sequence[str], out: str, settings: LinkSettings, run: Run, harvest: Harvest | None = None
) -> PartSet:
    """Collect the links of all inputs into the part set `out` and open it.

    `inputs` are files, folders (their `RS_*` files) and patterns, local or at fsspec URLs. `harvest` replaces those that
    name a listing of Reddit's by files of answers. Neither their order nor the number of workers
    changes a byte. A dump that breaks off contributes everything before the break, and one failure with the reason
    `truncated_stream` or `damaged_stream`: see `broken_dumps`.
    """
    rule = recipe_settings(settings) | KarmaJudge.of(settings).about()
    recipe = Recipe(stage=STAGE, code_version=CODE_VERSION, settings=rule, versions=library_versions())
    links = SetWriter(out, "links", recipe)
    links.check_place(run.replaces)
    defaults = {"url": None, "score": settings.default_score, "created": settings.default_created}
    needed = [name for name, default in defaults.items() if default is None]
    files = find_files(inputs if harvest is None else harvest(inputs), settings.source, needed)
    n_parts = settings.parts or parts_for(sum(file.n_bytes for file in files))
    work = Folder(out).child(WORK)
    if run.dry_run or work.exists("") or Folder(out).exists(ENTRIES):  # what is done depends on the files' contents
        files = identify_files(files, run)
        tasks = _tasks(files, n_parts)
        if run.dry_run or links.has_all(tasks):
            made = make_set(merge_part, tasks, out, "links", recipe, [], run, "links")
            work.remove_all()  # a run that was killed at its very end left it
            return made
    with work.held():  # files that aren't hashed yet are hashed while they are read
        files, spills = spill_files([SpillJob.of(file, work, recipe, settings) for file in files], run)
        tasks = _with_spills(_tasks(files, n_parts), spills, work, settings)
        made = make_set(merge_part, tasks, out, "links", recipe, [], run, "links")
        work.remove_all()
    return made


def parts_for(n_bytes: int) -> int:
    """Return the number of parts for `n_bytes` of input: one per GiB, rounded up; below 8 GiB one per 64 MiB, up to 8.

    >>> parts_for(0), parts_for(2**26 + 1), parts_for(2**30), parts_for(2**33), parts_for(2**33 + 1)
    (1, 2, 8, 8, 9)
    """
    few = min(-(-n_bytes // MIN_INPUT_BYTES_PER_PART), FEW_PARTS)
    return min(max(1, few, -(-n_bytes // INPUT_BYTES_PER_PART)), MAX_PARTS)


def broken_dumps(links: PartSet) -> list[FailedRecord]:
    """Return the failures of dumps that could not be read to the end, from the set's manifest."""
    reasons = ("truncated_stream", "damaged_stream")
    return [failure for failure in links.failures() if failure.reason in reasons]


def check_dumps(links: PartSet) -> None:
    """Raise RunFailed if a dump could not be read to the end; the links before the break are in the set."""
    broken = broken_dumps(links)
    if broken:
        name = broken[0].id.rpartition(":")[0]
        raise RunFailed(
            f"dumps not read to the end: {len(broken)}; '{name}': {broken[0].reason} ({broken[0].cause})",
            "the set contains the links that were read before the break",
            "download the files again and rerun the same command",
        )


def _tasks(files: Sequence[LinkFile], n_parts: int) -> list[PartTask]:
    sources = tuple(SourcePart(file.source, file.label, file.sha256) for file in files)
    return [PartTask(index=i, sources=sources, payload=None, depends=f"{n_parts} parts") for i in range(n_parts)]


def _with_spills(
    tasks: Sequence[PartTask], spills: Sequence[Spill], work: Folder, settings: LinkSettings
) -> list[PartTask]:
    blocks: list[list[tuple[str, tuple[SpillBlock, ...]]]] = [[] for _ in tasks]
    for spill in spills:
        of_part: dict[int, list[SpillBlock]] = {}
        for block in spill.blocks:
            of_part.setdefault(block.bucket * len(tasks) // N_BUCKETS, []).append(block)
        for part, its_blocks in of_part.items():
            blocks[part].append((spill.file_name, tuple(its_blocks)))
    unlinked = sum((spill.unlinked for spill in spills), Counts())
    rule = settings.rule
    failures = tuple(FailedRecord(*failure) for spill in spills for failure in spill.failures)
    return [
        replace(
            task,
            payload=MergePayload(
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
