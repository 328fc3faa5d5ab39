"""Runs a stage: applies a pure function to its parents' parts, publishes the output part by part, and resumes.

`run_parts` compares the wanted parts with the existing ones, makes the parts that aren't current through the engine,
and seals the sets. A part's key is a hash of what it is made from, so a changed recipe or source redoes
that part and nothing else; a part is done when it is current in all outputs.

Bytes are hashed by the worker that writes them, and by readers. A later run compares names and sizes from one listing.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa

from webtext.base.console import counted
from webtext.base.errors import DryRun, InputError, RunFailed
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import (
    ENTRIES,
    FORMAT_VERSION,
    MANIFEST,
    PARENTS,
    QUARANTINE,
    RUN,
    Part,
    PartSet,
    SetName,
    SourcePart,
    entry_name,
    places_of,
)
from webtext.base.parts.partwriter import PartWriter
from webtext.base.parts.recipe import ELSEWHERE, Recipe, sha256_json, with_check, without_check
from webtext.base.run import Run, peak_bytes
from webtext.base.storage import Folder, check_version, disk_error, pretty_json
from webtext.base.workers.attempt import KILLED_WORKER, Attempt, Failed

T = TypeVar("T")
R = TypeVar("R")
FILES = "part-[0-9][0-9][0-9][0-9][0-9].*", "*.tok"  # of parts
MARKS = "_[a-z]*/", "recipe.json", QUARANTINE, *FILES
"""Names of files that mark a set without a manifest."""
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Parent(Protocol):
    """What a set is made from, as named in its manifest: a part set, or a list written by a user."""

    @property
    def kind(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def folder(self) -> Folder: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTask:
    """One part to make. `payload` is the function's input; `depends` is a digest of anything else the output needs."""

    index: int
    sources: tuple[SourcePart, ...]
    payload: Any
    depends: str = ""

    @classmethod
    def for_each(cls, parent: PartSet, *more: Any) -> list[PartTask]:
        """Return a task for each part of a set, with this payload: the set's name, the part's place, and `more`."""
        name = SetName.of(parent)
        return [
            cls(index=part.index, sources=(parent.source(place),), payload=(name, place, *more))
            for place, part in enumerate(parent.parts)
        ]

    def key(self, recipe: Recipe) -> str:
        return part_key(recipe, self.sources, self.depends)


class PartContext:
    """The part function's access to its outputs, and to the attempt at its task, inside the worker."""

    def __init__(self, attempt: Attempt, writers: Mapping[str, PartWriter]) -> None:
        self.attempt = attempt
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
        attempt = self.attempt
        for position, record in records:
            if attempt.only is not None and position != attempt.only:
                continue
            result: R | Failed
            if position in attempt.set_aside:
                result = Failed(KILLED_WORKER, attempt.set_aside[position])
            else:
                attempt.note(position)
                try:
                    result = function(record)
                except Exception as error:
                    result = Failed.of(error)
                attempt.idle(1)
            if isinstance(result, Failed):
                self.main.fail(identify(record), result.reason, result.cause)
            yield position, record, result
            if attempt.only is not None:
                return

    def apply_to_batches(
        self, function: Callable[[pa.RecordBatch], R], batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, R | Failed]]:
        """Run `function` on batches of rows that have an id; see `Attempt.apply_to_batches`.

        A row that fails is counted and listed in the first output here; the caller counts the others.
        """
        for rows, result in self.attempt.apply_to_batches(function, batches):
            if isinstance(result, Failed):
                self.main.fail(rows["id"][0].as_py(), result.reason, result.cause)
            yield rows, result


