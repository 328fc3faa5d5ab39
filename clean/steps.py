"""The steps from documents to corpus: the first that refuses a document is the reason why it is dropped.

A step prepares, in the process that runs it, what it has to know about all documents; then it judges, in workers, the
documents of one part. `clean/pipeline.py` has the list of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import sha256_json
from webtext.base.parts.schemas import DECISION
from webtext.base.parts.stage import Parent
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.attempt import KILLED_WORKER, RAISED
from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.text.clean_text import MAX_TEXT_BYTES

Array = npt.NDArray[Any]
BATCH_ROWS = 8192  # of documents without their texts
START_CHARACTERS = 200
UNMEASURED = (KILLED_WORKER, RAISED)
"""Reasons of documents that a step couldn't judge: they count as failed, whatever the other steps say."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a step refuses some documents of a batch; the arrays have a value for each document of the batch."""

    reason: str
    drops: npt.NDArray[np.bool_]
    value: Array | None = None  # float64; NaN: not a number
    threshold: float = np.nan
    stage: str = "filter"
    duplicate_of: Array | None = None
    request: Array | None = None
    comes_last: bool = False  # among the rows of `dropped` of its batch


class Batch:
    """Some documents of a part, from its row `first`, and the verdict that refused each: an index of `verdicts`, or -1."""

    def __init__(self, documents: pa.RecordBatch | pa.Table, first: int = 0) -> None:
        self.documents, self.first = documents, first
        self.verdicts: list[Verdict] = []
        self.refused_by = np.full(documents.num_rows, -1)

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Mask of the documents that nothing has refused so far."""
        return self.refused_by < 0

    def judged(self, steps: Iterable[Step]) -> Batch:
        """Apply the steps in their order, each to the documents that are kept so far; return the batch itself."""
        for step in steps:
            self.refuse(step.judge(self))
        return self

    def refuse(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            self.refused_by[verdict.drops & self.kept] = len(self.verdicts)
            self.verdicts.append(verdict)

    def refused(self, *, failed: bool) -> list[tuple[int, Verdict]]:
        """Return the refused documents, each with its verdict; with `failed`, the documents that couldn't be judged instead."""
        found = [(row, self.verdicts[number]) for row, number in enumerate(self.refused_by.tolist()) if number >= 0]
        return [(row, each) for row, each in found if (each.reason in UNMEASURED) == failed]

    def decisions(self) -> pa.Table:
        """Return the rows of `dropped`."""
        found = sorted(self.refused(failed=False), key=lambda each: each[1].comes_last)
        documents = self.documents.select(["id", "url", "text"])
        return _decisions(documents.take(pa.array([row for row, _ in found], pa.int64())), found)


def _decisions(documents: pa.RecordBatch, found: Sequence[tuple[int, Verdict]]) -> pa.Table:
    columns: dict[str, Any] = {"id": documents["id"], "url": documents["url"]}
    for name in ("stage", "reason", "value", "threshold", "duplicate_of", "request"):
        values = [(getattr(each, name), row) for row, each in found]
        values = [value[row] if isinstance(value, np.ndarray) else value for value, row in values]
        columns[name] = pa.array(values, DECISION.field(name).type, from_pandas=True)  # NaN becomes null
    start = pc.utf8_slice_codeunits(documents["text"], 0, START_CHARACTERS)
    columns["text_start"] = pc.if_else(pc.is_valid(columns["request"]), "", start)  # no text if it was asked for
    return pa.table([columns[name] for name in DECISION.names], schema=DECISION)


@dataclass(frozen=True, slots=True)
class DocumentsPart:
    """A part of the documents and its signals, by its place among the parts."""

    documents: SetName
    signals: SetName | None
    place: int


