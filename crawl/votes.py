"""From dumps to votes: each file is read once by one task, every post judged, and what counts goes to a spill.

Spills lie in a folder of their own until the links are merged. One is trusted again, after a kill or a full disk, only if
its record is there, which is published last and names the very bytes and the recipe it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from webtext.base.counts import Counts
from webtext.base.digest import file_sha256
from webtext.base.engine import Engine, Limits, LocalEngine
from webtext.base.errors import InputError, RunFailed
from webtext.base.journal import Journal
from webtext.base.recipe import Recipe, sha256_json
from webtext.base.run import Run
from webtext.base.schemas import link_id
from webtext.base.stage import KILLED_WORKER
from webtext.base.storage import Folder
from webtext.crawl.dumps import RedditDump
from webtext.crawl.inputs import InputFile
from webtext.crawl.karma import Judge
from webtext.crawl.link_settings import LinkSettings
from webtext.crawl.spill import SUFFIX, Block, SpillWriter, Vote, bucket_of
from webtext.crawl.streams import MAGIC_BYTES, may_need_a_large_window
from webtext.crawl.submission import LinkSource, Unreadable

T = TypeVar("T")

MAX_NAMED_FAILURES = 100
"""Failed records of one file that are named; all are counted."""

NO_LINK = "no_link"
"""The record votes for nothing. What the funnel counts is votes, and a record that holds none as one."""

READER_LIMITS = Limits(memory_bytes=3 << 30)
"""A Zstandard window may take 2 GiB alone, which is all that a worker usually may."""


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One input file, known by its content."""

    folder: str
    name: str
    n_bytes: int
    sha256: str
    needs_memory: bool


class Spill(msgspec.Struct, kw_only=True):
    """The record of a finished spill: where its blocks are, and the funnel of the posts that are not in it."""

    key: str
    n_bytes: int
    blocks: list[Block]
    dropped: dict[str, int]
    failed: dict[str, int]
    failures: list[tuple[str, str, str]]  # (FILE:POSITION, reason, cause), the first MAX_NAMED_FAILURES

    @property
    def file_name(self) -> str:
        """The file of the votes, beside this record."""
        return self.key + SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillJob:
    """One dump to read. `key` names what the spill is made from."""

    dump: Dump
    work: Folder
    key: str
    settings: LinkSettings
    rule: Mapping[str, Any]

    @classmethod
    def of(cls, dump: Dump, work: Folder, recipe: Recipe, settings: LinkSettings) -> SpillJob:
        """The job, with its key. One file given under two names makes two spills: what fails in them bears the name."""
        key = sha256_json([recipe.hash, dump.sha256, dump.folder, dump.name])[:32]
        return cls(dump=dump, work=work, key=key, settings=settings, rule=recipe.settings)

    def judge(self) -> Judge:
        """The rule, its blocklists read where they are needed. InputError when one is no more what the recipe says."""
        judge = Judge.of(self.settings)
        if not judge.about().items() <= self.rule.items():
            raise InputError("a blocklist was changed while dumps were read", "give the command again")
        return judge


def identify_dumps(files: Sequence[InputFile], run: Run) -> list[Dump]:
    """The files with their SHA-256, in an order that is theirs and not the command line's."""
    dumps = _map(run.engine, run, "identifying dumps", _digest_file, files, [file.location for file in files])
    return sorted(dumps, key=lambda dump: (dump.name, dump.sha256, dump.folder))


def spill_dumps(jobs: Sequence[SpillJob], run: Run) -> list[Spill]:
    """Make the spills that are not there yet; the records of all, in the order of `jobs`."""
    missing = [job for job in jobs if finished_spill(job) is None]
    if len(missing) < len(jobs):
        run.console.say(f"links: going on, {len(jobs) - len(missing):,} of {len(jobs):,} dumps are read")
    with _engine_for(missing, run) as engine:
        _map(engine, run, "reading dumps", _spill_dump, missing, [job.dump.name for job in missing])
    return [spill for job in jobs if (spill := finished_spill(job)) is not None]