class SetWriter:
    """Writer for a part set: finds the parts that are done, and seals them under one manifest."""

    def __init__(self, url: str, kind: str, recipe: Recipe, parents: Sequence[Parent] = ()) -> None:
        self.folder = Folder(url)
        self.kind = kind
        self.recipe = recipe
        self.parents = tuple(parents)
        self._manifest = b""
        self._about: dict[str, Any] = {}  # the manifest's contents, if it isn't damaged
        self.parts: dict[int, Part] = {}
        self.sealed: tuple[Part, ...] = ()

    def look(self) -> dict[int, Part]:
        """Read the manifest and the `parts` that are there, by index: valid entries whose files have the stated sizes.

        No byte of the files is read. The entries of a sealed set in a store are taken from its manifest. Times of files
        aren't compared: copying changes them, and bytes that a disk loses don't.
        """
        there = self.folder.files()
        self._manifest, self._about = self.folder.read_bytes(MANIFEST) if MANIFEST in there else b"", {}
        self.sealed = ()
        with contextlib.suppress(*_DAMAGED):  # a damaged set is rewritten
            self._about = without_check(json.loads(self._manifest or "{}"))
            self.sealed = msgspec.convert(self._about.get("parts", ()), tuple[Part, ...])
        parts: Iterable[Part] = self.sealed
        if self.folder.is_local or not parts:  # a store charges for a listing, and the manifest has the entries
            entries = self.folder.child(ENTRIES)
            parts = filter(None, (_read_entry(entries, name) for name in entries.names()))
        self.parts = {
            part.index: part for part in parts if all(there.get(name) == n_bytes for name, n_bytes, _ in part.files)
        }
        return self.parts

    def is_current(self, index: int, key: str) -> bool:
        """Whether a part was there at the last `look`, made from what its task's `key` is a hash of."""
        return index in self.parts and self.parts[index].key == key

    def check_place(self, replaces: bool = True) -> None:
        """Raise InputError if the folder is also an input, or contains something that must not be replaced.

        That is a set of another kind, or of another version of the format; unless the run `replaces` them, also one of
        other settings; and files of other commands or people.
        """
        for parent in self.parents:
            if _same_place(parent.folder, self.folder):
                raise InputError(f"'{self.folder.url}' is both input and output", "choose another --out")
        self.look()
        try:
            check_version(self._about["format"], FORMAT_VERSION, self.folder.location(MANIFEST))
            kind, stage = self._about["kind"], self._about["recipe"]["stage"]
        except _DAMAGED:
            # no set, or a damaged one, which is rewritten; a manifest.json that is JSON may be another program's
            self.folder.check_output(MARKS if self._manifest.startswith(b"{") else (*MARKS, MANIFEST))
            return
        if kind != self.kind:
            raise InputError(f"'{self.folder.url}' contains {kind}, which {self.kind} would replace", ELSEWHERE)
        if stage != self.recipe.stage and kind != "documents":  # clean.extract and clean.import both write documents
            raise InputError(
                f"'{self.folder.url}' contains {kind} written by '{stage}', which '{self.recipe.stage}' would replace",
                ELSEWHERE,
            )
        if not replaces:
            self.recipe.check_settings(self._about["recipe"], self.folder.url)

    def has_all(self, tasks: Sequence[PartTask]) -> bool:
        """Whether the parts of all tasks are current, so that preparations for making them can be left out."""
        return all(self.is_current(task.index, task.key(self.recipe)) for task in tasks)

    def changes(self) -> list[str]:
        """Name the differences between the recipe and the existing set's, such as "trafilatura 2.3.1 is now 2.3.2"."""
        return self.recipe.changes(self._about.get("recipe", {}))

    def part(self, index: int, *, key: str, sources: Sequence[SourcePart] = ()) -> PartWriter:
        return PartWriter(self.folder, self.kind, index, key=key, sources=sources)

    def remove(self, part: Part) -> None:
        """Remove a part, starting with its entry."""
        self.folder.remove(entry_name(part.index))
        for name, _, _ in part.files:
            self.folder.remove(name)

    def unseal(self) -> None:
        """Remove the manifest before parts are replaced."""
        self.folder.remove(MANIFEST)
        self._manifest, self.sealed = b"", ()

    def remove_leftovers(self) -> None:
        """Remove the temporary files that killed runs left among parts and entries."""
        self.folder.remove_leftovers()
        self.folder.child(ENTRIES).remove_leftovers()

    def seal(
        self,
        parts: Iterable[Part],
        *,
        complete: bool = True,
        reproducible: bool = True,
        run: Mapping[str, Any] | None = None,
    ) -> PartSet:
        """Collect the entries of `parts` in one manifest and publish it. The same parts give the same bytes.

        `complete=False` seals a generation of a set that is still growing: it can be read, and is marked incomplete.
        """
        data = self._manifest_of(parts, complete, reproducible)
        if data == self._manifest:
            return PartSet(self.folder, data)
        self.folder.write_bytes(MANIFEST, data)
        self._manifest = data
        if run is not None:
            self.folder.write_object(RUN, run)
        return PartSet.open(self.folder.url, self.kind)

    def sealed_set(self, parts: Iterable[Part], *, reproducible: bool) -> PartSet | None:
        """Return the set if its manifest is the one that `seal` would write, as of the last `look`; reads no part."""
        same = self._manifest and self._manifest == self._manifest_of(parts, complete=True, reproducible=reproducible)
        return PartSet(self.folder, self._manifest) if same else None

    def _manifest_of(self, parts: Iterable[Part], complete: bool, reproducible: bool) -> bytes:
        parts = sorted(parts, key=lambda part: part.index)
        manifest = {
            "format": FORMAT_VERSION,  # integer: version of this format
            "kind": self.kind,  # string: kind of the records
            "generation": max((part.generation for part in parts), default=1),  # integer: highest generation of a part
            "recipe": self.recipe.to_json(),  # object: what determines the records
            "recipe_hash": self.recipe.hash,  # string: SHA-256 of the recipe's canonical JSON
            "parents": [{"kind": parent.kind, "hash": parent.hash} for parent in self.parents],  # list: `kind`, `hash`
            "complete": complete,  # boolean: false while a crawl will add more parts
            "reproducible": reproducible,  # boolean: false for a crawl, and if a record killed a worker
            "records": sum(part.records for part in parts),  # integer: sum over the parts
            "counts": sum((part.counts for part in parts), Counts()).to_json(),  # object: sum over the parts
            "parts": [part.to_json() for part in parts],  # list: entries of the parts
        }
        return pretty_json(with_check(manifest))


