"""From signatures to candidates: which texts may be near another one, and in which buckets they meet.

Two signatures meet in a band when they agree in all its rows. In memory is one band's keys at a time; signatures are
memory-mapped. What a small bucket holds is compared pair by pair, by signatures; a large bucket makes all it holds
candidates, which costs a shingle set each instead of a square of comparisons.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from webtext.clean import _minhash

SMALL_BUCKET = 32
ROWS_AT_A_TIME = 1 << 16
PAIRS_AT_A_TIME = 1 << 20
CHECK_DEVIATIONS = 4.5
"""A pair at the threshold fails the signature check with probability below 10^-5."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Signatures = npt.NDArray[np.uint8]


def min_agreement(threshold: float, permutations: int) -> int:
    """In how many places the signatures of a pair must agree to be worth verifying.

    The count is binomial; this is CHECK_DEVIATIONS standard deviations below its mean at the threshold.
    """
    mean, deviation = threshold * permutations, math.sqrt(permutations * threshold * (1 - threshold))
    return max(0, math.floor(mean - CHECK_DEVIATIONS * deviation))


def mark_candidates(
    signatures: Signatures, eligible: npt.NDArray[np.int64], bands: int, rows: int, least: int
) -> npt.NDArray[np.bool_]:
    """For each signature: whether it is a candidate. Rows that are not `eligible` (texts without words) are none."""
    marked = np.zeros(len(signatures), np.bool_)
    for band in range(bands):
        keys = _band_keys(signatures, eligible, band, rows)
        order = np.argsort(keys, kind="stable")
        nodes, starts, sizes = eligible[order], *_runs(keys[order])
        run_of = np.repeat(np.arange(len(starts)), sizes)
        marked[nodes[sizes[run_of] > SMALL_BUCKET]] = True
        # Where a small run still has a member `gap` places on, that pair shares a bucket.
        left = np.flatnonzero((sizes[run_of] > 1) & (sizes[run_of] <= SMALL_BUCKET))
        ends = (starts + sizes)[run_of]
        for gap in range(1, SMALL_BUCKET):
            left = left[left + gap < ends[left]]
            _mark_pairs(signatures, nodes[left], nodes[left + gap], least, marked)
    return marked


def bucket_table(signatures: Signatures, nodes: npt.NDArray[np.int64], bands: int, rows: int) -> npt.NDArray[np.int32]:
    """For each of `nodes` and each band, the bucket it shares with others of `nodes`, -1 where it is alone there."""
    table = np.full((len(nodes), bands), -1, np.int32)
    n_buckets = 0
    for band in range(bands):
        keys = _band_keys(signatures, nodes, band, rows)
        order = np.argsort(keys, kind="stable")
        _, sizes = _runs(keys[order])
        shared = sizes > 1
        numbers = np.where(shared, n_buckets + np.cumsum(shared) - 1, -1)
        table[order, band] = np.repeat(numbers, sizes)
        n_buckets += int(shared.sum())
    return table


def _band_keys(signatures: Signatures, nodes: npt.NDArray[np.int64], band: int, rows: int) -> npt.NDArray[np.uint64]:
    """A 64-bit key of each node's rows of one band; unequal rows with equal keys only cost a comparison."""
    keys = np.zeros(len(nodes), np.uint64)
    for start in range(0, len(nodes), ROWS_AT_A_TIME):
        places = slice(start, start + ROWS_AT_A_TIME)
        block = signatures[nodes[places], band * rows : (band + 1) * rows].astype(np.uint64)
        for row in range(rows):
            keys[places] = keys[places] * _GOLDEN + block[:, row]
    return keys


def _runs(keys: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each run of equal keys starts, and its length."""
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    return starts, np.diff(np.append(starts, len(keys)))


def _mark_pairs(
    signatures: Signatures,
    left: npt.NDArray[np.int64],
    right: npt.NDArray[np.int64],
    least: int,
    marked: npt.NDArray[np.bool_],
) -> None:
    for start in range(0, len(left), PAIRS_AT_A_TIME):
        pair = left[start : start + PAIRS_AT_A_TIME], right[start : start + PAIRS_AT_A_TIME]
        unknown = ~(marked[pair[0]] & marked[pair[1]])
        first, second = pair[0][unknown], pair[1][unknown]
        near = _minhash.agreements(signatures, first, second) >= least
        marked[first[near]] = marked[second[near]] = True
