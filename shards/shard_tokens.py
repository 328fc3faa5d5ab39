"""A shard as a sequence of tokens that are read as they are sliced: what evaluation walks through, whatever its size.

Of a local set a slice is a view of the map. Of a set at a URL it is cut from blocks of a mebibyte, of which those used last
are kept: a walk fetches each block once, and so does measuring the same spread windows again and again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from webtext.shards.format import Tokens

BLOCK_BYTES = 1 << 20
KEPT_BLOCKS = 256

Read = Callable[[int, int], Tokens]
"""read(start, length) of a whole split."""


class ShardTokens:
    """Tokens `start` … start+n_tokens-1 of a split, by `read`. Slices have no step; they raise what `read` raises."""

    def __init__(self, read: Read, start: int, n_tokens: int) -> None:
        self._read = read
        self._start = start
        self._n_tokens = n_tokens

    def __len__(self) -> int:
        return self._n_tokens

    def __getitem__(self, place: int | slice) -> Any:
        """One token, or the tokens of a slice as u16 or u32."""
        if isinstance(place, slice):
            start, stop, _ = place.indices(self._n_tokens)
            return self._read(self._start + start, max(0, stop - start))
        return self._read(self._start + range(self._n_tokens)[place], 1)[0]


def keeping_blocks(read: Read, n_tokens: int, token_bytes: int) -> Read:
    """`read` of a split of `n_tokens`, by whole blocks, the last KEPT_BLOCKS of them kept."""
    size = BLOCK_BYTES // token_bytes

    @functools.lru_cache(maxsize=KEPT_BLOCKS)
    def block(number: int) -> Tokens:
        return read(number * size, min(size, n_tokens - number * size))

    def kept(start: int, length: int) -> Tokens:
        if not length:
            return read(start, 0)
        first, last = start // size, (start + length - 1) // size
        pieces = [block(number) for number in range(first, last + 1)]
        whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return whole[start - first * size :][:length]

    return kept
