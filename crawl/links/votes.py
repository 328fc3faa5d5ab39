"""From dumps to votes: each file is read once by one task, every post judged, and what counts goes to a spill.

Spills lie in a folder of their own until the links are merged. One is trusted again, after a kill or a full disk, only if
its record is there, which is published last and names the very bytes and the recipe it was made from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

from webtext.base.digest import file_sha256
from webtext.base.engine import Engine, Limits, LocalEngine
from webtext.base.errors import InputError, RunFailed
from webtext.base.journal import Journal
from webtext.base.recipe import Recipe, sha256_json
from webtext.base.run import Run
from webtext.base.schemas import link_id
from webtext.base.stage import KILLED_WORKER
from webtext.base.storage import Folder
from webtext.crawl.links.inputs import InputFile
from webtext.crawl.links.judging import MAX_NAMED_FAILURES, Funnel, votes_in, votes_in_batches
from webtext.crawl.links.karma import Judge
from webtext.crawl.links.settings import LinkSettings
from webtext.crawl.links.sources import link_source
from webtext.crawl.links.spill import SUFFIX, Block, SpillWriter, Vote, bucket_of
from webtext.crawl.links.submission import LinkSource, SiftingSource
from webtext.crawl.streams.decoders import decompressed_ahead, has_blocks
from webtext.crawl.streams.decompress import BZIP2, MAGIC_BYTES, ZSTANDARD, codec_of, decompress
from webtext.crawl.streams.lines import Share, batches_of, read_batches

T = TypeVar("T")

MIN_SHARED_BYTES = 4 << 20
MAX_SHARES = 8
"""A file larger than that, when workers would be idle, is read by several: each of Zstandard's may take READER_LIMITS."""

READER_LIMITS = Limits(memory_bytes=3 << 30)
"""A Zstandard window may take 2 GiB alone, which is all that a worker usually may."""


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One input file, known by its content."""

    folder: str
    name: str
    source: str
    n_bytes: int
    sha256: str
    codec: str  # "" for plain bytes

    @property
    def file(self) -> InputFile:
        """What to open."""
        return InputFile(self.folder, self.name, self.source)


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
    share: Share = Share()
    decoders: int = 0  # processes that decompress for it

    @classmethod
    def of(cls, dump: Dump, work: Folder, recipe: Recipe, settings: LinkSettings) -> SpillJob:
        """The job, with its key. One file given under two names makes two spills: what fails in them bears the name."""
        key = sha256_json([recipe.hash, dump.sha256, dump.folder, dump.name, dump.source])[:32]
        return cls(dump=dump, work=work, key=key, settings=settings, rule=recipe.settings)

    def shares(self, of: int) -> list[SpillJob]:
        """Jobs that read the dump together."""
        if of == 1:
            return [self]
        return [replace(self, key=f"{self.key}-{index}-of-{of}", share=Share(index, of)) for index in range(of)]

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
    """Make the spills that are not there yet; the records of all, in the order of `jobs`.

    Fewer files than workers are read by several each: by processes that decompress for one that judges, or, where judging
    takes longer, in shares.
    """
    missing = [job for job in jobs if _finished(job) is None]
    if len(missing) < len(jobs):
        run.console.say(f"links: going on, {len(jobs) - len(missing):,} of {len(jobs):,} dumps are read")
    tasks = [task for job in missing for task in _tasks(job, run.engine.workers // len(missing))]
    with _engine_for(tasks, run) as engine:
        _map(engine, run, "reading dumps", _spill_dump, tasks, [task.dump.name for task in tasks])
    return [spill for job in jobs for spill in _finished(job) or ()]


def _tasks(job: SpillJob, workers: int) -> list[SpillJob]:
    """What these workers must do to read the dump."""
    source = _source_of(job)
    if workers < 2 or job.dump.n_bytes < MIN_SHARED_BYTES or not isinstance(source, SiftingSource):
        return [job]
    if has_blocks(job.dump.codec) or (job.dump.codec and source.keeps_up):
        # Two bzip2 decoders on two cores were slower than one (README, "Tried"): the one that judges has a core of its own.
        decoders = workers - 1 if job.dump.codec == BZIP2.name else workers
        return [replace(job, decoders=decoders)] if Folder(job.dump.folder).is_local else [job]
    return [share for share in job.shares(min(workers, MAX_SHARES)) if finished_spill(share) is None]


def _finished(job: SpillJob) -> list[Spill] | None:
    """The records of the shares in which the dump was read, if it was read whole; the first one names the failures of all."""
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
    """Those that would have been named, had one worker read the whole file."""

    def order(failure: tuple[str, str, str]) -> tuple[bool, int]:
        return failure[1] == KILLED_WORKER, int(failure[0].rpartition(":")[2])

    named: list[tuple[str, str, str]] = []
    for failure in sorted(failures, key=order):
        if len(named) < MAX_NAMED_FAILURES or failure[1].endswith("_stream"):
            named.append(failure)
    return named


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
    if any(job.dump.codec == ZSTANDARD.name and not job.decoders for job in jobs):
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
    with file.open() as stream:
        codec = codec_of(stream.read(MAGIC_BYTES))
        stream.seek(0)
        sha256 = file_sha256(stream)
    return Dump(
        folder=file.folder,
        name=file.name,
        source=file.source,
        n_bytes=file.n_bytes,
        sha256=sha256,
        codec=codec.name if codec else "",
    )


def _spill_dump(journal: Journal, job: SpillJob) -> None:
    """Runs in a worker: read one dump, judge each post, spill the votes; then publish, the record last."""
    funnel = Funnel(job.dump.name)
    with contextlib.ExitStack() as opened:
        path = opened.enter_context(job.work.scratch(job.key + SUFFIX))
        out = opened.enter_context(open(path, "wb"))
        file = opened.enter_context(_opened(job))
        writer = SpillWriter(out)
        for vote in _votes(file, journal, job, funnel):
            writer.add(bucket_of(link_id(vote.url)), vote)
        funnel.fail_set_aside(journal)
        writer.close()
        n_bytes = out.tell()
    if journal.only is not None:
        return  # a trial of one record: its spill must not count
    spill = Spill(
        key=job.key,
        n_bytes=n_bytes,
        blocks=writer.blocks,
        dropped=funnel.counts.dropped,
        failed=funnel.counts.failed,
        failures=funnel.failures,
    )
    job.work.write_bytes(f"{job.key}.json", msgspec.json.encode(spill))


@contextlib.contextmanager
def _opened(job: SpillJob) -> Iterator[BinaryIO | Iterator[memoryview]]:
    """The file, or what other processes decompress of it."""
    if job.decoders:
        with decompressed_ahead(Folder(job.dump.folder).local_path(job.dump.name), job.decoders) as chunks:
            yield chunks
    else:
        with job.dump.file.open() as file:
            yield file


def _votes(opened: BinaryIO | Iterator[memoryview], journal: Journal, job: SpillJob, funnel: Funnel) -> Iterator[Vote]:
    source, judge = _source_of(job), job.judge()
    if not isinstance(source, SiftingSource):
        assert not job.decoders, "only lines are decompressed by others"
        return votes_in(source.records(cast(BinaryIO, opened)), source, journal, judge, funnel)
    chunks = opened if job.decoders else decompress(cast(BinaryIO, opened))
    batches = read_batches(cast(Iterator[memoryview], chunks))
    return votes_in_batches(batches_of(job.share, batches), source, journal, judge, funnel)


def _source_of(job: SpillJob) -> LinkSource[Any]:
    return link_source(job.dump.source, job.dump.folder, job.dump.name, job.settings)
