"""Makes a documents set with unique ids: if several parts contain an id, the first one keeps it.

A part function makes the ids of its own part unique. Ids that parts share are known once all parts are made; the later
parts are then made again without them. The shared ids are stored next to the set, so that the next run makes each part
once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import part_key
from webtext.base.parts.recipe import Recipe, sha256_json
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder

T = TypeVar("T")

REPEATED = "repeated.json"


@dataclass(frozen=True, slots=True)
class UniqueTask(Generic[T]):
    """A part's task, and the ids taken by earlier parts: the part function counts their records as repeated."""

    task: T
    taken: tuple[str, ...]


def run_unique(
    function: Callable[[PartContext, PartTask], None],
    tasks: Sequence[PartTask],
    *,
    recipe: Recipe,
    out: str,
    parents: Sequence[PartSet],
    run: Run,
) -> PartSet:
    """Make the documents set `out` with `run_parts`; the payload of each task is wrapped in a `UniqueTask`.

    Memory: 16 bytes per document if there are several parts, and the repeated ids.
    """

    def make(taken: Mapping[int, Sequence[str]]) -> PartSet:
        return run_parts(
            function,
            [_without(task, tuple(taken.get(task.index, ()))) for task in tasks],
            recipe=recipe,
            outputs={"documents": (out, "documents")},
            parents=parents,
            run=run,
            label=recipe.stage,
        )["documents"]

    key = sha256_json([part_key(recipe, task.sources, task.depends) for task in tasks])
    documents = make(_read(Folder(out), key))
    repeated = repeated_ids(documents)
    if not repeated:
        return documents
    if not run.dry_run:
        stored = {"key": key, "repeated": {str(index): list(ids) for index, ids in repeated.items()}}
        Folder(out).write_object(REPEATED, stored)
    return make(repeated)


def repeated_ids(documents: PartSet) -> dict[int, tuple[str, ...]]:
    """Return part index -> ids of that part that an earlier part also contains, in order; only parts that have some."""
    if len(documents.parts) < 2:
        return {}
    hashes = np.sort(np.concatenate([_hashes(_ids(documents, part)) for part in range(len(documents.parts))]))
    suspects = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
    seen: set[str] = set()
    repeated: dict[int, tuple[str, ...]] = {}
    for part in range(len(documents.parts) if suspects else 0):
        ids = _ids(documents, part)
        suspected = [ids[i] for i, hashed in enumerate(_hashes(ids).tolist()) if hashed in suspects]
        found = tuple(each for each in suspected if each in seen)
        seen.update(suspected)
        if found:
            repeated[documents.parts[part].index] = found
    return repeated


def unique_posts(posts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the posts sorted by (source, post_id) without repeats: a comment with several links is one post."""
    by_name = {(post["source"], post["post_id"]): post for post in posts}
    return [by_name[name] for name in sorted(by_name)]


def _without(task: PartTask, taken: tuple[str, ...]) -> PartTask:
    depends = sha256_json([task.depends, *taken]) if taken else task.depends
    return dataclasses.replace(task, payload=UniqueTask(task.payload, taken), depends=depends)


def _read(folder: Folder, key: str) -> dict[int, Sequence[str]]:
    """Return the repeated ids that an earlier run of the same tasks stored, if any."""
    try:
        stored: dict[str, Any] = json.loads(folder.read_bytes(REPEATED)) if folder.exists(REPEATED) else {}
        return {int(index): ids for index, ids in stored["repeated"].items()} if stored.get("key") == key else {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # damaged: computed again


def _ids(documents: PartSet, part: int) -> list[str]:
    ids: list[str] = documents.table(part, ["id"])["id"].to_pylist()
    return ids


def _hashes(ids: Sequence[str]) -> npt.NDArray[np.uint64]:
    hashed = b"".join(hashlib.blake2b(each.encode(), digest_size=8).digest() for each in ids)
    return np.frombuffer(hashed, "<u8")
