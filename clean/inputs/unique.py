"""Makes a documents set with unique ids: if several parts contain an id, the first one keeps it.

A part function makes the ids of its own part unique. Ids that parts share are known once all parts are made:

    documents ──► _unique/ids          each part's ids, by range of their hash
              ──► _unique/repeats      one part for each range: the rows whose ids an earlier part also contains

The later parts are then made again without them. The repeated ids are stored next to the set, so that the next run
makes each part once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.exchange import RangeWriter, range_of_hash, read_range
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import Recipe, sha256_json
from webtext.base.parts.stage import PartContext, PartTask, make_set
from webtext.base.run import Run
from webtext.base.storage import Folder

T = TypeVar("T")

REPEATED, WORK = "repeated.json", "_unique"
IDS_PER_RANGE = 4_000_000  # on average; a task needs some hundred bytes of memory for each
BATCH_ROWS = 65_536
_IDS = pa.schema([("id", pa.string()), ("part", pa.int64()), ("row", pa.int64())])  # the number of the part, from 0


@dataclass(frozen=True, slots=True)
class UniqueTask(Generic[T]):
    """A part's task; the part function counts the records whose ids earlier parts have taken as repeated."""

    task: T
    index: int
    stored: Folder | None  # has the taken ids, since there may be too many for a message to a worker

    @property
    def taken(self) -> Sequence[str]:
        """The ids taken by earlier parts, read from the folder."""
        return self.stored.read_object(REPEATED)["repeated"][str(self.index)] if self.stored else ()


def run_unique(
    function: Callable[[PartContext, PartTask], None],
    tasks: Sequence[PartTask],
    *,
    recipe: Recipe,
    out: str,
    parents: Sequence[PartSet],
    run: Run,
) -> PartSet:
    """Make the documents set `out`; the payload of each task is wrapped in a `UniqueTask`.

    Memory: the repeated ids.
    """

    def make(taken: Mapping[int, Sequence[str]]) -> PartSet:
        wrapped = [_without(task, tuple(taken.get(task.index, ())), Folder(out)) for task in tasks]
        return make_set(function, wrapped, out, "documents", recipe, parents, run)

    key = sha256_json([task.key(recipe) for task in tasks])
    documents = make(_read(Folder(out), key))
    while repeated := repeated_ids(documents, run):
        if not run.dry_run:
            stored = {"key": key, "repeated": {str(index): list(ids) for index, ids in repeated.items()}}
            Folder(out).write_object(REPEATED, stored)
        documents = make(repeated)
    return documents


def repeated_ids(documents: PartSet, run: Run) -> dict[int, tuple[str, ...]]:
    """Return part index -> ids of that part that an earlier part also contains, in order; only parts that have some."""
    if len(documents.parts) < 2:
        return {}
    n_ranges = max(1, -(-documents.records // IDS_PER_RANGE))

    def stage(function: Callable[[PartContext, PartTask], None], tasks: list[PartTask], name: str) -> PartSet:
        recipe = Recipe(stage=f"clean.{name}", code_version=1, settings={"ranges": n_ranges})
        out = documents.folder.child(WORK).location(name)
        return make_set(function, tasks, out, "exchange", recipe, [documents], run)

    ids = stage(_spread_ids, PartTask.for_each(documents, n_ranges), "ids")
    ranges = [
        PartTask(index=n, sources=(), payload=SetName.of(ids), depends=f"{ids.hash} {n}") for n in range(n_ranges)
    ]
    repeats = stage(_find_repeats, ranges, "repeats")
    rows = (row for batch in read_range(repeats, 0, _IDS) for row in batch.to_pylist())
    found: dict[int, list[str]] = {}
    for row in sorted(rows, key=lambda row: (row["part"], row["row"])):
        found.setdefault(documents.parts[row["part"]].index, []).append(row["id"])
    return {index: tuple(each) for index, each in found.items()}


def unique_posts(posts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the posts sorted by (source, post_id) without repeats: a comment with several links is one post."""
    by_name = {(post["source"], post["post_id"]): post for post in posts}
    return [by_name[name] for name in sorted(by_name)]


def _without(task: PartTask, taken: tuple[str, ...], folder: Folder) -> PartTask:
    depends = sha256_json([task.depends, *taken]) if taken else task.depends
    payload = UniqueTask(task.payload, task.index, folder if taken else None)
    return dataclasses.replace(task, payload=payload, depends=depends)


def _read(folder: Folder, key: str) -> dict[int, Sequence[str]]:
    """Return the repeated ids that an earlier run of the same tasks stored, if any."""
    try:
        stored = folder.read_object(REPEATED) if folder.exists(REPEATED) else {}
        return {int(index): ids for index, ids in stored["repeated"].items()} if stored.get("key") == key else {}
    except (InputError, ValueError, KeyError, AttributeError):
        return {}  # damaged: computed again


def _spread_ids(context: PartContext, task: PartTask) -> None:
    """Write the ids of a part by range of their hash, in a worker."""
    documents, part, n_ranges = task.payload
    first = 0
    with RangeWriter(context.main, _IDS, n_ranges) as ranges:
        for batch in documents.open().batches(part, ["id"], BATCH_ROWS):
            ids, rows = batch["id"], np.arange(first, first + batch.num_rows)
            hashed = b"".join(hashlib.blake2b(each.encode(), digest_size=8).digest() for each in ids.to_pylist())
            table = pa.table([ids, np.full(len(rows), part), rows], schema=_IDS)
            ranges.add(range_of_hash(np.frombuffer(hashed, "<u8"), n_ranges), table)
            first += batch.num_rows


def _find_repeats(context: PartContext, task: PartTask) -> None:
    """Write the rows of a range whose ids an earlier part also contains, in a worker."""
    ids = pa.Table.from_batches(read_range(task.payload.open(), task.index, _IDS), _IDS)
    by_id = ids.group_by("id").aggregate([("part", "min"), ("part", "count")])
    repeated = by_id.filter(pc.greater(by_id["part_count"], 1)).combine_chunks()
    firsts = repeated["part_min"].take(pc.index_in(ids["id"], value_set=repeated["id"]))
    later = ids.filter(pc.greater(ids["part"], firsts))
    with RangeWriter(context.main, _IDS, 1) as ranges:
        ranges.add(np.zeros(later.num_rows, np.uint64), later)
