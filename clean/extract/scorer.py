"""The block scorer: decides which blocks of a page are its text, by gradient-boosted trees over `features.py`.

Trees of a first stage estimate each block's probability to be text. Those of a second stage also see the estimates for
the blocks around it. Then the blocks are kept that maximise the expected F1 of words: all above half of the F1 that is
reached (Lipton et al. 2014, "Optimal thresholding of classifiers to maximize F1 measure", theorem 1).

The model (`model.json`, made by `tests/learn/extractor.py`) contains names, words and numbers, and no code.
Trees have at most 16 leaves, so that a tree is evaluated for all blocks at once by bit masks (QuickScorer, Lucchese et
al. 2015): each split that sends a block to the right removes the leaves on its left, and the first leaf that is left is
the block's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.clean.extract.blocks import Blocks
from webtext.clean.extract.features import TAG_NUMBER, PageFeatures
from webtext.clean.extract.kinds import KINDS, kind_probabilities
from webtext.clean.extract.layout import MAX_CELL

Array = npt.NDArray[Any]

MAX_LEAVES = 16  # as many as the bits of a uint16, so that one tree takes one word per block
CHUNK = 2000  # blocks that are scored at a time; bounds memory
LEAST_ARTICLE = 0.6
"""Least probability of a kept block on articles: lines of other articles are as likely as not on many pages.

.7 loses .004 of F1 on WCXB's pages; .55 gains .0003 on trafilatura's and loses .0007 on WCXB's (docs/tried/clean.md).
"""

UNBOUND = [TAG_NUMBER[tag] for tag in ("h1", "h2", "h3", "h4", "h5", "h6", "td", "th", "pre")]
"""Headings, cells and code need no least probability: they are kept with the text around them."""
EPSILON = 1e-4  # keeps odds finite


@dataclass(frozen=True, slots=True)
class Trees:
    """Boosted trees: splits [n_trees, n_splits] (feature, threshold, leaves that remain on the right), leaves' values."""

    feature: Array
    threshold: Array
    remaining: Array
    value: Array

    def probabilities(self, features: Array) -> Array:
        """Return a probability for each row of `features`, float32 [n, n_features]."""
        rows = (features[i : i + CHUNK] for i in range(0, len(features), CHUNK))
        totals = np.concatenate([self._totals(each) for each in rows])
        return np.asarray(1 / (1 + np.exp(-totals)))

    def _totals(self, features: Array) -> Array:
        columns, leaves = np.ascontiguousarray(features.T), np.uint16(0xFFFF)
        splits = (self.feature.T, self.threshold.T[:, :, None], self.remaining.T[:, :, None])
        for feature, threshold, remaining in zip(*splits, strict=True):  # one split of every tree at a time
            leaves = leaves & (remaining | -(columns[feature] <= threshold).astype(np.uint16))
        first = np.ascontiguousarray(_LOWEST_BIT[leaves].T)
        return np.asarray(self.value[np.arange(len(self.value)), first].sum(axis=1, dtype=np.float64))


_LOWEST_BIT = np.zeros(1 << MAX_LEAVES, np.uint8)
for _bit in range(MAX_LEAVES):
    _LOWEST_BIT[1 << _bit :: 1 << (_bit + 1)] = _bit


@dataclass(frozen=True)
class ScoredPage:
    """A page with the probability of each block to be its text, and of the page to be of each kind."""

    page: PageFeatures
    probability: Array
    kinds: Mapping[str, float]

    @property
    def kind(self) -> str:
        """The likeliest kind."""
        return max(self.kinds, key=self.kinds.__getitem__)

    @cached_property
    def cuts(self) -> Array:
        """The least probability of a kept block, float [n_blocks]."""
        is_prose = ~np.isin(self.page.tag, UNBOUND)
        least = np.where(is_prose, LEAST_ARTICLE * self.kinds["article"], 0.0)
        return cuts(self.probability, self.page.n_words, least)

    @property
    def kept(self) -> Array:
        """Which blocks are kept, bool [n_blocks]."""
        return np.asarray(self.probability >= self.cuts)

    def undecided(self, weight: float) -> float:
        """Return the words of blocks that an opinion of this weight can tip, relative to those expected; more on articles."""
        is_near = np.abs(np.log(_odds(self.probability) / _odds(self.cuts))) < weight
        n, counting = self.page.n_words, 0.5 + self.kinds["article"]
        return float(counting * (n * is_near).sum() / max((n * self.probability).sum(), 1.0))

    def with_opinion(self, shares: Array, weight: float) -> ScoredPage:
        """Return the page with each block's log odds moved by weight * (2 * share - 1)."""
        odds = _odds(self.probability) * np.exp(weight * (2 * shares - 1))
        return ScoredPage(self.page, whole_tables(self.page.found, odds / (1 + odds), self.page.n_words), self.kinds)


