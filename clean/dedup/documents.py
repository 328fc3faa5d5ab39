"""The documents of a run of dedup: their sources, numbers and priority.

A source is a part of an index or of the documents to compare; parts of indexes come first. A document's number is its
source << 32 | its row, so 2^31 parts of 2^32 rows have one, and no task needs the facts of all documents. Priority is
one total order: documents of an index, then train, then highest karma, earliest date, smallest id; unknown karma and
dates come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.config import recipe_settings
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import Recipe, sha256_json
from webtext.base.parts.stage import PartContext, PartTask, make_set
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean import _minhash
from webtext.clean.dedup.arrays import Array, Numbers
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.steps import Passing

VERSIONS = {"unicode": _minhash.UNICODE_VERSION}
"""Versions for the recipes of sets that are made with dedup."""
CODE_VERSION = 4  # raised when another document is kept or named, or when the exchanges change
COPY = np.uint64(1 << 63)
"""Added to the number of a document whose text equals one of higher priority, so that it is never a component's first."""


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """A part of an index, or of the documents to compare: its signatures, and its texts in the same order."""

    signatures: SetName
    documents: SetName
    part: int
    n_rows: int
    indexed: bool = False
    chosen: Passing | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The folder of dedup's part sets, and the inputs of all of them."""

    folder: Folder
    sources: Sequence[ComparedPart]
    settings: DedupSettings
    run: Run
    scratch: list[str] = field(default_factory=list)  # names of the sets made, of kind `exchange`

    @property
    def n_indexed(self) -> int:
        return sum(source.indexed for source in self.sources)

    def make(
        self,
        name: str,
        function: Callable[[PartContext, PartTask], None],
        payloads: Iterable[Any],
        parents: Sequence[PartSet],
        *,
        kind: str = "exchange",
        depends: str = "",
    ) -> PartSet:
        """Make the set `name` with a part for each payload; all of them depend on the parents and on `depends`."""
        if kind == "exchange":
            self.scratch.append(name)
        key = sha256_json([depends, *(parent.hash for parent in parents)])
        tasks = [
            PartTask(index=number, sources=(), payload=(number, payload), depends=f"{key} {number}")
            for number, payload in enumerate(payloads)
        ]
        settings = recipe_settings(self.settings)
        recipe = Recipe(stage=f"clean.dedup.{name}", code_version=CODE_VERSION, settings=settings, versions=VERSIONS)
        place, label = self.folder.location(name), f"clean.dedup: {name}"
        return make_set(function, tasks, place, kind, recipe, parents, self.run, label)


FACTS = [
    ("document", pa.uint64()),
    ("indexed", pa.bool_()),
    ("in_validation", pa.bool_()),
    ("karma", pa.int64()),  # null if unknown, and for documents of an index
    ("date", pa.int64()),  # the same
    ("id", pa.string()),
]
"""The columns that decide priority."""


def facts_of(number: int, source: ComparedPart, signed: pa.RecordBatch, first: int, rows: Array) -> dict[str, Any]:
    """Return FACTS of some rows of a batch of signatures, which begins at row `first` of the source."""
    some = signed.take(rows)
    unknown = pa.nulls(len(rows), pa.int64())
    return {
        "document": np.uint64(number << 32) | (first + rows).astype(np.uint64),
        "indexed": np.full(len(rows), source.indexed),
        "in_validation": pc.equal(some["split"], "validation"),
        "karma": unknown if source.indexed else some["karma"],
        "date": unknown if source.indexed else some["date"],
        "id": some["id"],
    }


def in_priority(rows: pa.Table, group: str) -> pa.Table:
    """Sort rows with FACTS by the column `group`, then by priority."""
    descending = ("indexed", "karma")
    names = (group, "indexed", "in_validation", "karma", "date", "id", "document")
    return rows.sort_by([(name, "descending" if name in descending else "ascending") for name in names])


def sources_of(documents: Numbers) -> Numbers:
    """Return the sources of documents, also of copies."""
    return (documents & ~COPY) >> np.uint64(32)


def row_numbers(documents: Numbers) -> npt.NDArray[np.int64]:
    """Return the rows of documents in their sources."""
    return (documents & np.uint64(0xFFFFFFFF)).astype(np.int64)
