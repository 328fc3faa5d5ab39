"""From dumps to spills: each file is read once, by one task (reading.py), which writes its votes to a spill.

Spills are kept in a folder of their own until the links are merged. After a kill or a full disk a spill is used again
only if its record exists. The record is published last, and identifies the dump's bytes and the recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from webtext.base.decompress import ZSTANDARD
from webtext.base.errors import InputError
from webtext.base.parts.outcomes import UNSETTLED
from webtext.base.run import Engine, Run
from webtext.base.storage import Folder
from webtext.base.workers.engine import Limits
from webtext.crawl.links.inputs import SUBMISSIONS, URLS, InputFile
from webtext.crawl.links.reading import Dump, Spill, SpillJob, digest_file, finished_spill, spill_dump

MIN_AHEAD_BYTES = 4 << 20
"""If workers would be idle, another process decompresses a file above this for the one that judges."""

READER_LIMITS = Limits(memory_bytes=3 << 30)
"""A Zstandard window alone may take 2 GiB, which is a worker's usual limit."""


def identify_dumps(files: Sequence[InputFile], run: Run) -> list[Dump]:
    """Return the files with their SHA-256, in an order that does not depend on the command line."""
    names = [file.location for file in files]
    return _sorted(run.map(digest_file, files, "identifying dumps", unit="file", names=names))


def spill_dumps(jobs: Sequence[SpillJob], run: Run) -> tuple[list[Dump], list[Spill]]:
    """Make the missing spills. Return all dumps, hashed and in order, and the records of their spills.

    If there are fewer files than workers, one process decompresses each file for one that judges. Raises InputError if
    a file was changed in the meantime.
    """
    missing = [job for job in jobs if finished_spill(job) is None]
    if len(missing) < len(jobs):
        run.console.say(f"links: resuming, {len(jobs) - len(missing):,} of {len(jobs):,} dumps are already read")
    has_idle = run.engine.workers >= 2 * len(missing)
    tasks = [replace(job, ahead=has_idle and _is_read_ahead(job.dump)) for job in missing]
    names = [task.dump.name for task in tasks]
    with _engine_for(tasks, run) as engine:
        read = replace(run, engine=engine).map(spill_dump, tasks, "reading dumps", unit="file", names=names)
    hashed = {job.dump.file: job.dump for job in jobs} | {dump.file: dump for dump in read}
    dumps, spills = _sorted(hashed.values()), []
    job_of = {job.dump.file: job for job in jobs}
    for dump in dumps:
        finished = finished_spill(replace(job_of[dump.file], dump=dump))
        if finished is None:
            raise InputError(f"'{dump.file.location}' was changed while it was read", "rerun the same command")
        _check_readable(dump, finished)
        spills.append(finished)
    return dumps, spills


def _check_readable(dump: Dump, spill: Spill) -> None:
    """Raise InputError for a file with no readable record: its name or --source is wrong about its format."""
    foreign = {"not_http"} if dump.source == URLS else set()  # any line could be a URL
    if spill.blocks or spill.dropped.keys() - foreign:
        return
    failed = spill.failed | spill.dropped
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


def _is_read_ahead(dump: Dump) -> bool:
    is_long = bool(dump.codec) and dump.n_bytes >= MIN_AHEAD_BYTES
    return is_long and dump.source == SUBMISSIONS and Folder(dump.folder).is_local


def _engine_for(jobs: Sequence[SpillJob], run: Run) -> AbstractContextManager[Engine]:
    """Return the run's engine, or one with larger limits if a dump may need more memory than its workers have."""
    if any(job.dump.codec == ZSTANDARD.name and not job.ahead for job in jobs):
        return run.engine.limited(READER_LIMITS)
    return nullcontext(run.engine)
