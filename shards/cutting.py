"""Documents out of a stream of tokens, by its ends-of-text and by its own index; and end-of-text moved to their ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from webtext.base.errors import InputError
from webtext.shards.format import Tokens

PIECE = 1 << 24
"""Tokens looked at in one go."""
NO_ENDS = np.zeros(0, np.int64)


def cut(tokens: Tokens, eot_id: int, ends: npt.NDArray[np.int64] = NO_ENDS, *, opens: bool = False) -> Iterator[Tokens]:
    """The documents, each with its end-of-text where it has one: it closes them, or `opens` them. `ends` does not fall.

    A document has no tokens where `ends` repeats a place.

    >>> [document.tolist() for document in cut(np.array([1, 9, 2, 3, 4]), 9, np.array([3, 3, 5]))]
    [[1, 9], [2], [], [3, 4]]
    >>> [document.tolist() for document in cut(np.array([1, 9, 2, 9]), 9, opens=True)]
    [[1], [9, 2], [9]]
    """
    start = 0
    for first in range(0, max(len(tokens), 1), PIECE):
        stop = min(first + PIECE, len(tokens))
        of_piece = ends[
            np.searchsorted(ends, first, "right" if first else "left") : np.searchsorted(ends, stop, "right")
        ]
        at_eot = np.flatnonzero(tokens[first:stop] == eot_id) + first + (0 if opens else 1)
        at_eot = at_eot[(at_eot > 0) & ~np.isin(at_eot, of_piece)]
        for end in np.sort(np.concatenate([at_eot, of_piece])).tolist():
            yield tokens[start:end]
            start = end
    if start < len(tokens):
        yield tokens[start:]


def write_closed(tokens: Tokens, file: BinaryIO) -> None:
    """Write a shard's tokens with the end-of-text after each document instead of before it; its document index still holds."""
    file.write(tokens[1:].data)
    file.write(tokens[:1].data)


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