@dataclass(frozen=True, slots=True)
class Scorer:
    """The weights of names, words and facts, and the trees of both stages."""

    names: Mapping[str, float]
    words: Mapping[str, float]
    facts: Mapping[str, Sequence[float]]
    sizes: Array
    stages: tuple[Trees, Trees]

    def judge(self, found: Blocks, title: str, descriptions: Sequence[str], facts: set[str]) -> ScoredPage:
        """Return which of the blocks are the page's text; the page has at least one."""
        page = PageFeatures(found)
        columns = self.columns(page, title, descriptions, facts)
        probability = self.stages[0].probabilities(matrix(columns))
        probability = self.stages[1].probabilities(matrix(columns | page.judged(probability)))
        # Two stages, because a block is judged by its neighbours: whether they are text, not only what they look like.
        probability = whole_tables(found, probability, page.n_words)
        return ScoredPage(page, probability, {name: columns[f"kind_{name}"][0] for name in KINDS})

    def columns(self, page: PageFeatures, title: str, descriptions: Sequence[str], facts: set[str]) -> dict[str, Array]:
        """Return the features of the first stage, by name."""
        columns = page.described(title, descriptions, self.names, self.words)
        kinds = kind_probabilities(facts, sizes_of(columns), self.facts, self.sizes)
        return columns | {f"kind_{name}": np.full(page.n_blocks, p) for name, p in zip(KINDS, kinds, strict=True)}


def sizes_of(columns: Mapping[str, Array]) -> Array:
    """Return the features that describe the page and not a block."""
    return np.array([values[0] for name, values in columns.items() if name.startswith("page_")])


def matrix(columns: Mapping[str, Array]) -> Array:
    """Return features as float32 [n_blocks, n_features], in the order of their names in `columns`."""
    return np.array(list(columns.values()), np.float32).T


def whole_tables(found: Blocks, probability: Array, n_words: Array) -> Array:
    """Return the probabilities with one for all blocks of a table, the mean over its words: half a table is wrong data.

    A table with a cell of more than MAX_CELL characters, or with a table in it, is layout: its blocks stay as they are.
    """
    if all(container.tag != "table" for container in found.containers):
        return probability
    tables = [-1] * len(found.containers)
    layouts = set()
    for i, container in enumerate(found.containers):
        above = tables[container.parent] if container.parent >= 0 else -1
        tables[i] = i if container.tag == "table" else above
        if container.tag == "table" and above >= 0:
            layouts.add(above)
    of_block = np.array([tables[block.container] if block.container >= 0 else -1 for block in found.blocks])
    layouts |= {int(t) for t, block in zip(of_block, found.blocks, strict=True) if len(block.text) > MAX_CELL}
    of_block[np.isin(of_block, sorted(layouts))] = -1
    _, place = np.unique(of_block, return_inverse=True)
    means = np.bincount(place, probability * n_words) / np.bincount(place, n_words)
    return np.asarray(np.where(of_block < 0, probability, means[place]))


def cuts(probability: Array, n_words: Array, least: Array | float = 0.0) -> Array:
    """Return the probability from which each block is kept, float [n], so that the expected F1 of words is the highest.

    It is at least `least`, if any block reaches that: a number, or one for each block, 0 for no bound.

    >>> cuts(np.array([0.9, 0.3, 0.1]), np.array([100, 100, 100])).round(2).tolist()
    [0.39, 0.39, 0.39]
    >>> cuts(np.array([0.4, 0.3, 0.1]), np.array([100, 100, 100])).round(2).tolist()
    [0.25, 0.25, 0.25]
    """
    order = np.argsort(-probability, kind="stable")
    taken, right = np.cumsum(n_words[order]), np.cumsum((n_words * probability)[order])
    best = np.max(2 * right / (taken + right[-1]))
    bound = np.broadcast_to(least, probability.shape)
    reaches = (probability >= bound)[bound > 0].any()
    return np.asarray(np.maximum(best / 2, bound * reaches))


def _odds(probability: Array) -> Array:
    return np.asarray((probability + EPSILON) / (1 - probability + EPSILON))


@cache
def scorer() -> Scorer:
    """Return the scorer that comes with the package."""
    return read_scorer(_model().decode())


def model_digest() -> str:
    """Return the SHA-256 of the model that comes with the package."""
    return hashlib.sha256(_model()).hexdigest()


def _model() -> bytes:
    return files("webtext.clean.extract").joinpath("model.json").read_bytes()


def read_scorer(text: str) -> Scorer:
    """Return the scorer of a model file's text."""
    given = json.loads(text)
    types = {"feature": np.int64, "threshold": np.float32, "remaining": np.uint16, "value": np.float32}
    first, second = (Trees(**{name: np.array(stage[name], types[name]) for name in types}) for stage in given["stages"])
    return Scorer(given["names"], given["words"], given["facts"], np.array(given["sizes"]), (first, second))
