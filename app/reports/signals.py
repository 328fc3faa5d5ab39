"""Histograms of signals for kept and dropped documents, and the effect of moved rules, each in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.app.inspect.trace import thresholds_of
from webtext.base.parts.partset import Part, PartSet
from webtext.clean.rules.thresholds import RULES

BOUNDS = np.array([round(8 * 1.5**i) for i in range(28)], np.float64)
"""Upper bounds of the bins in words; geometric, so that short and long documents both show."""
COUNT_BOUNDS = np.concatenate([np.arange(10), np.unique(np.round(np.geomspace(10, 10_000, 20)))])
RATIO_BOUNDS = np.round(np.linspace(0, 1, 41), 3)
LENGTH_BOUNDS = np.linspace(0, 20, 41)

FACTORS = (0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 2.0)
"""Multiples of the present threshold."""


def moved_rules(signals: PartSet | None, corpus: PartSet | None, dropped: PartSet | None) -> list[dict[str, Any]]:
    """Return how many documents each rule of the corpus drops at other thresholds; empty without signals.

    `drops` counts the documents on the rule's wrong side, also those that another rule names as the reason. `alone` are
    those that nothing else drops: no other rule, vote, language or removal list. `moved` has
    [threshold, documents dropped] for each of FACTORS. A document that couldn't be measured isn't counted.
    """
    thresholds = thresholds_of(corpus)
    if signals is None or not thresholds:
        return []
    columns = list(dict.fromkeys(RULES[name].column for name in thresholds))
    alone = dict.fromkeys(thresholds, 0)
    moved = {name: np.zeros(len(FACTORS), np.int64) for name in thresholds}
    for part in signals.parts:
        gone = _dropped(dropped, part.index)
        elsewhere = gone.filter(pc.invert(pc.is_in(gone["reason"], pa.array(list(thresholds)))))["id"].combine_chunks()
        for batch in _measured(signals, part, ["id", *columns]):
            is_elsewhere = pc.is_in(batch.column("id"), elsewhere).to_numpy(zero_copy_only=False)
            values = {name: batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64) for name in columns}
            drops = {}
            for name, threshold in thresholds.items():
                of_rule = values[RULES[name].column]
                drops[name] = _drops(name, of_rule, threshold)
                moved[name] += [int(_drops(name, of_rule, factor * threshold).sum()) for factor in FACTORS]
            is_alone = (np.sum(list(drops.values()), axis=0) == 1) & ~is_elsewhere
            for name, mask in drops.items():
                alone[name] += int((mask & is_alone).sum())
    return [
        {
            "rule": name,
            "column": RULES[name].column,
            "bound": RULES[name].bound,
            "threshold": threshold,
            "drops": int(moved[name][FACTORS.index(1.0)]),
            "alone": alone[name],
            "moved": [[factor * threshold, n] for factor, n in zip(FACTORS, moved[name].tolist(), strict=True)],
        }
        for name, threshold in thresholds.items()
    ]


def _dropped(dropped: PartSet | None, index: int) -> pa.Table:
    """Return id and reason of the documents dropped from part `index`; a set without them has another number of parts."""
    if dropped is not None and (parts := [part for part in dropped.parts if part.index == index]):
        return dropped.table(parts[0], ["id", "reason"])
    return pa.table({name: pa.array([], pa.string()) for name in ("id", "reason")})


def _measured(signals: PartSet, part: Part, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, but leave out documents that failed: their zeros mean nothing."""
    for batch in signals.batches(part, ["failed", *columns]):
        yield batch.filter(batch["failed"].is_null())


def _drops(name: str, values: npt.NDArray[np.float64], threshold: float) -> npt.NDArray[np.bool_]:
    """Return which values the rule drops; an unknown one (NaN) isn't."""
    dropped: npt.NDArray[np.bool_] = values < threshold if RULES[name].bound == "min" else values > threshold
    return dropped


def bounds_of(column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the upper bounds of a column's bins, ascending; higher values count in the last bin."""
    if column == "n_words":
        return BOUNDS
    if column.startswith("n_"):
        return COUNT_BOUNDS
    return LENGTH_BOUNDS if column == "mean_word_length" else RATIO_BOUNDS


def histograms(
    signals: PartSet | None, dropped: PartSet | None, thresholds: Mapping[str, float]
) -> tuple[list[dict[str, Any] | None], int]:
    """Return the histograms, and the characters of the documents kept; ([None], 0) without signals.

    Each has `column`, `bins` of [upper bound, kept, dropped], and `thresholds` of [rule, threshold].
    The columns are n_words, language_score, and those of the rules in `thresholds`. A document whose value is unknown is in
    no bin, nor is one that couldn't be measured. Part n of the signals has the same documents as part n of dropped.
    """
    if signals is None or dropped is None:
        return [None], 0
    columns = list(dict.fromkeys(["n_words", "language_score", *(RULES[name].column for name in thresholds)]))
    counts = {name: np.zeros((2, len(bounds_of(name))), np.int64) for name in columns}
    n_characters = 0
    for part in signals.parts:
        gone = _dropped(dropped, part.index)["id"].combine_chunks()
        for batch in _measured(signals, part, ["id", "n_characters", *columns]):
            is_gone = pc.is_in(batch.column("id"), gone).to_numpy(zero_copy_only=False)
            n_characters += int(batch.column("n_characters").to_numpy()[~is_gone].sum())
            for name in columns:
                _count(counts[name], bounds_of(name), batch.column(name), is_gone)
    found: list[dict[str, Any] | None] = [
        {
            "column": name,
            "bins": [list(each) for each in zip(bounds_of(name).tolist(), *counts[name].tolist(), strict=True)],
            "thresholds": [[rule, value] for rule, value in thresholds.items() if RULES[rule].column == name],
        }
        for name in columns
    ]
    return found, n_characters


def _count(counts: Any, bounds: Any, column: pa.Array, is_gone: Any) -> None:
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    known = ~np.isnan(values)
    bins = np.minimum(np.searchsorted(bounds, values), len(bounds) - 1)
    for side, mask in enumerate((known & ~is_gone, known & is_gone)):
        counts[side] += np.bincount(bins[mask], minlength=len(bounds))
