"""Counting inputs for training: in this process, or by part tasks if there is much to count or several runs share it.

Consecutive parts of a set, or consecutive files, of about GROUP_BYTES are a group. Nothing else decides how inputs are
grouped, and sums of counts are exact, so merges don't depend on who counts what. What makes one group is counted here,
by threads, sooner than a worker would have started. More are parts of a set beside the output (`NAME.parts/`), each with
a file of counts in the format that machines exchange; they are made and resumed like the parts of every stage.
"""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from webtext.base.errors import InputError
from webtext.base.inputs.files import FILE, InputFile, groups_of, hash_files
from webtext.base.parts.counts import Counts
from webtext.base.storage import Folder
from webtext.tokenizer.files.inputs import COUNTS, Input, count_input
from webtext.tokenizer.patterns.named import checked_version
from webtext.tokenizer.train.counts import PieceCounts, whole_weights
from webtext.tokenizer.train.progress import REPORTED_BYTES, TrainingProgress

if TYPE_CHECKING:
    from webtext.base.parts.partset import Part, PartSet, SetName
    from webtext.base.parts.stage import PartContext, PartTask
    from webtext.base.run import Run

CODE_VERSION = 1
GROUP_BYTES = 64 << 20
"""Bytes of parts or files, as they are stored. A larger one is a group of its own."""


@dataclass(frozen=True, slots=True)
class Counting:
    """How to count: pattern and Unicode version, the field with the text, and the memory for counts."""

    rule: tuple[str, str]
    text_field: str
    max_memory: int


@dataclass(frozen=True, slots=True)
class _Group:
    """What a part task counts: parts of a set, or files."""

    set: SetName | None
    parts: tuple[Part, ...]
    files: tuple[InputFile, ...]
    counting: Counting
    threads: int


def hash_inputs(inputs: Sequence[Input], run: Run) -> None:
    """Set the SHA-256 of files; workers compute it if there is much to read."""
    files = [source.file for source in inputs if source.file]
    is_much = sum(source.size for source in inputs if source.file) > GROUP_BYTES
    hashes = iter(hash_files(files, run) if is_much else [file.sha256() for file in files])
    for source in inputs:
        source.sha256 = next(hashes) if source.file else ""


def count_in_parts(inputs: Sequence[Input], url: str, counting: Counting, run: Run, label: str) -> PartSet | None:
    """Count inputs by part tasks and return the set at `url`; None if they are to be counted in this process."""
    groups = _groups(inputs)
    sizes = [sum(unit.size for unit in group) for group in groups]
    is_small = run.parts is None and (len(groups) < 2 or sum(sizes) <= GROUP_BYTES)
    if is_small or not groups or importlib.util.find_spec("pyarrow") is None:
        return None
    from webtext.base.parts.partset import SetName, Source
    from webtext.base.parts.recipe import Recipe
    from webtext.base.parts.stage import PartTask, run_parts

    workers, tasks = run.engine.workers, []
    counting_here = Counting(counting.rule, counting.text_field, max(counting.max_memory // workers, 1 << 20))
    for index, group in enumerate(groups):
        opened, parts = group[0].set, tuple(part for unit in group for part in unit.parts)
        files = [(unit.file, unit.sha256) for unit in group if unit.file]
        threads = max(1, round(workers * sizes[index] / max(sum(sizes), 1)))  # more for a file that outlasts others
        name = SetName.of(opened) if opened else None
        payload = _Group(name, parts, tuple(file for file, _ in files), counting_here, threads)
        sources = [opened.source(part) for part in parts] if opened else [Source(FILE, f.name, sha) for f, sha in files]
        tasks.append(PartTask(index=index, sources=tuple(sources), payload=payload))
    version = {"unicode": checked_version(*counting.rule)}
    settings = {"pattern": counting.rule[0], "text_field": counting.text_field}
    recipe = Recipe(stage="tokenizer.count", code_version=CODE_VERSION, settings=settings, versions=version)
    outputs, parents = {"counts": (url, "exchange")}, [source.set for source in inputs if source.set]
    made = run_parts(_count_group, tasks, recipe=recipe, outputs=outputs, parents=parents, run=run, label=label)
    return made["counts"]


def count_inputs(
    inputs: Sequence[Input], made: PartSet | None, counting: Counting, run: Run, progress: TrainingProgress
) -> tuple[PieceCounts, int]:
    """Return the counts of inputs (those in `made`, or else counted here), and the scale by which weights are multiplied.

    Raises InputError if there is no text.
    """
    counts = PieceCounts(*counting.rule, threads=run.threads, max_memory=counting.max_memory)
    weights, scale = whole_weights([source.weight for source in inputs])
    weight_of = dict(zip((source.weight for source in inputs), weights, strict=True))
    sizes, n_new = [source.size for source in inputs], 0

    def on_bytes(n_bytes: int) -> None:
        nonlocal n_new
        n_new += n_bytes
        if n_new >= REPORTED_BYTES:
            read = [source.share * size for source, size in zip(inputs, sizes, strict=True) if source.share is not None]
            progress.counted(n_new, sum(read) / sum(sizes) if len(read) == len(inputs) else None)
            n_new = 0

    for source in inputs:
        if source.kind == COUNTS and source.file:
            _add_file(source.file.folder, source.file.name, counts, weight_of[source.weight])
        elif made is None:
            count_input(source, counts, weight_of[source.weight], counting.text_field, on_bytes)
    if made is not None:
        for part, group in zip(made.parts, _groups(inputs), strict=True):
            _add_file(made.folder, made.attachment(part, ".counts"), counts, weight_of[group[0].weight])
            n_new += sum(each.about.get("text_bytes", 0) for each in part.attachments)
        inputs[0].counts += made.counts  # of all inputs: only their sums are used
        inputs[0].bytes += n_new
    progress.counted(n_new, 1.0)
    if failed := sum((source.counts for source in inputs), Counts()).failed:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(failed.items()))
        run.console.warn(f"{sum(failed.values()):,} records without text: {reasons}; the manifest counts them")
    if not len(counts):
        place = inputs[0].url if inputs else ""
        raise InputError(f"no text to train on in '{place}'", "name a corpus with train documents")
    return counts, scale


def _groups(inputs: Sequence[Input]) -> list[list[Input]]:
    """Return parts and files, in order, in groups of one set or of files, and of one weight."""
    units = (unit for source in inputs if source.kind != COUNTS for unit in source.units())
    alike = itertools.groupby(units, key=lambda unit: (id(unit.set), unit.weight))
    return [group for _, each in alike for group in groups_of(each, lambda unit: unit.size, GROUP_BYTES)]


def _count_group(context: PartContext, task: PartTask) -> None:
    group: _Group = task.payload
    counting, n_bytes = group.counting, 0
    pieces = PieceCounts(*counting.rule, threads=group.threads, max_memory=counting.max_memory)
    parts = [Input(set=group.set.open(), parts=group.parts)] if group.set else []
    for source in (*parts, *(Input(file=file) for file in group.files)):
        count_input(source, pieces, 1, counting.text_field, lambda _: context.note_progress())
        context.main.counts += source.counts
        n_bytes += source.bytes
    name = f"part-{task.index:05d}.counts"
    pieces.save(context.main.attach(name))
    context.main.describe(name, {"text_bytes": n_bytes})


def _add_file(folder: Folder, name: str, into: PieceCounts, weight: int) -> None:
    """Add a file of counts; it stays open, so that the copy of a remote one can be removed at once."""
    if folder.is_local:
        into.add_file(folder.local_path(name), weight)
        return
    with folder.open(name) as file, tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        into.add_file(copy.name, weight)
