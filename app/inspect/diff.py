"""Compare two builds: settings, counts by reason, and the documents lost and gained.

Documents are paired by URL, because a page that was fetched again has another id; a document without a URL by its id.
Only 64-bit hashes of these keys are compared, in passes over the key columns, so memory is bounded by
`ROWS_PER_PASS`, and the order of documents and parts doesn't matter. Two different keys among 10^8 have equal hashes
with probability 3·10^-4.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.app.chain import Layout
from webtext.app.inspect.lookup import open_if_there
from webtext.app.inspect.stale import model_recipe
from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.base.storage import Folder

SETS = ("links", "pages", "documents", "signals", "corpus", "tokens")
STAGES = (*SETS[:-1], "tokenizer", "tokens", "model")
TOKENIZER_MANIFEST = "tokenizer.manifest.json"
FOLLOWS = {("tokens", "tokenizer_hash"), ("model", "tokens")}
"""Recipe keys about the stage before, which aren't settings."""

NOT_SET = "not set"
"""Marks the value of a setting that one of the recipes lacks."""

NO_DECISION = "not among its documents"
"""Reason of a document that the other build has neither kept nor dropped: no link led there, or the page had no text."""

SAMPLES = 20
ROWS_PER_PASS = 1 << 24  # a hash is 8 bytes: 128 MiB for each build
BATCH_ROWS = 1 << 16
_KEYED = hashlib.blake2b(key=b"webtext diff 1", digest_size=8)


@dataclass(frozen=True, slots=True)
class Built:
    """A build's folder: its sealed sets by name, and the recipe of each finished stage."""

    sets: Mapping[str, PartSet]
    recipes: Mapping[str, Mapping[str, Any]]

    @classmethod
    def open(cls, root: str) -> Built:
        """Open everything that is sealed in `root`; InputError if there is nothing."""
        layout = Layout(root)
        names = (*SETS, "dropped")
        sets = {name: found for name in names if (found := open_if_there(getattr(layout, name), name)) is not None}
        if not sets:
            raise InputError(f"there is no build in '{root}'", "name the folder that `webtext build` wrote")
        recipes = {name: opened.recipe for name, opened in sets.items() if name in SETS}
        tokenizer = Folder(root).child("tokenizer")
        if tokenizer.exists(TOKENIZER_MANIFEST):
            manifest = tokenizer.read_object(TOKENIZER_MANIFEST, "train the tokenizer again")
            recipes["tokenizer"] = manifest.get("recipe", {})
        model = model_recipe(layout)
        return cls(sets, recipes | ({"model": model} if model else {}))

    def digests(self) -> dict[str, list[str]]:
        return {name: [part.record_digest for part in opened.parts] for name, opened in self.sets.items()}


def make_diff(a: str, b: str) -> dict[str, Any]:
    """Return what changed from the build in folder `a` to the one in `b`. InputError when a folder has no build."""
    built = (Built.open(a), Built.open(b))
    settings = changed_settings(*built)
    comparable = all("corpus" in each.sets for each in built)
    return {
        "a": a,
        "b": b,
        "equal": not settings and built[0].digests() == built[1].digests(),
        "settings": settings,
        "counts": list(_counts(*built)),
        "documents": _documents(*built) if comparable else None,
    }


def changed_settings(a: Built, b: Built) -> list[dict[str, Any]]:
    """Return {stage, name, a, b} for each setting, version or code version that differs between two recipes of a stage."""
    return [
        {"stage": stage, "name": name, "a": old, "b": new}
        for stage in STAGES
        if stage in a.recipes and stage in b.recipes
        for name, old, new in _changed(a.recipes[stage], b.recipes[stage])
        if (stage, name) not in FOLLOWS
    ]


