"""MinHash as one reads it: the twin of `clean/native`, with equal results, for reading and for tests.

    text --dedup_key--> words --hash_word--> 64-bit words --roll--> shingles --permute, take minima--> signature

Broder, "On the resemblance and containment of documents" (1997): the share of places in which two signatures agree
estimates the Jaccard similarity of the two shingle sets, with variance J (1 - J) / k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from webtext.clean.dedup.key import dedup_key

# Odd constants with well-spread bits: the golden ratio's, and the multipliers of SplitMix64 (Steele et al. 2014).
GOLDEN = 0x9E3779B97F4A7C15
MIX_FIRST = 0xBF58476D1CE4E5B9
MIX_SECOND = 0x94D049BB133111EB
MASK = (1 << 64) - 1

STAYS, DUPLICATE, DUPLICATE_OF_TRAIN = 0, 1, 2


def shingles(text: str, width: int) -> list[int]:
    """A 64-bit hash for each `width` consecutive words; of all words when there are fewer; none of no words."""
    words = [hash_word(word.encode()) for word in dedup_key(text).split()]
    windows = [words[start : start + width] for start in range(max(1, len(words) - width + 1))]
    return [hash_window(window) for window in windows if window]


def hash_word(word: bytes) -> int:
    """Eight bytes at a time, little-endian, padded with zeros."""
    value = GOLDEN
    for start in range(0, len(word), 8):
        value = ((value ^ int.from_bytes(word[start : start + 8], "little")) * MIX_FIRST) & MASK
        value ^= value >> 32
    return value


def hash_window(words: Sequence[int]) -> int:
    """A polynomial in the words, so that the native scan can roll it, then mixed."""
    value = 0
    for word in words:
        value = (value * GOLDEN + word) & MASK
    return mix(value)


def mix(value: int) -> int:
    """SplitMix64's finalizer."""
    value = ((value ^ value >> 30) * MIX_FIRST) & MASK
    value = ((value ^ value >> 27) * MIX_SECOND) & MASK
    return value ^ value >> 31


def permutations(count: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Odd factors and increments of x -> a * x + b mod 2^32, each a permutation of the 32-bit numbers."""
    random = [mix(GOLDEN * (i + 1) & MASK) for i in range(count)]
    a = np.array([value >> 32 | 1 for value in random], np.uint32)
    return a, np.array([value & 0xFFFFFFFF for value in random], np.uint32)


def signature(text: str, width: int, count: int) -> npt.NDArray[np.uint8]:
    """The low 8 bits of each permutation's minimum over the shingles' high halves; all ones of no shingle.

    Two differing minima agree in these bits once in 256, which adds (1 - J) / 256 to the expected agreement
    (Li and König, "b-bit minwise hashing", 2010): no pair is missed for it.
    """
    values = np.array([value >> 32 for value in shingles(text, width)], np.uint32)
    a, b = permutations(count)
    minima: npt.NDArray[np.uint32] = (values[:, None] * a + b).min(axis=0, initial=0xFFFFFFFF)
    return minima.astype(np.uint8)


def shingle_set(text: str, width: int) -> npt.NDArray[np.uint64]:
    """The distinct shingles, sorted."""
    return np.unique(np.array(shingles(text, width), np.uint64))


def jaccard(left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64]) -> float:
    """|left and right| / |left or right| of two sets; 0 when both are empty.

    >>> jaccard(np.array([1, 2, 3], np.uint64), np.array([2, 3, 4], np.uint64))
    0.5
    """
    both = len(np.intersect1d(left, right, assume_unique=True))
    either = len(left) + len(right) - both
    return both / either if either else 0.0


@dataclass(slots=True)
class Verdicts:
    """For each node: its fate, the node that stays in its place (-1: itself), exact Jaccard with that node."""

    fate: list[int]
    stays: list[int]
    similarity: list[float]


def settle(
    signatures: npt.NDArray[np.uint8],
    buckets: npt.NDArray[np.int32],
    sets: Sequence[npt.NDArray[np.uint64]],
    n_train: int,
    threshold: float,
    min_agreement: int,
) -> Verdicts:
    """Decide which nodes stay, from all edges at once (the native twin looks only at those it needs).

    Nodes are in priority order, the first `n_train` of train, the others of validation. An edge joins two nodes that
    share a bucket, agree in `min_agreement` places and whose Jaccard is at least `threshold`.
    """
    edges = _edges(signatures, buckets, sets, threshold, min_agreement)
    verdicts = Verdicts([STAYS] * len(sets), [-1] * len(sets), [0.0] * len(sets))

    def visit(nodes: Sequence[int]) -> None:
        """In priority order, drop a node if and only if it has an edge to one that stays."""
        kept: set[int] = set()
        for node in nodes:
            near = [(-similarity, other) for other, similarity in edges[node].items() if other in kept]
            if near:
                similarity, other = min(near)
                verdicts.fate[node], verdicts.stays[node], verdicts.similarity[node] = DUPLICATE, other, -similarity
            else:
                kept.add(node)

    visit(range(n_train))
    for component in _components(edges):
        kept_train = [node for node in component if node < n_train and verdicts.fate[node] == STAYS]
        for node in component:
            if kept_train and node >= n_train:
                near = [(-edges[node][other], other) for other in kept_train if other in edges[node]]
                # One that is joined to the cluster only through others is said to be a duplicate of the cluster's first.
                other = min(near)[1] if near else kept_train[0]
                verdicts.fate[node], verdicts.stays[node] = DUPLICATE_OF_TRAIN, other
                verdicts.similarity[node] = jaccard(sets[node], sets[other])
    visit([node for node in range(n_train, len(sets)) if verdicts.fate[node] == STAYS])
    return verdicts


def _edges(
    signatures: npt.NDArray[np.uint8],
    buckets: npt.NDArray[np.int32],
    sets: Sequence[npt.NDArray[np.uint64]],
    threshold: float,
    min_agreement: int,
) -> list[dict[int, float]]:
    edges: list[dict[int, float]] = [{} for _ in sets]
    for left in range(len(sets)):
        for right in range(left):
            shared = set(buckets[left].tolist()) & set(buckets[right].tolist()) - {-1}
            if not shared or (signatures[left] == signatures[right]).sum() < min_agreement:
                continue
            similarity = jaccard(sets[left], sets[right])
            if similarity >= threshold:
                edges[left][right] = edges[right][left] = similarity
    return edges


def _components(edges: Sequence[dict[int, float]]) -> list[list[int]]:
    seen: set[int] = set()
    components = []
    for start in range(len(edges)):
        component, waiting = [], [start]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                component.append(node)
                waiting.extend(edges[node])
        components.append(sorted(component))
    return components
