"""Where the windows of a split lie: cut from the ring of all its tokens, or inside its documents.

Both number their windows along the corpus, so that W consecutive windows are one range of tokens: a block (`order.py`).
Positions count the tokens of the whole split, as if its shards were one ring.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


class Windows(Protocol):
    """The windows of each epoch."""

    n_windows: int

    def starts(self, epoch: int, windows: Indices) -> Indices:
        """Position of the first token of each window, below the number of tokens."""

    def lengths(self, windows: Indices) -> Indices:
        """Tokens of each window: context + 1, or fewer."""

    def extent(self, epoch: int, first: int, last: int) -> tuple[int, int]:
        """Start and number of tokens of the range that windows first … last lie in."""


class RingWindows:
    """Windows of context + 1 tokens that cross documents, each a context's step from the last.

    They are cut from an offset that the key gives each epoch, so that documents are not cut at the same places each time.
    Neighbours share one token, so every token is a target once an epoch, but for the N mod context that an epoch leaves out.
    """

    def __init__(self, n_tokens: int, context: int, key: bytes) -> None:
        self.n_windows = n_tokens // context
        self._n_tokens = n_tokens
        self._context = context
        self._key = key

    def offset(self, epoch: int) -> int:
        """Where the windows of an epoch begin to be cut: in 0 … context-1."""
        digest = hashlib.blake2b(self._key + f" epoch {epoch} offset".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self._context

    def starts(self, epoch: int, windows: Indices) -> Indices:
        """Position of each window's first token."""
        return (self.offset(epoch) + windows * self._context) % self._n_tokens

    def lengths(self, windows: Indices) -> Indices:
        """All are context + 1."""
        return np.full(len(windows), self._context + 1, np.int64)

    def extent(self, epoch: int, first: int, last: int) -> tuple[int, int]:
        """The range goes past the ring's end for the last windows of an epoch."""
        return self.offset(epoch) + first * self._context, (last - first + 1) * self._context + 1


class DocumentWindows:
    """Windows of at most context + 1 tokens, each inside one document: by the shards' document indexes.

    A document of L tokens (with the end-of-text that opens it) has ⌈L / context⌉ of them. The last one is short by at least
    a token, so an end-of-text fills it up: the target after the document's last token. So all of its tokens but the first are
    targets once, and so is its end. Takes 16 bytes of memory per document.
    """

    def __init__(self, bounds: Indices, context: int) -> None:
        """`bounds` are the positions where the documents start, then the number of tokens."""
        self._starts, self._ends = bounds[:-1], bounds[1:]
        self._firsts = np.concatenate([[0], np.cumsum(-(-(self._ends - self._starts) // context))]).astype(np.int64)
        self.n_windows = int(self._firsts[-1])
        self._context = context

    def starts(self, epoch: int, windows: Indices) -> Indices:
        """Position of each window's first token; the same in all epochs."""
        documents = self._documents(windows)
        return self._starts[documents] + (windows - self._firsts[documents]) * self._context

    def lengths(self, windows: Indices) -> Indices:
        """Up to the document's end."""
        left: Indices = self._ends[self._documents(windows)] - self.starts(0, windows)
        return left.clip(max=self._context + 1)

    def extent(self, epoch: int, first: int, last: int) -> tuple[int, int]:
        """From the first window's start to the last one's end."""
        (start, end), (_, length) = self.starts(0, np.array([first, last])), self.lengths(np.array([first, last]))
        return int(start), int(end + length - start)

    def _documents(self, windows: Indices) -> Indices:
        return (np.searchsorted(self._firsts, windows, side="right") - 1).astype(np.int64, copy=False)


def document_numbers(tokens: npt.NDArray[np.integer[npt.NBitBase]], eot_id: int) -> npt.NDArray[np.int32]:
    """Which document of its window each token belongs to: 0 is that of the first token, an end-of-text begins the next one.

    Attention stays inside documents where `numbers[:, :, None] == numbers[:, None, :]`. In windows that do not cross
    documents the first target with number 1 is the document's end, and the rest is padding: targets count where
    `numbers[:, :-1] == 0`.

    >>> document_numbers(np.array([[5, 9, 7, 9, 9], [9, 5, 7, 9, 9]]), eot_id=9).tolist()
    [[0, 1, 1, 2, 3], [0, 0, 0, 1, 2]]
    """
    numbers = np.cumsum(tokens == eot_id, axis=-1, dtype=np.int32)
    return numbers - numbers[..., :1]
