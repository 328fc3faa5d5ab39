"""The shingle sets of candidates: their texts are read once more, part by part, and the sets put into one mapped file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.errors import RunFailed
from webtext.base.journal import Journal
from webtext.base.partset import PartSet
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean import _minhash
from webtext.clean.dedup.nodes import Integers, Nodes, by_part
from webtext.clean.dedup.sign import TEXTS_PER_BATCH, texts_of


@dataclass(frozen=True, slots=True)
class Sets:
    """Shingle set i is values[begins[i]:ends[i]], sorted."""

    values: npt.NDArray[np.uint64]
    begins: Integers
    ends: Integers


@dataclass(frozen=True, slots=True)
class _SetTask:
    documents: PartSet
    part: int
    rows: Integers  # rising
    shingle_words: int
    scratch: Folder
    name: str


def shingle_sets(
    documents: PartSet, nodes: Nodes, candidates: Integers, shingle_words: int, scratch: Folder, run: Run
) -> Sets:
    """The sets of the candidates (nodes), in their order; the values lie in a file in `scratch`."""
    chosen = by_part(nodes, candidates)
    tasks = [
        _SetTask(documents, part, nodes.rows[nodes.best[of_part]], shingle_words, scratch, f"sets-{part:05d}")
        for part, of_part in chosen
    ]
    sizes: dict[int, Integers] = {}
    with run.console.progress(len(tasks), "clean.dedup: verify", "parts") as progress:

        def on_done(index: int, found: Integers) -> None:
            sizes[index] = found
            progress.advance()

        failures = run.engine.map(_sets_of_part, tasks, on_done=on_done)
    if failures:
        raise RunFailed(
            f"part {tasks[failures[0].index].part} of '{documents.folder.url}' could not be read again: "
            f"{failures[0].error}",
            "give the same command again",
        )
    place = np.empty(len(nodes), np.int64)
    place[candidates] = np.arange(len(candidates))
    begins, ends = np.zeros(len(candidates), np.int64), np.zeros(len(candidates), np.int64)
    path, written = scratch.local_path("sets"), 0
    with open(path, "wb") as joined:
        for index, (task, (_, of_part)) in enumerate(zip(tasks, chosen, strict=True)):
            ends[place[of_part]] = written + np.cumsum(sizes[index])
            begins[place[of_part]] = ends[place[of_part]] - sizes[index]
            written += int(sizes[index].sum())
            with scratch.open(task.name) as file:
                shutil.copyfileobj(file, joined, 1 << 20)
            scratch.remove(task.name)
    return Sets(_mapped(path, written), begins, ends)


def _mapped(path: Path, size: int) -> npt.NDArray[np.uint64]:
    return np.memmap(path, np.uint64, "r", shape=(size,)) if size else np.empty(0, np.uint64)


def _sets_of_part(journal: Journal, task: _SetTask) -> Integers:
    """Runs in a worker: writes the sets, returns their sizes."""
    sizes = [np.empty(0, np.int64)]
    with task.scratch.scratch(task.name) as path, open(path, "wb") as file:
        for texts in _chosen_texts(task):
            values, offsets = _minhash.shingle_sets(*texts_of(texts), task.shingle_words)
            values.tofile(file)
            sizes.append(np.diff(offsets))
    return np.concatenate(sizes)


def _chosen_texts(task: _SetTask) -> Iterator[pa.Array]:
    start = 0
    for batch in task.documents.batches(task.part, ["text"], TEXTS_PER_BATCH):
        first, last = np.searchsorted(task.rows, [start, start + len(batch)])
        if first < last:
            yield batch.column("text").take(pa.array(task.rows[first:last] - start))
        start += len(batch)
