"""From dumps to spills: each file is read once, by one task or several (reading.py), which write its votes to spills.

Spills are kept in a folder of their own until the links are merged. After a kill or a full disk a spill is used again
only if its record exists. The record is published last, and identifies the dump's bytes and the recipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from webtext.base.decompress import ZSTANDARD
from webtext.base.errors import InputError
from webtext.base.parts.outcomes import UNSETTLED
from webtext.base.run import Engine, Run
from webtext.base.storage import Folder
from webtext.base.workers.engine import Limits
from webtext.base.workers.journal import KILLED_WORKER
from webtext.crawl.links.inputs import URLS, InputFile
from webtext.crawl.links.judging import MAX_NAMED_FAILURES
from webtext.crawl.links.reading import Dump, Spill, SpillJob, digest_file, finished_spill, source_of, spill_dump
from webtext.crawl.links.submission import SiftingSource

MIN_SHARED_BYTES = 4 << 20
MAX_SHARES = 8
"""If workers would be idle, several read a file above MIN_SHARED_BYTES; for Zstandard each may need READER_LIMITS."""

READER_LIMITS = Limits(memory_bytes=3 << 30)
"""A Zstandard window alone may take 2 GiB, which is a worker's usual limit."""


def identify_dumps(files: Sequence[InputFile], run: Run) -> list[Dump]:
    """Return the files with their SHA-256, in an order that does not depend on the command line."""
    names = [file.location for file in files]
    return _sorted(run.map(digest_file, files, "identifying dumps", unit="file", names=names))


def spill_dumps(jobs: Sequence[SpillJob], run: Run) -> tuple[list[Dump], list[Spill]]:
    """Make the missing spills. Return all dumps, hashed and in order, and the records of their spills.

    If there are fewer files than workers, several work on each file: one process decompresses for one that judges, or,
    if judging takes longer, workers read shares. Raises InputError if a file was changed in the meantime.
    """
    missing = [job for job in jobs if _finished(job) is None]
    if len(missing) < len(jobs):
        run.console.say(f"links: resuming, {len(jobs) - len(missing):,} of {len(jobs):,} dumps are already read")
    tasks = [task for job in missing for task in _tasks(job, run.engine.workers // len(missing))]
    names = [task.dump.name for task in tasks]
    with _engine_for(tasks, run) as engine:
        read = replace(run, engine=engine).map(spill_dump, tasks, "reading dumps", unit="file", names=names)
    hashed = {job.dump.file: job.dump for job in jobs} | {dump.file: dump for dump in read}
    dumps, spills = _sorted(hashed.values()), []
    job_of = {job.dump.file: job for job in jobs}
    for dump in dumps:
        finished = _finished(replace(job_of[dump.file], dump=dump))
        if finished is None:
            raise InputError(f"'{dump.file.location}' was changed while it was read", "rerun the same command")
        _check_readable(dump, finished)
        spills += finished
    return dumps, spills


def _check_readable(dump: Dump, spills: Sequence[Spill]) -> None:
    """Raise InputError for a file with no readable record: its name or --source is wrong about its format."""
    failed = Counter[str]()
    for spill in spills:
        foreign = {"not_http"} if dump.source == URLS else set()  # any line could be a URL
        if spill.blocks or spill.dropped.keys() - foreign:
            return
        failed.update(spill.failed | spill.dropped)
    reasons = [reason for reason in failed if reason not in UNSETTLED]
    if reasons:
        raise InputError(
            f"'{dump.file.location}' was read as {dump.source} and contains none: "
            + ", ".join(f"{failed[reason]:,} {reason}" for reason in sorted(reasons)),
            "expected Reddit's dumps (RS_*) or lists: .csv, .tsv, .jsonl, .parquet, or .txt with one URL per line",
            "name another file, or set --source to its format",
        )


def _sorted(dumps: Iterable[Dump]) -> list[Dump]:
    return sorted(dumps, key=lambda dump: (dump.name, dump.sha256, dump.folder))


def _tasks(job: SpillJob, workers: int) -> list[SpillJob]:
    """Return the tasks with which `workers` workers read the dump."""
    source = source_of(job)
    if workers < 2 or job.dump.n_bytes < MIN_SHARED_BYTES or not isinstance(source, SiftingSource):
        return [job]
    if job.dump.codec:
        return [replace(job, ahead=Folder(job.dump.folder).is_local)]
    return [share for share in job.shares(min(workers, MAX_SHARES)) if finished_spill(share) is None]


def _finished(job: SpillJob) -> list[Spill] | None:
    """Return the records of all shares of the dump, or None if one is missing; the first lists the failures of all."""
    for of in range(1, MAX_SHARES + 1):
        spills = [spill for share in job.shares(of) if (spill := finished_spill(share)) is not None]
        if len(spills) == of == 1:
            return spills
        if len(spills) == of:
            named = [failure for spill in spills for failure in spill.failures]
            spills[0].failures = _first_named(named)
            for spill in spills[1:]:
                spill.failures = []
            return spills
    return None


def _first_named(failures: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return the failures that would be listed if one worker had read the entire file."""

    def order(failure: tuple[str, str, str]) -> tuple[bool, int]:
        return failure[1] == KILLED_WORKER, int(failure[0].rpartition(":")[2])

    named: list[tuple[str, str, str]] = []
    for failure in sorted(failures, key=order):
        if len(named) < MAX_NAMED_FAILURES or failure[1].endswith("_stream"):
            named.append(failure)
    return named


def _engine_for(jobs: Sequence[SpillJob], run: Run) -> AbstractContextManager[Engine]:
    """Return the run's engine, or one with larger limits if a dump may need more memory than its workers have."""
    if any(job.dump.codec == ZSTANDARD.name and not job.ahead for job in jobs):
        return run.engine.limited(READER_LIMITS)
    return nullcontext(run.engine)
