"""From dumps to spills: each file is read once, by a worker that hashes it and writes its votes to a spill in one pass.

Spills are kept in a folder of their own until the links are merged. After a kill or a full disk a spill is used again
only if its record exists. The record is published last, and identifies the dump's bytes and the recipe.

The modules that judge posts take half a second of CPU time to import. They are imported only after the task was
unpickled and its decoder was started, so that the file is decompressed in the meantime.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec

from webtext.base.decompress import ZSTANDARD, decompress
from webtext.base.errors import InputError
from webtext.base.parts.counts import Counts
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.outcomes import UNSETTLED
from webtext.base.parts.recipe import Recipe, sha256_json, with_check, without_check
from webtext.base.run import Engine, Run
from webtext.base.storage import Folder, file_sha256
from webtext.base.workers.attempt import KILLED_WORKER, Attempt
from webtext.base.workers.local_engine import WorkerLimits
from webtext.crawl.links.settings import LinkSettings
from webtext.crawl.links.sources.decoder import decompressed_ahead
from webtext.crawl.links.sources.inputs import SUBMISSIONS, URLS, LinkFile, link_source
from webtext.crawl.links.sources.lines import Unreadable, read_batches
from webtext.crawl.links.sources.submission import SiftingSource
from webtext.crawl.links.spill import SUFFIX, SpillBlock, SpillWriter, Vote, bucket_of

if TYPE_CHECKING:
    from webtext.crawl.links.judging import Funnel
    from webtext.crawl.links.karma import KarmaJudge

HASH_BYTES = 8 << 20
"""Large, since the hashing thread waits milliseconds for Python code between two reads."""
MIN_AHEAD_BYTES = 4 << 20
"""Size above which another process decompresses a file for the worker that judges it, if workers would be idle."""

READER_LIMITS = WorkerLimits(memory_bytes=3 << 30)
"""A Zstandard window alone may take 2 GiB, which is a worker's usual limit."""


class Spill(msgspec.Struct, kw_only=True):
    """The record of a finished spill."""

    key: str
    sha256: str  # of the dump
    n_bytes: int
    blocks: list[SpillBlock]
    unlinked: Counts  # records that gave no vote
    failures: list[tuple[str, str, str]]  # (FILE:POSITION, reason, cause), the first MAX_NAMED_FAILURES

    @property
    def file_name(self) -> str:
        """The name of the file with the votes, in the folder of this record."""
        return self.key + SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillJob:
    """One file to read. `key` names the spill; it covers all inputs but the file's bytes."""

    file: LinkFile
    work: Folder
    key: str
    settings: LinkSettings
    rule: Mapping[str, Any]
    ahead: bool = False  # whether another process decompresses the file

    @classmethod
    def of(cls, file: LinkFile, work: Folder, recipe: Recipe, settings: LinkSettings) -> SpillJob:
        """Return the job. A file under two names makes two spills, since their failures contain the name."""
        key = sha256_json([recipe.hash, file.folder, file.name, file.label, file.source])[:32]
        return cls(file=file, work=work, key=key, settings=settings, rule=recipe.settings)

    def judge(self) -> KarmaJudge:
        """Return the judge, with blocklists read now. Raises InputError if one differs from the recipe."""
        from webtext.crawl.links.karma import KarmaJudge

        judge = KarmaJudge.of(self.settings)
        if not judge.about().items() <= self.rule.items():
            raise InputError("a blocklist was changed while dumps were read", "rerun the same command")
        return judge


def finished_spill(job: SpillJob) -> Spill | None:
    """Return the record of this job's spill, or None unless it is complete and was made from these very bytes."""
    name = f"{job.key}.json"
    if not job.work.exists(name):
        return None
    try:
        spill = msgspec.convert(without_check(json.loads(job.work.read_bytes(name))), Spill)
    except (ValueError, TypeError, RecursionError):
        return None
    is_there = job.work.exists(spill.file_name) and job.work.size(spill.file_name) == spill.n_bytes
    return spill if is_there and (spill.key, spill.sha256) == (job.key, job.file.sha256) else None


def with_sha256(_: Attempt, file: LinkFile) -> LinkFile:
    """Runs in a worker: return the file with its SHA-256."""
    if file.sha256:
        return file
    with file.open() as opened:
        return replace(file, sha256=file_sha256(opened, HASH_BYTES))


def spill_file(attempt: Attempt, job: SpillJob) -> LinkFile:
    """Runs in a worker: read one file, judge its posts, publish the spill, then its record. Return the hashed file."""
    with contextlib.ExitStack() as opened:
        stream = opened.enter_context(_opened(job))
        from concurrent.futures import ThreadPoolExecutor

        from webtext.crawl.links.judging import Funnel

        funnel, hashing = Funnel(job.file.label), None
        path = opened.enter_context(job.work.scratch(job.key + SUFFIX))
        out = opened.enter_context(open(path, "wb"))
        beside = opened.enter_context(ThreadPoolExecutor(1))
        writer = SpillWriter(out)
        for vote in _votes(stream, attempt, job, funnel):
            writer.add(bucket_of(link_id(vote.url)), vote)
            if hashing is None:  # the imports are done, and this process is waiting for the decoder
                hashing = beside.submit(with_sha256, attempt, job.file)
        funnel.fail_set_aside(attempt)
        writer.flush()
        n_bytes = out.tell()
        file = (hashing or beside.submit(with_sha256, attempt, job.file)).result()
    if attempt.only is not None:
        return file  # a retry of one record alone: its spill must not count
    spill = Spill(
        key=job.key,
        sha256=file.sha256,
        n_bytes=n_bytes,
        blocks=writer.blocks,
        unlinked=funnel.counts,
        failures=funnel.failures,
    )
    job.work.write_bytes(f"{job.key}.json", msgspec.json.encode(with_check(msgspec.to_builtins(spill))))
    return file


