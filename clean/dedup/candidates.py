"""Find candidate pairs by LSH bands, and join them into components.

Two signatures share a bucket if they agree on all rows of a band. Band keys are sorted externally: they are spilled to
files by key range, and each file is small enough to sort in memory. Texts in a small bucket are compared pair by pair,
by signature. All texts of a large bucket become candidates, which costs one shingle set per text instead of a quadratic
number of comparisons. Candidate pairs join texts into components. No edge leaves a component, so each is settled alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from webtext.clean import _minhash
from webtext.clean.dedup.columns import CANDIDATE, HAS_WORDS, INDEXED, PASSED, Columns, Numbers
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.spill import Array, Spill, blocks, range_of_hash, runs

SMALL_BUCKET = 32
PAIRS_AT_A_TIME = 1 << 16
CHECK_DEVIATIONS = 4.5
"""A pair at the threshold fails the signature check with probability below 10^-5."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_KEYS = np.dtype([("key", "<u8"), ("document", "<u4")])
_MEMBERS = np.dtype([("root", "<u4"), ("document", "<u4")])

Signatures = npt.NDArray[np.uint8]


@dataclass(slots=True)
class Buckets:
    """Counts of large buckets, for the report."""

    large: int = 0  # buckets of more than SMALL_BUCKET texts
    largest: int = 0  # texts in the largest bucket


def min_agreement(threshold: float, permutations: int) -> int:
    """Return in how many places two signatures must agree for the pair to be verified.

    The number of agreements is binomial; the result is CHECK_DEVIATIONS deviations below its mean at the threshold.
    """
    mean, deviation = threshold * permutations, math.sqrt(permutations * threshold * (1 - threshold))
    return max(0, math.floor(mean - CHECK_DEVIATIONS * deviation))


def join_candidates(columns: Columns, settings: DedupSettings, least: int, folder: Path) -> Buckets:
    """Join texts that may be near duplicates of each other, in `columns.parents`."""
    keys = Spill(folder, len(columns) * settings.bands, _KEYS)
    for documents, signatures in columns.signature_blocks():
        wanted = PASSED | HAS_WORDS
        chosen = (columns.flags[documents] & wanted == wanted) & (columns.best[documents] == documents)
        records = np.empty((settings.bands, int(chosen.sum())), _KEYS)
        records["document"] = documents[chosen]
        for band in range(settings.bands):
            records["key"][band] = band_keys(signatures[chosen], band, settings.rows)
        keys.add(range_of_hash(records["key"].ravel(), keys.n_files), records.ravel())
    met = Buckets()
    for records in keys.files():
        order = np.argsort(records["key"])
        starts, sizes = runs(records["key"][order])
        documents = records["document"][order]
        _join_large(columns, documents, starts, sizes, met)
        _join_small(columns, documents, starts, sizes, least)
        columns.release()
    return met


def components(columns: Columns, folder: Path) -> Iterator[Numbers]:
    """Iterate over the components of more than one text, each as ascending document numbers.

    All their members are already flagged as candidates when this returns.
    """
    spilled = Spill(folder, len(columns), _MEMBERS)
    size = np.uint64(max(len(columns), 1))
    for places in blocks(0, len(columns)):
        documents = np.arange(places.start, places.stop, dtype=np.uint32)
        found = _minhash.roots(columns.parents, documents)
        joined = np.flatnonzero(found != documents)
        records = np.empty(len(joined), _MEMBERS)
        records["root"], records["document"] = found[joined], documents[joined]
        columns.flags[records["root"]] |= CANDIDATE
        columns.flags[records["document"]] |= CANDIDATE
        spilled.add(records["root"].astype(np.uint64) * np.uint64(spilled.n_files) // size, records)
        columns.release()
    return _components(spilled)


def bucket_table(signatures: Signatures, bands: int, rows: int) -> npt.NDArray[np.int32]:
    """Return the bucket number of each signature in each band, int32 [n, bands]; -1 if no other signature shares it."""
    table = np.full((len(signatures), bands), -1, np.int32)
    n_buckets = 0
    for band in range(bands):
        keys = band_keys(signatures, band, rows)
        order = np.argsort(keys)
        _, sizes = runs(keys[order])
        shared = sizes > 1
        numbers = np.where(shared, n_buckets + np.cumsum(shared) - 1, -1)
        table[order, band] = np.repeat(numbers, sizes)
        n_buckets += int(shared.sum())
    return table


def band_keys(signatures: Signatures, band: int, rows: int) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each signature's rows in one band; a hash collision only costs a comparison."""
    keys = np.full(len(signatures), band, np.uint64)
    for row in range(band * rows, (band + 1) * rows):
        keys = (keys ^ signatures[:, row]) * _GOLDEN
        keys ^= keys >> np.uint64(29)
    return keys * _GOLDEN


def _join_large(columns: Columns, documents: Numbers, starts: Array, sizes: Array, met: Buckets) -> None:
    met.largest = max(met.largest, int(sizes.max(initial=0)))
    for start, size in zip(starts[sizes > SMALL_BUCKET], sizes[sizes > SMALL_BUCKET], strict=True):
        met.large += 1
        members = documents[start : start + size]
        if not columns.having(members, INDEXED).all():
            _minhash.join(columns.parents, members[1:].copy(), members[:-1].copy())


def _join_small(columns: Columns, documents: Numbers, starts: Array, sizes: Array, least: int) -> None:
    run_of = np.repeat(np.arange(len(starts)), sizes)
    ends = (starts + sizes)[run_of]
    # Each member of a small run shares its bucket with the member `gap` places later, if the run has one.
    left = np.flatnonzero((sizes[run_of] > 1) & (sizes[run_of] <= SMALL_BUCKET))
    for gap in range(1, SMALL_BUCKET):
        left = left[left + gap < ends[left]]
        for places in blocks(0, len(left), PAIRS_AT_A_TIME):
            _join_near(columns, documents[left[places]], documents[left[places] + gap], least)


def _join_near(columns: Columns, left: Numbers, right: Numbers, least: int) -> None:
    """Join the pairs whose signatures agree in enough places; skip pairs that are already joined or both indexed."""
    unknown = _minhash.roots(columns.parents, left) != _minhash.roots(columns.parents, right)
    unknown &= ~(columns.having(left, INDEXED) & columns.having(right, INDEXED))
    left, right = left[unknown], right[unknown]
    both, places = np.unique(np.concatenate([left, right]), return_inverse=True)
    near = _minhash.agreements(columns.signatures_of(both), places[: len(left)], places[len(left) :]) >= least
    _minhash.join(columns.parents, left[near], right[near])


def _components(spilled: Spill) -> Iterator[Numbers]:
    for records in spilled.files():
        records = records[np.argsort(records["root"], kind="stable")]
        starts, _ = runs(records["root"])
        for members in np.split(records, starts[1:]):
            yield np.concatenate([members["root"][:1], members["document"]])
