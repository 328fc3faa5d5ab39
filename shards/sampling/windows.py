"""Positions of a split's windows: cut from the ring of all its tokens, or inside its documents.

Both kinds are numbered along the corpus, so that W consecutive windows are one range of tokens, a block (`order.py`).
Positions count the tokens of the entire split, as if its shards were one ring.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


class RingWindows:
    """Windows of context + 1 tokens that cross documents, at a distance of `context` tokens.

    Each epoch starts at an offset derived from the key, so that documents aren't cut at the same places each time.
    Neighbours share one token, so every token is a target once per epoch, except N mod context tokens of each epoch.
    """

    def __init__(self, n_tokens: int, context: int, key: bytes) -> None:
        self.n_windows = n_tokens // context
        self._n_tokens = n_tokens
        self._context = context
        self._key = key

    def offset(self, epoch: int) -> int:
        """Return the position of an epoch's first window, in 0 … context-1."""
        digest = hashlib.blake2b(self._key + f" epoch {epoch} offset".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self._context

    def starts(self, epoch: int, windows: Indices) -> Indices:
        """Return the position of each window's first token (int64), less than the number of tokens."""
        return (self.offset(epoch) + windows * self._context) % self._n_tokens

    def lengths(self, windows: Indices) -> Indices:
        """Return the number of tokens of each window (int64): context + 1."""
        return np.full(len(windows), self._context + 1, np.int64)

    def extent(self, epoch: int, first: int, last: int) -> tuple[int, int]:
        """Return start and number of tokens; for the last windows of an epoch the range wraps around the ring."""
        return self.offset(epoch) + first * self._context, (last - first + 1) * self._context + 1


class DocumentWindows:
    """Windows of at most context + 1 tokens, each inside one document, by the shards' document indexes.

    A document of L tokens (with the end-of-text that opens it) has ⌈L / context⌉ windows. The last one lacks at least
    one token, so it is padded with end-of-text, the target after the document's last token. So all of a document's
    tokens except the first are targets once, and so is its end. Takes 16 bytes of memory per document.
    """

    def __init__(self, bounds: Indices, context: int) -> None:
        """Take `bounds`, the positions of the documents' starts, then the number of tokens (int64)."""
        self._starts, self._ends = bounds[:-1], bounds[1:]
        self._firsts: Indices = np.concatenate([[0], np.cumsum(-(-(self._ends - self._starts) // context))])
        self.n_windows = int(self._firsts[-1])
        self._context = context

    def starts(self, epoch: int, windows: Indices) -> Indices:
        """Return the position of each window's first token; equal in all epochs."""
        documents = self._documents(windows)
        return self._starts[documents] + (windows - self._firsts[documents]) * self._context

    def lengths(self, windows: Indices) -> Indices:
        """Return each window's number of tokens, at most up to its document's end."""
        left: Indices = self._ends[self._documents(windows)] - self.starts(0, windows)
        return left.clip(max=self._context + 1)

    def extent(self, epoch: int, first: int, last: int) -> tuple[int, int]:
        """Return start and number of tokens from the first window's start to the last one's end."""
        (start, end), (_, length) = self.starts(0, np.array([first, last])), self.lengths(np.array([first, last]))
        return int(start), int(end + length - start)

    def _documents(self, windows: Indices) -> Indices:
        return (np.searchsorted(self._firsts, windows, side="right") - 1).astype(np.int64, copy=False)


def document_numbers(tokens: npt.NDArray[np.integer[npt.NBitBase]], eot_id: int) -> npt.NDArray[np.int32]:
    """Number the documents of each window: the first token's document is 0, each end-of-text begins the next one.

    Returns int32 of the shape of `tokens`. Attention stays inside documents where `numbers[:, :, None] ==
    numbers[:, None, :]`. In windows that don't cross documents, the first target with number 1 is the document's end
    and the rest is padding: targets count where `numbers[:, :-1] == 0`.

    >>> document_numbers(np.array([[5, 9, 7, 9, 9], [9, 5, 7, 9, 9]]), eot_id=9).tolist()
    [[0, 1, 1, 2, 3], [0, 0, 0, 1, 2]]
    """
    numbers = np.cumsum(tokens == eot_id, axis=-1, dtype=np.int32)
    return numbers - numbers[..., :1]
