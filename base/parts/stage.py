"""Runs a stage: applies a pure function to its parents' parts, publishes the output part by part, and resumes.

`run_parts` compares the parts that should exist with the entries that do, makes the missing ones through the engine,
and seals the sets. A part is done when all its outputs have matching entries. Its key is a hash of what it was made
from, so a changed recipe or source redoes that part and nothing else.
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
from webtext.base.parts.lean_arrow import keep_pandas_out
from webtext.base.parts.lineage import PARENTS, places_of
from webtext.base.parts.partset import MANIFEST, QUARANTINE, Part, PartSet, Source
from webtext.base.parts.partwriter import Parent, PartWriter, SetWriter, part_key
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
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
    outputs: tuple[tuple[str, str, str], ...]  # (name, url, kind)
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
    With `run.dry_run` nothing is written, and DryRun is raised if there is work to do.
    """
    keep_pandas_out()
    writers = {name: SetWriter(url, kind, recipe, parents) for name, (url, kind) in outputs.items()}
    for writer in writers.values():
        writer.check_place()
    with contextlib.ExitStack() as held:
        if not run.dry_run:
            for writer in writers.values():
                held.enter_context(writer.folder.held())
        return _run_parts(function, tasks, recipe, writers, run, label or recipe.stage)


def _run_parts(
    function: Callable[[PartContext, PartTask], None],
    tasks: Sequence[PartTask],
    recipe: Recipe,
    writers: Mapping[str, SetWriter],
    run: Run,
    label: str,
) -> dict[str, PartSet]:
    started = time.time()
    keys = {task.index: part_key(recipe, task.sources, task.depends) for task in tasks}
    done = {name: _still_valid(writer, keys) for name, writer in writers.items()}
    missing = [task for task in tasks if any(task.index not in parts for parts in done.values())]
    sealed = not missing and all(_sealed(writer, done[name]) for name, writer in writers.items())
    if run.dry_run:
        if sealed:
            return {name: PartSet.open(writer.folder.url, writer.kind) for name, writer in writers.items()}
        run.console.say(
            f"{label}: {counted(len(tasks), 'part')}, {len(tasks) - len(missing):,} done, {len(missing):,} to do"
        )
        raise DryRun
    if not sealed:
        for writer in writers.values():  # first, so that no reader sees old and new parts together
            writer.unseal()
            writer.remove_leftovers()
    if 0 < len(missing) < len(tasks):
        run.console.say(f"{label}: resuming, {len(tasks) - len(missing):,} of {len(tasks):,} parts are done")
    _remove_others(writers, done, keys)
    _make(function, missing, keys, writers, run, label)
    if missing:
        for writer in writers.values():  # files of workers that died during this run
            writer.remove_leftovers()
    done = {name: _still_valid(writer, keys) if missing else done[name] for name, writer in writers.items()}
    about = {
        "started": started,
        "seconds": time.time() - started,
        "host": platform.node(),
        "workers": run.engine.workers,
    }
    # The main set is sealed last: once it can be read, the others can.
    return {name: _seal(writer, done[name], about) for name, writer in reversed(list(writers.items()))}


def _make(
    function: Callable[[PartContext, PartTask], None],
    missing: Sequence[PartTask],
    keys: Mapping[int, str],
    writers: Mapping[str, SetWriter],
    run: Run,
    label: str,
) -> None:
    outputs = tuple((name, writer.folder.url, writer.kind) for name, writer in writers.items())
    jobs: list[_Job[Any]] = [_Job(function, task, outputs, keys[task.index]) for task in missing]
    main = next(iter(writers.values()))
    quarantine = _Quarantine(main.folder)

    with run.console.progress(len(jobs), label, "parts") as progress:
        failures = run.engine.map(
            _make_part,
            jobs,
            on_done=lambda _index, records: progress.advance(note=f"{counted(records, 'record')} in the last part"),
            set_aside={i: quarantine.of(job.key) for i, job in enumerate(jobs) if quarantine.of(job.key)},
            on_set_aside=lambda i, position, cause: quarantine.add(jobs[i].key, position, cause),
        )
    if failures:
        first = failures[0]
        raise RunFailed(
            f"{len(failures)} of {counted(len(jobs), 'part')} failed; part {missing[first.index].index}: {first.error}",
            "the finished parts are kept; rerun the same command to retry the others",
        )


def _make_part(journal: Journal, job: _Job[Any]) -> int:
    """Make one part in every output, then publish them, the main output last. Runs in the worker."""
    keep_pandas_out()
    writers = {
        name: PartWriter(Folder(url), kind, job.task.index, key=job.key, sources=job.task.sources)
        for name, url, kind in job.outputs
    }
    try:
        job.function(PartContext(journal, writers), job.task)
        if journal.only is None:
            generation = max((source.generation for source in job.task.sources), default=1)
            for writer in reversed(
                writers.values()
            ):  # if a kill comes in between, the main part is missing and is made again
                writer.publish(generation)
        return next(iter(writers.values())).records
    except OSError as error:
        raise disk_error(error, next(iter(writers.values())).folder.url) or error from None
    finally:
        for writer in writers.values():
            writer.discard()


def _still_valid(writer: SetWriter, keys: Mapping[int, str]) -> dict[int, Part]:
    return {index: part for index, part in writer.done().items() if keys.get(index) == part.key}


def _sealed(writer: SetWriter, done: Mapping[int, Part]) -> bool:
    """Whether the existing manifest lists exactly these parts, so that sealing again would change nothing."""
    if not writer.folder.exists(MANIFEST):
        return False
    try:
        manifest = json.loads(writer.folder.read_bytes(MANIFEST))
        return [entry["sha256"] for entry in manifest["parts"]] == [done[index].sha256 for index in sorted(done)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _remove_others(
    writers: Mapping[str, SetWriter], done: Mapping[str, Mapping[int, Part]], keys: Mapping[int, str]
) -> None:
    for name, writer in writers.items():
        for index, part in writer.done().items():
            if index not in done[name] and index not in keys:
                writer.remove(part)


def _seal(writer: SetWriter, done: Mapping[int, Part], about: Mapping[str, Any]) -> PartSet:
    killed = any(KILLED_WORKER in part.counts.failed for part in done.values())
    places = {PARENTS: places_of(writer.parents, writer.folder)}
    return writer.seal(list(done.values()), reproducible=not killed, run=dict(about) | places)


class _Quarantine:
    """Records that kill workers, by part key; stored beside the set, so that they don't kill a resumed run again."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._records: dict[str, dict[int, str]] = {}
        if folder.exists(QUARANTINE):
            try:
                stored = json.loads(folder.read_bytes(QUARANTINE))
                self._records = {key: {int(p): str(c) for p, c in records.items()} for key, records in stored.items()}
            except (ValueError, AttributeError, RecursionError):
                raise InputError(
                    f"'{folder.location(QUARANTINE)}' is damaged", "remove it; the records in it are then retried"
                ) from None

    def of(self, key: str) -> Mapping[int, str]:
        return self._records.get(key, {})

    def add(self, key: str, position: int, cause: str) -> None:
        self._records.setdefault(key, {})[position] = cause
        self._folder.write_object(QUARANTINE, self._records)