def finished_spill(job: SpillJob) -> Spill | None:
    """The record of this job's spill, if both are there and whole."""
    name = f"{job.key}.json"
    if not job.work.exists(name):
        return None
    try:
        spill = msgspec.json.decode(job.work.read_bytes(name), type=Spill)
    except msgspec.DecodeError:
        return None
    is_there = job.work.exists(spill.file_name) and job.work.size(spill.file_name) == spill.n_bytes
    return spill if is_there and spill.key == job.key else None


def _engine_for(jobs: Sequence[SpillJob], run: Run) -> AbstractContextManager[Engine]:
    """The run's engine, unless a dump may need more memory than its workers have."""
    if any(job.dump.needs_memory for job in jobs):
        return LocalEngine(run.engine.workers, READER_LIMITS)
    return nullcontext(run.engine)


def _map(
    engine: Engine, run: Run, label: str, function: Callable[[Journal, T], Any], jobs: Sequence[T], names: Sequence[str]
) -> list[Any]:
    """The results of all jobs, as they come. RunFailed when a file could not be worked on at all."""
    results = []
    with run.console.progress(len(jobs), label, "files") as progress:

        def on_done(_: int, result: Any) -> None:
            results.append(result)
            progress.advance()

        failures = engine.map(function, jobs, on_done=on_done)
    if failures:
        raise RunFailed(
            f"{len(failures)} of {len(jobs)} files failed; '{names[failures[0].index]}': {failures[0].error}",
            "what is done stays; give the same command again to retry the others",
        )
    return results


def _digest_file(_: Journal, file: InputFile) -> Dump:
    folder = Folder(file.folder)
    with folder.open(file.name) as stream:
        needs_memory = may_need_a_large_window(stream.read(MAGIC_BYTES))
        stream.seek(0)
        sha256 = file_sha256(stream)
    n_bytes = folder.size(file.name)
    return Dump(folder=file.folder, name=file.name, n_bytes=n_bytes, sha256=sha256, needs_memory=needs_memory)


def _spill_dump(journal: Journal, job: SpillJob) -> None:
    """Runs in a worker: read one dump, judge each post, spill the votes; then publish, the record last."""
    source: LinkSource[Any] = RedditDump()
    judge = job.judge()
    counts = Counts()
    failures: list[tuple[str, str, str]] = []

    def fail(position: int, reason: str, cause: str) -> None:
        counts.fail(reason)
        if len(failures) < MAX_NAMED_FAILURES or reason.endswith("_stream"):
            failures.append((f"{job.dump.name}:{position}", reason, cause))

    with job.work.scratch(job.key + SUFFIX) as path, open(path, "wb") as out:
        writer = SpillWriter(out)
        with Folder(job.dump.folder).open(job.dump.name) as file:
            for position, record in journal.watch(source.records(file)):
                posts = record if isinstance(record, Unreadable) else source.parse(record)
                if isinstance(posts, Unreadable):
                    fail(position, posts.reason, posts.cause)
                    continue
                if not posts:
                    counts.drop(NO_LINK)
                for post in posts:
                    url, reason = judge(post)
                    if reason is not None:
                        counts.drop(reason)
                    else:
                        assert url is not None, "a post without a reason has a URL"
                        writer.add(bucket_of(link_id(url)), Vote(url, post))
        for position, cause in sorted(journal.set_aside.items()):
            fail(position, KILLED_WORKER, cause)
        writer.close()
        n_bytes = out.tell()
    if journal.only is not None:
        return  # a trial of one record: its spill must not count
    spill = Spill(
        key=job.key,
        n_bytes=n_bytes,
        blocks=writer.blocks,
        dropped=counts.dropped,
        failed=counts.failed,
        failures=failures,
    )
    job.work.write_bytes(f"{job.key}.json", msgspec.json.encode(spill))