def part_key(recipe: Recipe, sources: Sequence[SourcePart], depends: str = "") -> str:
    """Return a hash of what a part is made from; it changes with the recipe, the sources and the dependencies."""
    return sha256_json([recipe.hash, [[s.set, s.part, s.record_digest] for s in sources], depends])


def _same_place(one: Folder, other: Folder) -> bool:
    if one.is_local and other.is_local:
        return one.local_path().resolve() == other.local_path().resolve()
    return one.url == other.url


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
    stage = _Stage(tasks, writers, recipe, run, label or recipe.stage)
    if sets := stage.sealed():
        return sets
    if changes := stage.main.changes():
        run.console.say(f"{stage.label}: made again, because {', '.join(changes)}")
    mine = [task for task in tasks if run.parts is None or task.index in run.parts]
    if run.dry_run:
        n_missing = len(stage.to_do(mine))
        done = f"{len(mine) - n_missing:,} done, {n_missing:,} to do"
        run.console.say(f"{stage.label}: {counted(len(mine), 'part')}, {done}")
        raise DryRun
    with contextlib.ExitStack() as held:
        for writer in writers.values():  # InputError if another run is writing one of them
            held.enter_context(writer.folder.held(shared=run.parts is not None))
        stage.clear()
        if to_do := stage.to_do(mine):
            stage.make(function, to_do, len(mine) - len(to_do))
        return stage.seal()


def make_set(
    function: Callable[[PartContext, PartTask], None],
    tasks: Sequence[PartTask],
    url: str,
    kind: str,
    recipe: Recipe,
    parents: Sequence[Parent],
    run: Run,
    label: str = "",
) -> PartSet:
    """Make the parts of `tasks` in one set with `run_parts`."""
    outputs = {kind: (url, kind)}
    return run_parts(function, tasks, recipe=recipe, outputs=outputs, parents=parents, run=run, label=label)[kind]


