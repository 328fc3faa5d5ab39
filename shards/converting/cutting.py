"""Splits a stream of tokens into documents, by end-of-text and by an index; moves end-of-text to document ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from webtext.base.errors import InputError
from webtext.shards.format import Tokens

PIECE = 1 << 24
"""Tokens searched per step, which bounds memory."""
NO_ENDS = np.zeros(0, np.int64)


def cut(tokens: Tokens, eot_id: int, ends: npt.NDArray[np.int64] = NO_ENDS, *, opens: bool = False) -> Iterator[Tokens]:
    """Yield the documents, each with its end-of-text if it has one, which closes it or, with `opens`, opens it.

    `ends` are further document ends, in ascending order; a repeated end makes a document without tokens.

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
    """Write a shard's tokens with end-of-text after each document instead of before it; its index remains valid."""
    file.write(tokens[1:].data)
    file.write(tokens[:1].data)


def mapped(path: Path, dtype: npt.DTypeLike, offset: int = 0) -> Tokens:
    """Return a file's values from a byte offset on, memory-mapped; raise InputError if the last value is incomplete."""
    kind: np.dtype[Any] = np.dtype(dtype)
    n_bytes = path.stat().st_size - offset
    if n_bytes < 0 or n_bytes % kind.itemsize:
        raise InputError(
            f"'{path}' has {n_bytes + offset:,} bytes",
            f"expected {offset:,} plus a multiple of {kind.itemsize}: it is truncated, or of another format",
        )
    if not n_bytes:
        return np.zeros(0, kind)
    return np.memmap(path, kind, "r", offset).view(np.ndarray)