def _changed(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    old, new = dict(_leaves(a)), dict(_leaves(b))
    for name in sorted(old | new):
        if old.get(name, NOT_SET) != new.get(name, NOT_SET):
            yield name, old.get(name, NOT_SET), new.get(name, NOT_SET)


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten a recipe to dotted names, without the prefix `settings.`."""
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, "" if name == "settings" else f"{name}.")
        else:
            yield name, inner


def _counts(a: Built, b: Built) -> Iterator[dict[str, Any]]:
    """Yield {set, reason, a, b}: what each set kept, then what it dropped and failed; None where there is no such set."""
    for name in SETS:
        sides = [each.sets.get(name) for each in (a, b)]
        by_reason = [{} if each is None else each.counts.dropped | each.counts.failed for each in sides]
        if any(sides):
            kept = [each and each.counts.kept for each in sides]
            yield {"set": name, "reason": "kept", "a": kept[0], "b": kept[1]}
        for reason in sorted({*by_reason[0], *by_reason[1]}):
            n = [each and reasons.get(reason, 0) for each, reasons in zip(sides, by_reason, strict=True)]
            yield {"set": name, "reason": reason, "a": n[0], "b": n[1]}


def _documents(a: Built, b: Built) -> dict[str, Any]:
    """Return how many documents both corpora keep, and those that only one of them keeps."""
    n_kept = [each.sets["corpus"].records for each in (a, b)]
    n_passes = max(1, -(-max(opened.records for each in (a, b) for opened in each.sets.values()) // ROWS_PER_PASS))
    lost, gained = _Left(), _Left()
    for number in range(n_passes):
        mine, yours = (_hashes(each.sets["corpus"], number, n_passes) for each in (a, b))
        lost.add(_without(mine, yours), b.sets.get("dropped"), number, n_passes)
        gained.add(_without(yours, mine), a.sets.get("dropped"), number, n_passes)
    return {
        "kept_a": n_kept[0],
        "kept_b": n_kept[1],
        "common": n_kept[0] - lost.reasons.total(),
        "lost": lost.to_json(a.sets["corpus"]),
        "gained": gained.to_json(b.sets["corpus"]),
    }


class _Left:
    """Documents that only one build keeps: counts by the other build's reason, and those with the smallest hashes."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self._samples: list[tuple[int, str]] = []

    def add(self, hashes: np.ndarray, dropped: PartSet | None, number: int, n_passes: int) -> None:
        """Count the documents with these hashes, which are sorted, by the other build's decision on them."""
        reasons = np.full(len(hashes), NO_DECISION, object)
        for keys, batch in _batches(dropped, ("stage", "reason"), number, n_passes):
            first = np.searchsorted(hashes, keys)
            last = np.searchsorted(hashes, keys, side="right")
            for row in np.flatnonzero(last > first):
                reasons[first[row] : last[row]] = f"{batch['stage'][row]}: {batch['reason'][row]}"
        self.reasons.update(reasons.tolist())
        first_here = zip(hashes[:SAMPLES].tolist(), reasons[:SAMPLES].tolist(), strict=True)
        self._samples = sorted([*self._samples, *first_here])[:SAMPLES]

    def to_json(self, corpus: PartSet) -> dict[str, Any]:
        """Return plain JSON values; `corpus` has the documents."""
        wanted = np.array([key for key, _ in self._samples], np.uint64)
        rows = {}
        for keys, batch in _batches(corpus) if self._samples else ():
            for row in np.flatnonzero(np.isin(keys, wanted)):
                rows[int(keys[row])] = {"id": batch["id"][row].as_py(), "url": batch["url"][row].as_py()}
        counted = sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))
        return {
            "documents": self.reasons.total(),
            "reasons": [{"reason": reason, "documents": n} for reason, n in counted],
            "samples": [rows[key] | {"reason": reason} for key, reason in self._samples],
        }


def _batches(
    opened: PartSet | None, columns: Sequence[str] = (), number: int = 0, n_passes: int = 1
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Yield batches with the rows of one pass, and the hash of each row's URL, or of its id if it has no URL."""
    if opened is None:
        return
    for part in opened.parts:
        for batch in opened.batches(part, ["id", "url", *columns], BATCH_ROWS):
            keys = pc.coalesce(batch["url"], batch["id"]).to_pylist()
            hashes = np.array([_hash(key) for key in keys], np.uint64)
            of_pass = hashes % np.uint64(n_passes) == number
            yield hashes[of_pass], batch.filter(pa.array(of_pass))


def _hash(key: str) -> int:
    keyed = _KEYED.copy()
    keyed.update(key.encode())
    return int.from_bytes(keyed.digest(), "little")


def _hashes(opened: PartSet, number: int, n_passes: int) -> np.ndarray:
    found = [hashes for hashes, _ in _batches(opened, (), number, n_passes)]
    return np.concatenate(found) if found else np.empty(0, np.uint64)


def _without(mine: np.ndarray, yours: np.ndarray) -> np.ndarray:
    """Return mine, sorted, without yours; a hash that occurs twice is one that two documents share, and pairs with two."""
    keys, n_mine = np.unique(mine, return_counts=True)
    others, n_yours = np.unique(yours, return_counts=True)
    _, here, there = np.intersect1d(keys, others, assume_unique=True, return_indices=True)
    n_mine[here] -= np.minimum(n_mine[here], n_yours[there])
    return np.repeat(keys, n_mine)
