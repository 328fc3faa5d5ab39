"""Two baselines that a model must beat: unigram and interpolated bigram tables, counted on the training tokens.

unigram   p(w) = (c(w) + 1) / (n + V)                                       add-one
bigram    p(w | h) = k c(h, w) / c(h) + (1 - k) p(w), k by the size of c(h)   Jelinek & Mercer 1980

The weights k, one for each power of two of c(h), are fitted by EM on the scored tokens themselves. These twenty or so
numbers favour the bigram, so a model with a lower loss is certainly better. Only pairs that are scored are counted, so
memory is bounded by the vocabulary and the scored tokens, whatever the size of the training set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.train.data.windows import Tokens, Windows

EM_ROUNDS = 100
TOKENS_AT_ONCE = 2**22
_Counts = npt.NDArray[np.int64]


def count_baselines(streams: Sequence[Tokens], windows: Windows, vocab_size: int) -> tuple[float, float]:
    """Count `streams` (the training shards); return the unigram's and the bigram's mean loss in nats per scored token."""
    before, after = (np.concatenate(arrays) for arrays in zip(*windows.pairs(), strict=True))
    pairs, inverse = np.unique(_keys(before, after, vocab_size), return_inverse=True)
    unigrams = np.zeros(vocab_size, np.int64)
    histories = np.zeros(vocab_size, np.int64)
    bigrams = np.zeros(len(pairs), np.int64)
    for stream in streams:
        for start in range(0, len(stream), TOKENS_AT_ONCE):
            chunk = np.asarray(stream[start : start + TOKENS_AT_ONCE + 1], np.int64)
            unigrams += np.bincount(chunk[:TOKENS_AT_ONCE], minlength=vocab_size)
            histories += np.bincount(chunk[:-1], minlength=vocab_size)
            bigrams += _count_known(pairs, _keys(chunk[:-1], chunk[1:], vocab_size))
    p_unigram = (unigrams[after] + 1) / (unigrams.sum() + vocab_size)
    p_bigram = bigrams[inverse] / np.maximum(histories[before], 1)
    p_mixed = _interpolated(p_bigram, p_unigram, histories[before])
    return float(-np.log(p_unigram).mean()), float(-np.log(p_mixed).mean())


def _keys(before: npt.NDArray[Any], after: npt.NDArray[Any], vocab_size: int) -> npt.NDArray[np.uint64]:
    return before.astype(np.uint64) * np.uint64(vocab_size) + after.astype(np.uint64)


def _count_known(pairs: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64]) -> _Counts:
    """Count how often each of the sorted `pairs` occurs in `keys`."""
    keys = np.sort(keys)
    counts: _Counts = np.searchsorted(keys, pairs, side="right") - np.searchsorted(keys, pairs, side="left")
    return counts


def _interpolated(
    p_bigram: npt.NDArray[np.float64], p_unigram: npt.NDArray[np.float64], history_counts: _Counts
) -> npt.NDArray[np.float64]:
    buckets = np.zeros(len(history_counts), np.int64)
    seen = history_counts > 0
    buckets[seen] = np.log2(history_counts[seen]).astype(np.int64) + 1
    sizes = np.bincount(buckets)
    weights = np.where(np.arange(len(sizes)) > 0, 0.5, 0.0)
    for _ in range(EM_ROUNDS):
        part = weights[buckets] * p_bigram
        share = part / (part + (1 - weights[buckets]) * p_unigram)
        weights = np.bincount(buckets, share, minlength=len(sizes)) / np.maximum(sizes, 1)
    mixed: npt.NDArray[np.float64] = weights[buckets] * p_bigram + (1 - weights[buckets]) * p_unigram
    return mixed
