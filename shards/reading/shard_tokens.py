"""Shards as sequences that read tokens when they are sliced, so that evaluation can process shards of any size.

On disk a slice is a view of the memory map. At a URL it is taken from blocks of a mebibyte. The last blocks are cached,
so that a sequential pass fetches each block once, and repeated passes over the same few windows fetch nothing again.
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
"""read(start, length) of an entire split."""


class ShardTokens:
    """Tokens `start` … start+n_tokens-1 of a split, read by `read`. A slice raises like `read`."""

    def __init__(self, read: Read, start: int, n_tokens: int) -> None:
        self._read = read
        self._start = start
        self._n_tokens = n_tokens

    def __len__(self) -> int:
        return self._n_tokens

    def __getitem__(self, place: int | slice) -> Any:
        """Return one token, or the tokens of a slice as u16 or u32."""
        if isinstance(place, slice):
            wanted = range(self._n_tokens)[place]
            first, last = (min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])) if wanted else (0, -1)
            return self._read(self._start + first, last + 1 - first)[:: wanted.step]
        return self._read(self._start + range(self._n_tokens)[place], 1)[0]


def keeping_blocks(read: Read, n_tokens: int, token_bytes: int) -> Read:
    """Wrap `read` of a split of `n_tokens` so that it reads complete blocks and caches the last KEPT_BLOCKS."""
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