class Step:
    """Base of the steps; the methods here suit a step that needs nothing but its settings."""

    versions: ClassVar[Mapping[str, str]] = {}
    columns: ClassVar[tuple[str, ...]] = ()  # of the documents, that it reads beside their texts
    depends = ""  # of a step prepared for a part: a digest of what is neither in the recipe nor in the sources

    def sections(self) -> dict[str, Any]:
        """Return the step's sections of the recipe."""
        return {}

    def prepare(self, cleaning: Cleaning) -> Sequence[Step]:
        """Return the step as it is sent to the worker of each part."""
        return [self] * len(cleaning.documents.parts)

    def before_dedup(self) -> Step | None:
        """Return the step whose refused documents dedup leaves out; None if dedup compares them, too."""
        return self

    def begin(self, part: DocumentsPart, dropped: Any) -> None:
        """Open the data by which the part's batches are judged, in a worker.

        `dropped` is the writer of its part of `dropped`, to which files may be attached, or None if dedup asks.
        """

    def judge(self, batch: Batch) -> Iterable[Verdict]:
        """Return verdicts on the documents; the first that refuses a document counts."""
        raise NotImplementedError

    def end(self) -> None:
        """Complete the attached files, after all batches."""


@dataclass(slots=True)
class Cleaning:
    """A run of steps over a documents set: what they have prepared, and at the end the sets that were written."""

    documents: PartSet
    out: Folder
    run: Run
    signals: PartSet | None = None
    parents: list[Parent] = field(default_factory=list)  # beside documents and signals
    prepared: list[tuple[Step, ...]] = field(default_factory=list)  # the steps so far, for each part
    removed: Any = None  # what removal lists took out (`Removed`)
    overlap: Mapping[str, Any] | None = None  # contents of `overlap.json`, if evaluation sets were given
    corpus: PartSet = field(init=False)
    dropped: PartSet = field(init=False)

    @property
    def counts(self) -> Counts:
        """From documents to corpus: in = kept + dropped by reason."""
        return self.corpus.counts

    def prepare(self, steps: Iterable[Step]) -> None:
        """Prepare the steps in their order."""
        self.prepared = [() for _ in self.documents.parts]
        for step in steps:
            found = step.prepare(self)
            self.prepared = [(*before, each) for before, each in zip(self.prepared, found, strict=True)]

    def part(self, place: int) -> DocumentsPart:
        return DocumentsPart(SetName.of(self.documents), SetName.of(self.signals) if self.signals else None, place)


@dataclass(frozen=True, slots=True)
class Passing:
    """The rows of a part that steps keep: dedup compares only these."""

    part: DocumentsPart
    steps: tuple[Step, ...]
    n_rows: int

    @property
    def digest(self) -> str:
        """A digest of everything that the mask depends on."""
        sets = [name and name.hash for name in (self.part.documents, self.part.signals)]
        return sha256_json([sets, [[each.sections(), each.depends] for each in self.steps]])

    def mask(self) -> npt.NDArray[np.bool_]:
        batches: Any = [pa.table({"row": np.arange(self.n_rows)})]
        if columns := [name for step in self.steps for name in step.columns]:
            batches = self.part.documents.open().batches(self.part.place, columns, BATCH_ROWS)
        for step in self.steps:
            step.begin(self.part, None)
        kept, first = [np.empty(0, np.bool_)], 0
        for rows in batches:
            kept.append(Batch(rows, first).judged(self.steps).kept)
            first += rows.num_rows
        return np.concatenate(kept)


def listed(rows: pa.Table, batch: Batch, **about: Any) -> Iterator[Verdict]:
    """Yield a verdict for each reason of a part's `rows`, which may have value, duplicate_of and request."""
    place = rows["row"].to_numpy() - batch.first
    rows = rows.filter((place >= 0) & (place < batch.documents.num_rows))
    place, reasons = rows["row"].to_numpy() - batch.first, np.array(rows["reason"].to_pylist(), object)
    for name in rows.column_names[2:]:
        about[name] = np.full(batch.documents.num_rows, None, object)
        about[name][place] = rows[name].to_pylist()
    for reason in dict.fromkeys(reasons):
        drops = np.zeros(batch.documents.num_rows, np.bool_)
        drops[place[reasons == reason]] = True
        yield Verdict(reason, drops, **about)


class Length(Step):
    """Refuses texts that are too long for a worker's memory; a documents set that webtext didn't make may contain some."""

    def before_dedup(self) -> None:
        return None  # it signs no such text

    def judge(self, batch: Batch) -> Iterator[Verdict]:
        n_bytes = pc.binary_length(batch.documents["text"]).to_numpy(zero_copy_only=False)
        yield Verdict(TOO_MANY_BYTES, n_bytes > MAX_TEXT_BYTES, n_bytes.astype(np.float64), float(MAX_TEXT_BYTES))
