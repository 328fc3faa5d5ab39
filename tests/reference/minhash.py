"""MinHash and the rule of which documents are kept: the readable twin of `clean/native/minhash/`, with equal results.

    text --dedup_key--> words --hash_word--> 64-bit words --roll--> shingles --permute, take minima--> signature

Broder, "On the resemblance and containment of documents" (1997): the share of places in which two signatures agree
estimates the Jaccard similarity of the two shingle sets, with variance J (1 - J) / k.

A signature has the hash values of a datasketch 2 `MinHash` with its default scheme (affine32) and seed (1), whose hash
function is `hash_shingle`:

    minhash = MinHash(num_perm=128, hashfunc=hash_shingle)
    minhash.update_batch(word_shingles(text, 5))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from reference.words import dedup_key, ngrams_of

from webtext.clean.dedup.sign import permutations

# Odd constants with well-spread bits: the golden ratio's, and the multipliers of SplitMix64 (Steele et al. 2014).
GOLDEN = 0x9E3779B97F4A7C15
MIX_FIRST = 0xBF58476D1CE4E5B9
MIX_SECOND = 0x94D049BB133111EB
MASK = (1 << 64) - 1

KEPT, DUPLICATE, DUPLICATE_OF_TRAIN = 0, 1, 2


def shingles(text: str, width: int) -> list[int]:
    """Return a 64-bit hash per n-gram of `width` words; a single hash of all words if there are fewer, [] if none."""
    return [_hash(shingle) for shingle in word_shingles(text, width)]


def hash_shingle(shingle: str) -> int:
    """Return the 32 bits of a shingle's hash that are signed, the high half: a `hashfunc` for datasketch's `MinHash`."""
    return _hash(shingle) >> 32


def _hash(shingle: str) -> int:
    return hash_window([hash_word(word.encode()) for word in shingle.split()])


def hash_word(word: bytes) -> int:
    """Hash a word eight bytes at a time, little-endian, padded with zeros."""
    value = GOLDEN
    for start in range(0, len(word), 8):
        value = ((value ^ int.from_bytes(word[start : start + 8], "little")) * MIX_FIRST) & MASK
        value ^= value >> 32
    return value


def hash_window(words: Sequence[int]) -> int:
    """Hash a window of words as a polynomial, so that the native scan can roll it, and mix the result."""
    value = 0
    for word in words:
        value = (value * GOLDEN + word) & MASK
    return mix(value)


def mix(value: int) -> int:
    """Apply SplitMix64's finalizer."""
    value = ((value ^ value >> 30) * MIX_FIRST) & MASK
    value = ((value ^ value >> 27) * MIX_SECOND) & MASK
    return value ^ value >> 31


def signature(text: str, width: int, count: int) -> npt.NDArray[np.uint32]:
    """Return each permutation's minimum over the shingles, uint32 [count]; all bits are set without shingles.

    Like datasketch, this applies MurmurHash3's finalizer to the 32-bit hashes before it permutes them.
    """
    values = np.array([hash_shingle(shingle) for shingle in word_shingles(text, width)], np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        values = (values ^ values >> np.uint32(shift)) * np.uint32(factor)
    a, b = permutations(count)
    minima: npt.NDArray[np.uint32] = (values[:, None] * a + b).min(axis=0, initial=0xFFFFFFFF)
    return minima


def word_shingles(text: str, width: int) -> list[str]:
    """Return the shingles as text: n-grams of `width` words, or all words if there are fewer.

    >>> word_shingles("A rose is -- a ROSE!", 4)
    ['a rose is a', 'rose is a rose']
    """
    whole = dedup_key(text)
    return ngrams_of(text, width) or ([whole] if whole else [])


def shingle_set(text: str, width: int) -> npt.NDArray[np.uint64]:
    """Return the distinct shingle hashes, sorted."""
    return np.unique(np.array(shingles(text, width), np.uint64))


def jaccard(left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64]) -> float:
    """Return |left and right| / |left or right| of two sorted sets; 0 if both are empty.

    >>> jaccard(np.array([1, 2, 3], np.uint64), np.array([2, 3, 4], np.uint64))
    0.5
    """
    both = len(np.intersect1d(left, right, assume_unique=True))
    either = len(left) + len(right) - both
    return both / either if either else 0.0