class _Stage:
    """One call of `run_parts`: finds the parts that are done, and makes the rest."""

    def __init__(
        self, tasks: Sequence[PartTask], writers: Mapping[str, SetWriter], recipe: Recipe, run: Run, label: str
    ) -> None:
        self.tasks, self.writers, self.run, self.label = tasks, writers, run, label
        self.main = next(iter(writers.values()))
        self.keys = {task.index: task.key(recipe) for task in tasks}
        self.was_sealed = False  # if so, parts are made because something changed, not because a run was interrupted
        self.started = time.time()
        self.cpu_seconds, self.peak_bytes = 0.0, 0  # of the tasks of this run

    def to_do(self, tasks: Sequence[PartTask]) -> list[PartTask]:
        """Return the tasks whose part isn't current in all outputs."""
        writers = self.writers.values()
        return [task for task in tasks if not all(w.is_current(task.index, self.keys[task.index]) for w in writers)]

    def sealed(self) -> dict[str, PartSet] | None:
        """Return the sets if all parts are done, sealed and unchanged since; no byte of them is read."""
        sets = {}
        for name, writer in self.writers.items():
            parts, reproducible = self._made(writer)
            sealed = writer.sealed_set(parts, reproducible=reproducible)
            if sealed is None or len(parts) < len(self.tasks):
                return None
            sets[name] = sealed
        return sets

    def _made(self, writer: SetWriter) -> tuple[list[Part], bool]:
        """Return the parts that are done, and whether another run would make the same."""
        parts = [part for i, part in writer.parts.items() if part.key == self.keys.get(i)]
        return parts, not any(KILLED_WORKER in part.counts.failed for part in parts)

    def clear(self) -> None:
        """Look again, now that the folders are locked; unseal the sets if they need work, and remove foreign parts."""
        for writer in self.writers.values():
            writer.look()
        if self.sealed():
            return
        self.was_sealed = self.main.folder.exists(MANIFEST)
        for writer in self.writers.values():
            writer.unseal()  # first, so that no reader sees old and new parts together
            if self.run.parts is None:  # otherwise other runs are at work
                for index, part in writer.parts.items():
                    if index not in self.keys:
                        writer.remove(part)
                writer.remove_leftovers()

    def make(self, function: Callable[[PartContext, PartTask], None], tasks: Sequence[PartTask], n_done: int) -> None:
        """Make the parts of the tasks; RunFailed if some failed."""
        if n_done:
            resuming, done = ("", "kept") if self.was_sealed else ("resuming, ", "done")
            of = n_done + len(tasks)
            self.run.console.say(f"{self.label}: {resuming}{n_done:,} of {of:,} parts are {done}")
        folders = {name: (writer.folder, writer.kind) for name, writer in self.writers.items()}
        keys = [self.keys[task.index] for task in tasks]
        quarantine = _Quarantine(self.main.folder)
        outcomes = dict.fromkeys(("kept", "dropped", "failed"), 0)
        with self.run.console.progress(len(tasks), self.label, "parts") as progress:

            def note(_: int, made: tuple[Mapping[str, Part], float, int]) -> None:
                published, cpu_seconds, most_bytes = made
                self.cpu_seconds += cpu_seconds
                self.peak_bytes = max(self.peak_bytes, most_bytes)
                for name, part in published.items():
                    self.writers[name].parts[part.index] = part
                counts = published[next(iter(self.writers))].counts
                outcomes["kept"] += counts.kept
                outcomes["dropped"] += sum(counts.dropped.values())
                outcomes["failed"] += sum(counts.failed.values())
                note = ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes.items())
                progress.advance(note=note, **outcomes)

            failures = self.run.engine.map(
                _make_part,
                [(function, folders, task, key) for task, key in zip(tasks, keys, strict=True)],
                on_done=note,
                set_aside={i: quarantine.of(key) for i, key in enumerate(keys) if quarantine.of(key)},
                on_set_aside=lambda i, position, cause: quarantine.add(keys[i], position, cause),
                on_records=progress.at,
                writes=[writer.folder for writer in self.writers.values()],
            )
        if failures:
            first = failures[0]
            raise RunFailed(
                f"{len(failures)} of {counted(len(tasks), 'part')} failed; part {tasks[first.index].index}: {first.error}",
                "the finished parts are kept; rerun the same command to retry the others",
            )

    def seal(self) -> dict[str, PartSet]:
        """Seal the sets, the main one last: once it can be read, the others can. RunFailed if only some parts were to do."""
        if some := self.run.parts:
            for writer in self.writers.values():
                writer.look()
            of = f"{len(self.to_do(self.tasks)):,} of {counted(len(self.tasks), 'part')} are missing"
            raise RunFailed(
                f"{self.label}: the parts of run {some.number}/{some.of} are made, and nothing is sealed; {of}",
                f"when the other runs have ended: {some.rest}",
            )
        about = {
            "started": self.started,  # number: when the run began
            "seconds": time.time() - self.started,  # number: how long it took
            "cpu_seconds": self.cpu_seconds,  # number?: CPU time of the workers
            "peak_bytes": self.peak_bytes,  # integer?: highest memory use of a worker
            "host": platform.node(),  # string: name of the machine
            "workers": self.run.engine.workers,  # integer: worker processes
        }
        sets = {}
        for name, writer in reversed(list(self.writers.items())):
            writer.remove_leftovers()  # of workers that died during this run
            parts, reproducible = self._made(writer)
            named = {file for part in parts for file, _, _ in part.files}
            for file in writer.folder.files().keys() - named:  # a part that was made again may have had more
                if any(fnmatch.fnmatchcase(file, mark) for mark in FILES):
                    writer.folder.remove(file)
            places = {PARENTS: places_of(writer.parents, writer.folder)}
            sets[name] = writer.seal(parts, reproducible=reproducible, run=about | places)
        return sets


def _make_part(attempt: Attempt, job: tuple[Any, ...]) -> tuple[Mapping[str, Part], float, int]:
    """Make a part in every output and publish them, the main output last; in the worker.

    `job` is the function, the folder and kind of each output, the task, and the part's key. Returns the parts by output,
    and the seconds of CPU and the most memory that the worker used.
    """
    started, (function, folders, task, key) = time.process_time(), job
    writers = {
        name: PartWriter(folder, kind, task.index, key=key, sources=task.sources)
        for name, (folder, kind) in folders.items()
    }
    try:
        function(PartContext(attempt, writers), task)
        if attempt.only is not None:  # a record that killed a worker, alone: only whether it kills again matters
            return {}, 0.0, 0
        generation = max((source.generation for source in task.sources), default=1)
        # The main part comes last: if a kill comes in between, it is missing and is made again.
        published = {name: writers[name].publish(generation) for name in reversed(writers)}
        return published, time.process_time() - started, peak_bytes()
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


def _read_entry(folder: Folder, name: str) -> Part | None:
    try:
        return msgspec.convert(without_check(json.loads(folder.read_bytes(name))), Part)
    except _DAMAGED:
        return None  # a part without a valid entry doesn't exist and is made again
