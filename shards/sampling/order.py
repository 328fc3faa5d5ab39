"""The order of an epoch's windows: keyed permutations of the blocks, and of the windows within groups of blocks.

    blocks of W consecutive windows     0 1 2 3 4 5 6 7 8           permuted once per epoch
    in the epoch's order                6 2 0 | 8 4 7 | 1 5 3       split into groups of G blocks
    windows                             all windows of 6, 2 and 0 permuted together, then all of 8, 4 and 7, …

So a reader keeps G blocks at a time and reads each block once per epoch, in one piece; neighbouring windows of an epoch
come from G different places of the corpus. If G is the number of blocks, this is a full shuffle. No list is stored: the
window at place k is computed from k, so a run can start anywhere.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from webtext.shards.sampling.permutation import Permutation

Indices = npt.NDArray[np.int64]


class EpochOrder:
    """The permutation of windows 0 … n-1 determined by `key`; a group has `group_blocks` blocks (None: all blocks).

    >>> order = EpochOrder(7, block_windows=2, group_blocks=2, key=b"seed 0")
    >>> sorted(np.concatenate([order.windows(group, 0, order.group_size(group)) for group in range(order.n_groups)]).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """

    def __init__(self, n_windows: int, *, block_windows: int, group_blocks: int | None, key: bytes) -> None:
        self.n_windows = n_windows
        self.block_windows = block_windows
        self.n_blocks = -(-n_windows // block_windows)
        self.group_blocks = min(group_blocks or self.n_blocks, self.n_blocks)
        self.n_groups = -(-self.n_blocks // self.group_blocks)
        self._key = key
        self._blocks = Permutation(self.n_blocks, key + b" blocks")
        # The last block may be shorter, and so is the group that contains it.
        self._lacking = self.n_blocks * block_windows - n_windows
        self._short_group = self._blocks.place(self.n_blocks - 1) // self.group_blocks
        self._group: tuple[int, Permutation, Indices] | None = None

    def group_start(self, group: int) -> int:
        """Return the place of a group's first window; for the group after the last one, the number of windows."""
        if group >= self.n_groups:
            return self.n_windows
        lacking = self._lacking if group > self._short_group else 0
        return group * self.group_blocks * self.block_windows - lacking

    def group_size(self, group: int) -> int:
        return self.group_start(group + 1) - self.group_start(group)

    def group_of(self, place: int) -> int:
        """Return the group that contains a place of the epoch."""
        size = self.group_blocks * self.block_windows
        if place >= self.group_start(self._short_group + 1):
            return (place + self._lacking) // size
        return place // size

    def blocks(self, group: int) -> Indices:
        """Return the blocks of a group in the order in which they are read; a short block is last."""
        first = group * self.group_blocks
        blocks = self._blocks(np.arange(first, min(first + self.group_blocks, self.n_blocks)))
        if group == self._short_group:  # last, so that dividing a place by block_windows gives its block
            last = self.n_blocks - 1
            blocks = np.append(blocks[blocks != last], last)
        return blocks

    def windows(self, group: int, start: int, stop: int) -> Indices:
        """Return the windows at places start … stop-1 of a group (int64)."""
        if self._group is None or self._group[0] != group:
            inside = Permutation(self.group_size(group), self._key + f" group {group}".encode())
            self._group = (group, inside, self.blocks(group))
        _, inside, blocks = self._group
        slot, within = np.divmod(inside(np.arange(start, stop)), self.block_windows)
        return blocks[slot] * self.block_windows + within