@dataclass(slots=True)
class Verdicts:
    """For each node: the decision, the node that is kept in its place (-1: itself), exact Jaccard with that node."""

    decision: list[int]
    kept: list[int]
    similarity: list[float]


def settle(
    signatures: npt.NDArray[np.uint8],
    buckets: npt.NDArray[np.int32],
    sets: Sequence[npt.NDArray[np.uint64]],
    n_train: int,
    threshold: float,
    min_agreement: int,
    fixed: Sequence[bool] = (),
) -> Verdicts:
    """Decide which nodes are kept, from all edges (the native twin computes only the edges that it needs).

    Nodes are in priority order: first `n_train` train nodes, then the validation nodes. Two nodes have an edge if they
    share a bucket, their signatures agree in `min_agreement` places, and their Jaccard is at least `threshold` (two
    empty sets have 0). Here buckets remember all their nodes; a full native bucket (`bucket_limit`) ignores later
    nodes, so their edges in that bucket are missing.

    A train node is dropped if and only if it has an edge to a train node that is kept, or to a fixed validation node. A
    validation node is dropped if a path of edges through validation leads to a train node that is kept or was dropped
    for a train node. The other validation nodes are then decided like train nodes. `fixed` nodes are in an index and
    are kept.

    Each dropped node names a node that is kept. Ties go to the first in priority:

    1. A node with edges to kept nodes names the most similar one (a validation node: the most similar of train).
    2. A validation node whose edges to train lead only to dropped nodes takes the name that the first of these has.
    3. A validation node that is joined to train only through other validation nodes takes the first of the names that
       its component has by 1 and 2. In 2 and 3 there need be no edge to the named node, so its similarity may be low.
    """
    edges = _edges(signatures, buckets, sets, threshold, min_agreement)
    verdicts = Verdicts([KEPT] * len(sets), [-1] * len(sets), [0.0] * len(sets))
    indexed = {node for node, is_fixed in enumerate(fixed) if is_fixed}

    def visit(nodes: Sequence[int]) -> None:
        """Visit nodes in priority order; drop a node if and only if it has an edge to one that is kept."""
        kept = set(indexed)
        for node in nodes:
            if node in indexed:
                continue
            near = [(-similarity, other) for other, similarity in edges[node].items() if other in kept]
            if near:
                similarity, other = min(near)
                verdicts.decision[node], verdicts.kept[node], verdicts.similarity[node] = DUPLICATE, other, -similarity
            else:
                kept.add(node)

    def train_near(node: int) -> int | None:
        """Return the train node that a validation node names because of its own edges to train, by rules 1 and 2."""
        train = sorted(other for other in edges[node] if other < n_train and verdicts.kept[other] < n_train)
        kept = [other for other in train if verdicts.decision[other] == KEPT]
        if kept:
            return min(kept, key=lambda other: (-edges[node][other], other))
        return verdicts.kept[train[0]] if train else None

    visit(range(n_train))
    for component in _components(edges, [node for node in range(n_train, len(sets)) if node not in indexed]):
        named = {node: train for node in component if (train := train_near(node)) is not None}
        for node in component if named else ():
            other = named.get(node, min(named.values()))
            verdicts.decision[node], verdicts.kept[node] = DUPLICATE_OF_TRAIN, other
            verdicts.similarity[node] = jaccard(sets[node], sets[other])
    visit([node for node in range(n_train, len(sets)) if verdicts.decision[node] == KEPT])
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


def _components(edges: Sequence[dict[int, float]], nodes: Sequence[int]) -> list[list[int]]:
    """Return the connected components of `nodes`, using only edges between two of them."""
    among, seen = set(nodes), set[int]()
    components = []
    for start in nodes:
        component, waiting = [], [start]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                component.append(node)
                waiting.extend(other for other in edges[node] if other in among)
        components.append(component)
    return components
