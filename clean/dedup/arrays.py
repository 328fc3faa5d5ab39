"""Arrays of keys and numbers, as all steps of dedup use them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.uint64]


def fixed(values: Array) -> pa.Array:
    """Return the rows of a contiguous array as binary values of fixed size."""
    n_rows, width = values.shape
    return pa.Array.from_buffers(pa.binary(width * values.itemsize), n_rows, [None, pa.py_buffer(values)])


def fibonacci_hash(numbers: Numbers) -> Numbers:
    """Return a hash of each number, whose high bits depend on all bits (Fibonacci hashing)."""
    return numbers * GOLDEN


def runs(keys: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each run of equal keys starts, and its length."""
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    return starts, np.diff(np.append(starts, len(keys)))


def repeated(keys: Iterable[Numbers]) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """Return the keys that occur more than once, ascending, and how often. Memory: 32 bytes per key (`np.unique`: 41)."""
    ordered = np.sort(np.concatenate([np.empty(0, np.uint64), *keys]))
    starts, sizes = runs(ordered)
    return ordered[starts[sizes > 1]], sizes[sizes > 1]


class Places:
    """Finds the places of keys in an array of ascending keys, fast if most of them aren't in it."""

    def __init__(self, ordered: Numbers) -> None:
        self._ordered, self._low_bits = ordered, np.uint64((1 << (8 * len(ordered)).bit_length()) - 1)
        self._among = np.zeros(int(self._low_bits) + 1, np.bool_)
        self._among[ordered & self._low_bits] = True

    def of(self, keys: Numbers) -> npt.NDArray[np.int64]:
        """Return the place of each key, or -1."""
        places, likely = np.full(len(keys), -1), np.flatnonzero(self._among[keys & self._low_bits])
        found = np.searchsorted(self._ordered, keys[likely])
        found[found == len(self._ordered)] = 0
        is_in = self._ordered[found] == keys[likely]
        places[likely[is_in]] = found[is_in]
        return places