@contextlib.contextmanager
def _opened(job: SpillJob) -> Iterator[BinaryIO | Iterator[memoryview]]:
    """Open the file, or the chunks that another process decompresses from it."""
    if job.ahead:
        with decompressed_ahead(Folder(job.file.folder).local_path(job.file.name)) as chunks:
            yield chunks
    else:
        with job.file.open() as file:
            yield file


def _votes(opened: BinaryIO | Iterator[memoryview], attempt: Attempt, job: SpillJob, funnel: Funnel) -> Iterator[Vote]:
    from webtext.crawl.links.judging import votes_in, votes_in_batches

    source = link_source(job.file, job.settings)
    judge = job.judge()
    if not isinstance(source, SiftingSource):
        assert not job.ahead, "only lines are decompressed by another process"
        rows = attempt.reading(
            0, source.records(cast(BinaryIO, opened)), lambda cause: (0, Unreadable(KILLED_WORKER, cause))
        )
        return votes_in(rows, source, attempt, judge, funnel)
    chunks = opened if job.ahead else decompress(cast(BinaryIO, opened))
    return votes_in_batches(read_batches(cast(Iterator[memoryview], chunks)), source, attempt, judge, funnel)


def identify_files(files: Sequence[LinkFile], run: Run) -> list[LinkFile]:
    """Return the files with their SHA-256, in an order that does not depend on the command line."""
    names = [file.location for file in files]
    return sorted(run.map(with_sha256, files, "identifying dumps", unit="file", names=names), key=_order)


def spill_files(jobs: Sequence[SpillJob], run: Run) -> tuple[list[LinkFile], list[Spill]]:
    """Make the missing spills. Return all files, hashed and in order, and the records of their spills.

    If there are fewer files than workers, each file is decompressed by a process of its own. Raises InputError if
    a file was changed in the meantime.
    """
    missing = [job for job in jobs if finished_spill(job) is None]
    if len(missing) < len(jobs):
        run.console.say(f"links: resuming, {len(jobs) - len(missing):,} of {len(jobs):,} dumps are already read")
    has_idle = run.engine.workers >= 2 * len(missing)
    tasks = [replace(job, ahead=has_idle and _is_read_ahead(job.file)) for job in missing]
    names, writes = [task.file.label for task in tasks], [job.work for job in jobs[:1]]
    with _engine_for(tasks, run) as engine:
        read = replace(run, engine=engine).map(
            spill_file, tasks, "reading dumps", unit="file", names=names, writes=writes
        )
    files = {job.key: file for job, file in zip(missing, read, strict=True)}
    spills = []
    jobs = sorted((replace(job, file=files.get(job.key, job.file)) for job in jobs), key=lambda job: _order(job.file))
    for job in jobs:
        spill = finished_spill(job)
        if spill is None:
            raise InputError(f"'{job.file.location}' was changed while it was read", "rerun the same command")
        _check_readable(job.file, spill)
        spills.append(spill)
    return [job.file for job in jobs], spills


def _check_readable(file: LinkFile, spill: Spill) -> None:
    """Raise InputError for a file with no readable record: its name or --source is wrong about its format."""
    foreign = {"not_http"} if file.source == URLS else set()  # any line could be a URL
    if spill.blocks or spill.unlinked.dropped.keys() - foreign:
        return
    failed = spill.unlinked.failed | spill.unlinked.dropped
    reasons = [reason for reason in failed if reason not in UNSETTLED]
    if reasons:
        first = next((f" (the first: {cause})" for _, _, cause in spill.failures), "")
        raise InputError(
            f"'{file.location}' was read as {file.source} and contains none: "
            + ", ".join(f"{failed[reason]:,} {reason}" for reason in sorted(reasons))
            + first,
            "expected Reddit's dumps (RS_*) or lists: .csv, .tsv, .jsonl, .parquet, or .txt with one URL per line",
            "name another file, or set --source to its format",
        )


def _order(file: LinkFile) -> tuple[str, str, str]:
    return file.label, file.sha256, file.folder


def _is_read_ahead(file: LinkFile) -> bool:
    is_local_dump = file.source == SUBMISSIONS and Folder(file.folder).is_local
    return is_local_dump and file.n_bytes >= MIN_AHEAD_BYTES and file.codec is not None


def _engine_for(jobs: Sequence[SpillJob], run: Run) -> AbstractContextManager[Engine]:
    """Return the run's engine, or one with larger limits if a file may need more memory than its workers have."""
    if any(not job.ahead and job.file.codec is ZSTANDARD for job in jobs):
        return run.engine.limited(READER_LIMITS)
    return nullcontext(run.engine)
