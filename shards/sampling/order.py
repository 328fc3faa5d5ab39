"""The order of an epoch's windows: keyed permutations of the blocks, and of the windows within groups of blocks.

    blocks of W consecutive windows     0 1 2 3 4 5 6 7 8           permuted once per epoch
    in the epoch's order                6 2 0 | 8 4 7 | 1 5 3       split into groups of G blocks
    windows                             all windows of 6, 2 and 0 permuted together, then all of 8, 4 and 7, …

So a reader keeps G blocks at a time and reads each block once per epoch, in one piece; neighbouring windows of an epoch
come from G different places of the corpus. If G is the number of blocks, this is a full shuffle. No list is stored: the
window at place k is computed from k, so a run can start anywhere.

A permutation is a balanced Feistel network of the numbers of 2b bits, where 2^(2b) is the smallest such power that is at
least n. A result of n or more is fed through the network again until it is below n (cycle walking: Black and Rogaway,
"Ciphers with arbitrary finite domains", CT-RSA 2002). The domain is smaller than 4n, so this takes fewer than four passes
on average.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

ROUNDS = 6
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # SplitMix64's finaliser
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))

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


class Permutation:
    """The permutation of 0 … n-1 determined by `key`, computed place by place; the same on every machine.

    >>> sorted(Permutation(5, b"seed 0")(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, n: int, key: bytes) -> None:
        self.n = n
        half_bits = max(1, -(-(n - 1).bit_length() // 2))  # halves of equal length, so the domain is below 4n
        self._half_bits = np.uint64(half_bits)
        self._mask = np.uint64((1 << half_bits) - 1)
        digest = hashlib.blake2b(key, digest_size=8 * ROUNDS).digest()
        self._round_keys = np.frombuffer(digest, "<u8")

    def __call__(self, places: Indices) -> Indices:
        """Return the element at each place (int64); places must be in 0 … n-1."""
        elements = self._network(places.astype(np.uint64))
        outside = np.flatnonzero(elements >= self.n)
        while len(outside):
            elements[outside] = self._network(elements[outside])
            outside = outside[elements[outside] >= self.n]
        return elements.astype(np.int64)

    def place(self, element: int) -> int:
        """Return the place of an element, the inverse of calling the permutation."""
        value = np.array([element], np.uint64)
        while True:
            left, right = value >> self._half_bits, value & self._mask
            for key in self._round_keys[::-1]:
                left, right = right ^ (_mixed(left + key) & self._mask), left
            value = (left << self._half_bits) | right
            if value[0] < self.n:
                return int(value[0])

    def _network(self, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = values >> self._half_bits, values & self._mask
        for key in self._round_keys:
            left, right = right, left ^ (_mixed(right + key) & self._mask)
        return (left << self._half_bits) | right


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply SplitMix64's finaliser: every bit of the result depends on every bit of the value."""
    values = (values ^ (values >> _SHIFTS[0])) * _MULTIPLIERS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return values ^ (values >> _SHIFTS[2])
