"""A keyed permutation of 0 … n-1, computed place by place, so that a shuffle of any size needs no memory.

A balanced Feistel network permutes the numbers of 2b bits, where 2^(2b) is the smallest such power that is at least n.
A result of n or more is fed through the network again until it is below n (cycle walking: Black and Rogaway, "Ciphers
with arbitrary finite domains", CT-RSA 2002). The domain is smaller than 4n, so this takes fewer than four passes on
average.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

ROUNDS = 6
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # SplitMix64's finaliser
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))

Indices = npt.NDArray[np.int64]


class Permutation:
    """The permutation of 0 … n-1 determined by `key`. The same key gives the same order on every machine.

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
