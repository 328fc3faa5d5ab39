"""Runs a stage: applies a pure function to its parents' parts, publishes the output part by part, and resumes.

`run_parts` compares the parts that should exist with the entries that do, makes the missing ones through the engine,
and seals the sets. A part is done when all its outputs have matching entries. Its key is a hash of what it was made
from, so a changed recipe or source redoes that part and nothing else.

Bytes are hashed by the worker that writes them, and by readers. A later run compares names and sizes from one listing.
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from webtext.base.console import counted
from webtext.base.errors import DryRun, InputError, RunFailed
from webtext.base.parts.partset import MANIFEST, PARENTS, QUARANTINE, Part, PartSet, Source, places_of
from webtext.base.parts.partwriter import Parent, PartWriter, SetWriter, part_key
from webtext.base.parts.recipe import Recipe, with_check, without_check
from webtext.base.run import Run, peak_bytes
from webtext.base.storage import Folder, disk_error
from webtext.base.workers.journal import KILLED_WORKER, Failed, Journal

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTask:
    """One part to make. `payload` is the function's input; `depends` is a digest of anything else the output needs."""

    index: int
    sources: tuple[Source, ...]
    payload: Any
    depends: str = ""


class PartContext:
    """The part function's access to its outputs and to the journal that guards each record, inside the worker."""

    def __init__(self, journal: Journal, writers: Mapping[str, PartWriter]) -> None:
        self._journal = journal
        self._writers = writers

    def output(self, name: str) -> PartWriter:
        """Return the writer of this task's part in the output set `name`."""
        return self._writers[name]

    @property
    def main(self) -> PartWriter:
        """Return the writer of the first output, whose counts are the task's funnel."""
        return next(iter(self._writers.values()))

    def note_progress(self) -> None:
        """Tell the engine that the task is alive; call it now and then in work that isn't done record by record."""
        self._journal.idle()

    def reading(self, number: int, records: Iterable[T], lost: Callable[[str], T]) -> Iterator[T]:
        """Yield the records of the task's file `number`, or `lost(cause)` if reading it kills workers: `Journal.reading`."""
        return self._journal.reading(number, records, lost)

    def apply(
        self, function: Callable[[T], R], records: Iterable[tuple[int, T]], *, identify: Callable[[T], str]
    ) -> Iterator[tuple[int, T, R | Failed]]:
        """Run `function` on each record; a crash, a hang, excessive memory use or an error costs only that record.

        `records` are (position, record), with positions unique within the task. Yields (position, record, result or
        Failed) in order. A Failed record is counted and listed in the first output here; the caller counts the others.
        A broken input, a bad setting or a full disk isn't the record's fault and propagates.
        """
        for position, record in self._with_set_aside(records):
            cause = self._journal.set_aside.get(position)
            if cause is not None:
                failed = Failed(KILLED_WORKER, cause)
            else:
                self._journal.note(position)  # again, because a record that was set aside may have been yielded before
                try:
                    result = function(record)
                except Exception as error:
                    failed = Failed.of(error)
                else:
                    self._journal.idle()
                    yield position, record, result
                    continue
            self._journal.idle()
            self.main.fail(identify(record), failed.reason, failed.cause)
            yield position, record, failed

    def apply_to_batches(
        self, function: Callable[[pa.RecordBatch], R], batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, R | Failed]]:
        """Run `function` on batches of rows that have an id; see `Journal.apply_to_batches`.

        A row that fails is counted and listed in the first output here; the caller counts the others.
        """
        for rows, result in self._journal.apply_to_batches(function, batches):
            if isinstance(result, Failed):
                self.main.fail(rows["id"][0].as_py(), result.reason, result.cause)
            yield rows, result

    def _with_set_aside(self, records: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        """Yield the journal's records and, in their places, the ones that were set aside, so that they are counted."""
        set_aside = self._journal.set_aside

        def remembering() -> Iterator[tuple[int, T]]:
            for position, record in records:
                if position in set_aside:
                    skipped.append((position, record))
                else:
                    yield position, record

        skipped: list[tuple[int, T]] = []
        for position, record in self._journal.watch(remembering()):
            before, skipped[:] = skipped[:], []
            if self._journal.only is None:
                yield from before
            yield position, record
        if self._journal.only is None:
            yield from skipped


@dataclass(frozen=True, slots=True)
class _Job(Generic[T]):
    """The task that the engine sends to a worker."""

    function: Callable[[PartContext, PartTask], None]
    task: PartTask
    outputs: tuple[tuple[str, Folder, str], ...]  # (name, folder, kind)
    key: str


def run_parts(
    function: Callable[[PartContext, PartTask], None],
    tasks: Sequence[PartTask],
    *,
    recipe: Recipe,
    outputs: Mapping[str, tuple[str, str]],
    parents: Sequence[Parent],
    run: Run,
    label: str = "",
) -> dict[str, PartSet]:
    """Make the parts of `tasks` in each set of `outputs` (name -> (url, kind); the first is the main one), and seal it.

    `function` must be a module-level function. Finished parts aren't redone; parts without a task are removed.
    Raises RunFailed if parts failed as a whole (the finished ones are kept), and the errors of a broken input.
    With `run.dry_run` nothing is written, and DryRun is raised if there is work to do. With `run.parts` only these are
    made and nothing is sealed: RunFailed names the command that does it.
    """
    writers = {name: SetWriter(url, kind, recipe, parents) for name, (url, kind) in outputs.items()}
    for writer in writers.values():
        writer.check_place(run.replaces)
    stage = _Stage(function, tasks, writers, run, label or recipe.stage)
    stage.find()
    if sets := stage.sealed():
        return sets
    if changes := stage.main.changes():
        run.console.say(f"{stage.label}: made again, because {', '.join(changes)}")
    mine = [task for task in tasks if run.parts is None or task.index in run.parts]
    if run.dry_run:
        n_missing = len(stage.missing(mine))
        done = f"{len(mine) - n_missing:,} done, {n_missing:,} to do"
        run.console.say(f"{stage.label}: {counted(len(mine), 'part')}, {done}")
        raise DryRun
    with stage.held():
        stage.make(mine, stage.begin(mine))
        return stage.seal()


def all_done(tasks: Sequence[PartTask], writer: SetWriter, run: Run) -> bool:
    """Whether `run_parts` would find all these parts done, so that what only making them needs can be left out."""
    stage = _Stage(_make_part, tasks, {"": writer}, run, "")
    stage.find()
    return not stage.missing(tasks)


class _Stage:
    """One call of `run_parts`: which parts are done, and how the others are made."""

    def __init__(
        self,
        function: Callable[..., Any],
        tasks: Sequence[PartTask],
        writers: Mapping[str, SetWriter],
        run: Run,
        label: str,
    ) -> None:
        self.function, self.tasks, self.writers, self.run, self.label = function, tasks, writers, run, label
        self.main = next(iter(writers.values()))
        self.keys = {task.index: part_key(self.main.recipe, task.sources, task.depends) for task in tasks}
        self.done: dict[str, dict[int, Part]] = {}
        self.others: dict[str, list[Part]] = {}  # parts without a task
        self.was_sealed = False  # if so, parts are made because something changed, not because a run was interrupted
        self.started = time.time()
        self.cpu_seconds, self.peak_bytes = 0.0, 0  # of the tasks of this run

    def held(self) -> contextlib.ExitStack:
        """Lock all output folders; InputError if another run is writing one of them."""
        with contextlib.ExitStack() as held:
            for writer in self.writers.values():
                held.enter_context(writer.folder.held(shared=self.run.parts is not None))
            return held.pop_all()

    def missing(self, tasks: Sequence[PartTask]) -> list[PartTask]:
        return [task for task in tasks if any(task.index not in parts for parts in self.done.values())]

    def find(self) -> None:
        """Find the parts that are done."""
        for name, writer in self.writers.items():
            parts = writer.done()
            self.others[name] = [part for index, part in parts.items() if index not in self.keys]
            self.done[name] = {index: part for index, part in parts.items() if self.keys.get(index) == part.key}

    def sealed(self) -> dict[str, PartSet] | None:
        """Return the sets if all parts are done, sealed and unchanged since; no byte of them is read."""
        sets = {}
        for name, writer in self.writers.items():
            parts = self.done[name].values()
            sealed = writer.sealed_set(parts, reproducible=self._reproducible(name))
            if sealed is None or len(parts) < len(self.tasks):
                return None
            sets[name] = sealed
        return sets

    def _reproducible(self, name: str) -> bool:
        return not any(KILLED_WORKER in part.counts.failed for part in self.done[name].values())

    def begin(self, tasks: Sequence[PartTask]) -> list[PartTask]:
        """Unseal the sets if they need work, remove what isn't part of them, and return which of `tasks` are to do."""
        self.find()
        if not self.sealed():
            self.was_sealed = self.main.folder.exists(MANIFEST)
            for name, writer in self.writers.items():
                writer.unseal()  # first, so that no reader sees old and new parts together
                if self.run.parts is None:  # otherwise other runs are at work
                    for part in self.others[name]:
                        writer.remove(part)
                    writer.remove_leftovers()
        return self.missing(tasks)

    def make(self, tasks: Sequence[PartTask], missing: Sequence[PartTask]) -> None:
        """Make those of `tasks` that are missing."""
        if not missing:
            return
        n_done = len(tasks) - len(missing)
        if n_done:
            resuming, done = ("", "kept") if self.was_sealed else ("resuming, ", "done")
            self.run.console.say(f"{self.label}: {resuming}{n_done:,} of {len(tasks):,} parts are {done}")
        outputs = tuple((name, writer.folder, writer.kind) for name, writer in self.writers.items())
        jobs: list[_Job[Any]] = [_Job(self.function, task, outputs, self.keys[task.index]) for task in missing]
        quarantine = _Quarantine(self.main.folder)
        outcomes = dict.fromkeys(("kept", "dropped", "failed"), 0)
        with self.run.console.progress(len(jobs), self.label, "parts") as progress:

            def note(_: int, done: _Done) -> None:
                self.cpu_seconds += done.cpu_seconds
                self.peak_bytes = max(self.peak_bytes, done.peak_bytes)
                for name, part in done.published.items():
                    self.done[name][part.index] = part
                counts = done.published[outputs[0][0]].counts
                outcomes["kept"] += counts.kept
                outcomes["dropped"] += sum(counts.dropped.values())
                outcomes["failed"] += sum(counts.failed.values())
                note = ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes.items())
                progress.advance(note=note, **outcomes)

            failures = self.run.engine.map(
                _make_part,
                jobs,
                on_done=note,
                set_aside={i: quarantine.of(job.key) for i, job in enumerate(jobs) if quarantine.of(job.key)},
                on_set_aside=lambda i, position, cause: quarantine.add(jobs[i].key, position, cause),
                on_records=progress.at,
                writes=[writer.folder for writer in self.writers.values()],
            )
        if failures:
            first = failures[0]
            raise RunFailed(
                f"{len(failures)} of {counted(len(jobs), 'part')} failed; part {missing[first.index].index}: {first.error}",
                "the finished parts are kept; rerun the same command to retry the others",
            )

    def seal(self) -> dict[str, PartSet]:
        """Seal the sets, the main one last: once it can be read, the others can. RunFailed if only some parts were to do."""
        if some := self.run.parts:
            self.find()
            of = f"{len(self.missing(self.tasks)):,} of {counted(len(self.tasks), 'part')} are missing"
            raise RunFailed(
                f"{self.label}: the parts of run {some.number}/{some.of} are made, and nothing is sealed; {of}",
                f"when the other runs have ended: {some.rest}",
            )
        about = {
            "started": self.started,
            "seconds": time.time() - self.started,
            "cpu_seconds": self.cpu_seconds,
            "peak_bytes": self.peak_bytes,
            "host": platform.node(),
            "workers": self.run.engine.workers,
        }
        sets = {}
        for name, writer in reversed(list(self.writers.items())):
            writer.remove_leftovers()  # of workers that died during this run
            places = {PARENTS: places_of(writer.parents, writer.folder)}
            parts, reproducible = self.done[name].values(), self._reproducible(name)
            sets[name] = writer.seal(parts, reproducible=reproducible, run=about | places)
        return sets


