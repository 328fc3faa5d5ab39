"""Compute the shingle sets of candidates: read their texts again, part by part, and join the sets in one file.

Storing the shingles of all documents in pass 1 instead would take 4.5 KB per document of 570 words.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.errors import RunFailed
from webtext.base.parts.digest import file_sha256
from webtext.base.parts.partset import SetName
from webtext.base.run import Run
from webtext.base.storage import Folder, write_array
from webtext.base.workers.journal import Failed, Journal
from webtext.clean import _minhash
from webtext.clean.dedup.columns import CANDIDATE, Columns, Numbers
from webtext.clean.dedup.sign import TEXTS_PER_BATCH
from webtext.clean.dedup.spill import changed_is_an_error, mapped, release
from webtext.clean.text.arrays import texts_of

Integers = npt.NDArray[np.int64]
VALUE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Sets:
    """The sets of all candidates, concatenated in a file; the begin and size of each set, by document."""

    path: Path
    begins: npt.NDArray[np.uint64]
    sizes: Numbers

    def gather(self, documents: Numbers, path: Path) -> tuple[npt.NDArray[np.uint64], Integers, Integers]:
        """Return the sets of these documents as (values, begins, ends); the values are in a mapped file at `path`."""
        ends = np.cumsum(self.sizes[documents], dtype=np.int64)
        begins = ends - self.sizes[documents]
        values = mapped(path, np.uint64, int(ends[-1]))
        with open(self.path, "rb", buffering=0) as file:
            for document, begin, end in zip(documents, begins.tolist(), ends.tolist(), strict=True):
                os.preadv(file.fileno(), [values[begin:end].data], int(self.begins[document]) * VALUE_BYTES)
        return values, begins, ends


@dataclass(frozen=True, slots=True)
class _SetTask:
    documents: SetName
    part: int
    rows: npt.NDArray[np.uint8]  # which rows are candidates, packed
    shingle_words: int
    scratch: Folder
    name: str


def shingle_sets(columns: Columns, shingle_words: int, scratch: Folder, run: Run) -> Sets:
    """Compute the sets of all documents flagged as candidates, in workers; files are written to `scratch`."""
    tasks: list[_SetTask] = []
    starts: list[tuple[int, int]] = []
    digests: dict[int, str] = {}
    for source, start, stop in zip(columns.sources, columns.starts[:-1], columns.starts[1:], strict=True):
        chosen = columns.flags[start:stop] & CANDIDATE != 0
        if chosen.any():
            name = f"sets-{len(tasks):05d}"
            documents = SetName.of(source.documents)
            tasks.append(_SetTask(documents, source.part, np.packbits(chosen), shingle_words, scratch, name))
            starts.append((int(start), int(stop)))
    begins = mapped(scratch.local_path("set_begins"), np.uint64, len(columns))
    sizes = mapped(scratch.local_path("set_sizes"), np.uint32, len(columns))
    with run.console.progress(len(tasks), "clean.dedup: verify", "parts") as progress:

        def on_done(index: int, found: tuple[Integers, dict[int, str], str]) -> None:
            start, stop = starts[index]
            candidates = start + np.flatnonzero(columns.flags[start:stop] & CANDIDATE)
            sizes[candidates], failed, digests[index] = found
            for which, reason in failed.items():
                columns.fail(int(candidates[which]), reason)
            columns.release()
            progress.advance()

        failures = run.engine.map(_sets_of_part, tasks, on_done=on_done)
    if failures:
        failed = tasks[failures[0].index]
        raise RunFailed(
            f"part {failed.part} of '{failed.documents.url}' could not be read again: {failures[0].error}",
            "rerun the same command",
        )
    path, written = scratch.local_path("sets"), 0
    with open(path, "wb") as joined:
        for index, (task, (start, stop)) in enumerate(zip(tasks, starts, strict=True)):
            ends = written + np.cumsum(sizes[start:stop], dtype=np.int64)
            begins[start:stop] = ends - sizes[start:stop]
            written = int(ends[-1])
            release(begins, sizes)
            with changed_is_an_error(scratch.local_path(task.name)), open(scratch.local_path(task.name), "rb") as file:
                if file_sha256(file) != digests[index]:
                    raise ValueError
                file.seek(0)
                shutil.copyfileobj(file, joined, 1 << 20)
            scratch.remove(task.name)
    return Sets(path, begins, sizes)


def _sets_of_part(journal: Journal, task: _SetTask) -> tuple[Integers, dict[int, str], str]:
    """Write a part's sets, in a worker; return their sizes, why some failed (these are empty), the file's SHA-256."""
    sizes = [np.empty(0, np.int64)]
    failed: dict[int, str] = {}
    n_sets = 0
    with task.scratch.scratch(task.name) as path, open(path, "wb+") as file:
        for batch, made in journal.apply_to_batches(
            lambda batch: _minhash.shingle_sets(*texts_of(batch["text"]), task.shingle_words), _chosen_texts(task)
        ):
            if isinstance(made, Failed):
                failed[n_sets] = made.reason
                made = np.empty(0, np.uint64), np.zeros(2, np.int64)
            values, offsets = made
            write_array(file, values)
            sizes.append(np.diff(offsets))
            n_sets += batch.num_rows
        file.flush()
        file.seek(0)
        return np.concatenate(sizes), failed, file_sha256(file)


def _chosen_texts(task: _SetTask) -> Iterator[pa.RecordBatch]:
    chosen = np.unpackbits(task.rows)
    start = 0
    for batch in task.documents.open().batches(task.part, ["text"], TEXTS_PER_BATCH):
        rows = np.flatnonzero(chosen[start : start + len(batch)])
        if len(rows):
            yield batch.take(pa.array(rows))
        start += len(batch)
