"""Documents out of a stream of tokens: they end at an end-of-text, and where the stream's own index says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.base.errors import InputError
from webtext.shards.format import Tokens

PIECE = 1 << 24
"""Tokens looked at in one go."""
NO_ENDS = np.zeros(0, np.int64)


def cut(tokens: Tokens, eot_id: int, ends: npt.NDArray[np.int64] = NO_ENDS) -> Iterator[Tokens]:
    """The documents, each with its end-of-text where it has one; none is empty. `ends` rises.

    >>> [document.tolist() for document in cut(np.array([1, 9, 2, 3, 4]), 9, np.array([3, 5]))]
    [[1, 9], [2], [3, 4]]
    """
    start = 0
    for first in range(0, len(tokens), PIECE):
        stop = min(first + PIECE, len(tokens))
        of_piece = ends[np.searchsorted(ends, first, "right") : np.searchsorted(ends, stop, "right")]
        at_eot = np.flatnonzero(tokens[first:stop] == eot_id) + first + 1
        for end in np.union1d(at_eot, of_piece).tolist():
            yield tokens[start:end]
            start = end
    if start < len(tokens):
        yield tokens[start:]


def mapped(path: Path, dtype: npt.DTypeLike, offset: int = 0) -> Tokens:
    """All values of a file from a byte offset on, memory-mapped. InputError when they are not whole values."""
    kind: np.dtype[Any] = np.dtype(dtype)
    n_bytes = path.stat().st_size - offset
    if n_bytes < 0 or n_bytes % kind.itemsize:
        raise InputError(
            f"'{path}' has {n_bytes + offset:,} bytes",
            f"expected {offset:,} and a multiple of {kind.itemsize}: it is cut off, or of another format",
        )
    if not n_bytes:
        return np.zeros(0, kind)
    return np.memmap(path, kind, "r", offset).view(np.ndarray)