@dataclass(frozen=True, slots=True)
class _Done:
    """The published parts by output, and what the worker used for them."""

    published: Mapping[str, Part]
    cpu_seconds: float
    peak_bytes: int


def _make_part(journal: Journal, job: _Job[Any]) -> _Done:
    """Make one part in every output and publish them, the main output last; in the worker."""
    started = time.process_time()
    writers = {
        name: PartWriter(folder, kind, job.task.index, key=job.key, sources=job.task.sources)
        for name, folder, kind in job.outputs
    }
    try:
        job.function(PartContext(journal, writers), job.task)
        if journal.only is not None:
            return _Done({}, 0.0, 0)
        generation = max((source.generation for source in job.task.sources), default=1)
        # The main part comes last: if a kill comes in between, it is missing and is made again.
        published = {name: writers[name].publish(generation) for name in reversed(writers)}
        return _Done(published, time.process_time() - started, peak_bytes())
    except OSError as error:
        raise disk_error(error, next(iter(writers.values())).folder.url) or error from None
    finally:
        for writer in writers.values():
            writer.discard()


class _Quarantine:
    """Records that kill workers, by part key; stored beside the set, so that they don't kill a resumed run again."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._records = self._read()

    def of(self, key: str) -> Mapping[int, str]:
        return self._records.get(key, {})

    def add(self, key: str, position: int, cause: str) -> None:
        self._records = self._read()  # other runs have added theirs
        self._records.setdefault(key, {})[position] = cause
        named = {key: {str(p): cause for p, cause in records.items()} for key, records in self._records.items()}
        self._folder.write_object(QUARANTINE, with_check(named))

    def _read(self) -> dict[str, dict[int, str]]:
        try:
            if not self._folder.exists(QUARANTINE):
                return {}
            stored = without_check(json.loads(self._folder.read_bytes(QUARANTINE)))
            return {key: {int(p): str(c) for p, c in each.items()} for key, each in stored.items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise InputError(
                f"'{self._folder.location(QUARANTINE)}' is damaged", "remove it; the records in it are then retried"
            ) from None
