"""Histograms of the signals, of kept and dropped documents, from one pass over the signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.parts.partset import PartSet
from webtext.clean.rules.thresholds import RULES

FIRST_BOUND, BOUND_RATIO, BINS = 8, 1.5, 28
BOUNDS = np.array([round(FIRST_BOUND * BOUND_RATIO**i) for i in range(BINS)], np.float64)
"""Upper bounds of the bins in words; geometric, so that short and long documents both show."""
COUNT_BOUNDS = np.concatenate([np.arange(10), np.unique(np.round(np.geomspace(10, 10_000, 20)))])
RATIO_BOUNDS = np.round(np.linspace(0, 1, 41), 3)
LENGTH_BOUNDS = np.linspace(0, 20, 41)


def bounds_of(column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the upper bounds of a column's bins, ascending; what is above the last counts in the last."""
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
    no bin. Part n of the signals has the same documents as part n of dropped.
    """
    if signals is None or dropped is None:
        return [None], 0
    columns = list(dict.fromkeys(["n_words", "language_score", *(RULES[name].column for name in thresholds)]))
    by_index = {part.index: part for part in dropped.parts}
    counts = {name: np.zeros((2, len(bounds_of(name))), np.int64) for name in columns}
    n_characters = 0
    for part in signals.parts:
        rows = dropped.table(by_index[part.index], ["id"]).column("id").to_pylist() if part.index in by_index else []
        gone = pa.array(rows, pa.string())
        for batch in signals.batches(part, ["id", "n_characters", *columns]):
            is_gone = pc.is_in(batch.column("id"), gone).to_numpy(zero_copy_only=False)
            n_characters += int(batch.column("n_characters").to_numpy()[~is_gone].sum())
            for name in columns:
                _count(counts[name], bounds_of(name), batch.column(name), is_gone)
    found: list[dict[str, Any] | None] = [
        {
            "column": name,
            "bins": _rows(bounds_of(name), counts[name]),
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


def _rows(bounds: Any, counts: Any) -> Sequence[list[float]]:
    return [[float(bound), int(kept), int(gone)] for bound, kept, gone in zip(bounds, *counts, strict=True)]
