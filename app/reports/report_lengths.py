"""Histogram of document lengths, kept and dropped, with the thresholds of the length rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import ConfigError
from webtext.base.parts.partset import PartSet

FIRST_BOUND = 8
BOUND_RATIO = 1.5
BINS = 28
BOUNDS = np.array([round(FIRST_BOUND * BOUND_RATIO**i) for i in range(BINS)])
"""Upper bounds of the bins in words; geometric, so that short and long documents both show."""


def length_histogram(signals: PartSet | None, dropped: PartSet | None, corpus: PartSet | None) -> dict[str, Any] | None:
    """Return [upper bound, kept, dropped] per bin and the thresholds on the same axis; None without signals.

    Part n of the signals has the same documents as part n of dropped.
    """
    if signals is None or dropped is None:
        return None
    by_index = {part.index: part for part in dropped.parts}
    counts = np.zeros((2, BINS), np.int64)
    n_characters = 0
    for part in signals.parts:
        rows = signals.table(part, ["id", "n_words", "n_characters"])
        gone = dropped.table(by_index[part.index], ["id"]).column("id").to_pylist() if part.index in by_index else []
        is_gone = pc.is_in(rows.column("id"), pa.array(gone, pa.string())).to_numpy()
        bins = np.minimum(np.searchsorted(BOUNDS, rows.column("n_words").to_numpy()), BINS - 1)
        for side, mask in enumerate((~is_gone, is_gone)):
            counts[side] += np.bincount(bins[mask], minlength=BINS)
        n_characters += int(rows.column("n_characters").to_numpy()[~is_gone].sum())
    return {
        "bins": [[int(bound), int(kept), int(gone)] for bound, kept, gone in zip(BOUNDS, *counts, strict=True)],
        "thresholds": _word_thresholds(corpus),
        "kept_characters": n_characters,
    }


def _word_thresholds(corpus: PartSet | None) -> list[tuple[str, float]]:
    """Return the word-count thresholds that the corpus was made with."""
    from webtext.clean.rules.thresholds import RULES, RuleSettings

    recorded = corpus.recipe["settings"].get("rules") if corpus else None
    if recorded is None:
        return []
    try:
        rules = RuleSettings(profile=recorded["profile"], rule=tuple(recorded["rule"]))
    except ConfigError:
        return []  # rules of another version: unknown names
    return [(reason, value) for reason, value in rules.thresholds().items() if RULES[reason].column == "n_words"]
