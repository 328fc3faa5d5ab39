"""What each rule drops, and what it would drop if its threshold were moved: exact counts, from one pass over the signals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.base.config import from_table
from webtext.base.errors import ConfigError
from webtext.base.parts.partset import PartSet
from webtext.clean.rules.thresholds import RULES, RuleSettings

FACTORS = (0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 2.0)
"""Of the present threshold."""


def thresholds_of(corpus: PartSet | None) -> dict[str, float]:
    """Return the thresholds that a corpus was made with, by rule; empty for unknown rules of another version."""
    recorded = corpus.recipe["settings"].get("rules") if corpus is not None else None
    try:
        return from_table(RuleSettings, recorded, "clean.rules").thresholds() if isinstance(recorded, dict) else {}
    except ConfigError:
        return {}


def moved_rules(signals: PartSet | None, corpus: PartSet | None) -> list[dict[str, Any]]:
    """Return for each rule of the corpus what it drops at other thresholds; empty without signals.

    `drops` counts the documents on the rule's wrong side, also those that another rule names as the reason. `alone` are
    those that no other rule drops. `moved` has [threshold, documents dropped] for each of FACTORS.
    """
    thresholds = thresholds_of(corpus)
    if signals is None or not thresholds:
        return []
    columns = list(dict.fromkeys(RULES[name].column for name in thresholds))
    alone = dict.fromkeys(thresholds, 0)
    moved = {name: np.zeros(len(FACTORS), np.int64) for name in thresholds}
    for part in signals.parts:
        for batch in signals.batches(part, columns):
            values = {name: batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64) for name in columns}
            dropped = {}
            for name, threshold in thresholds.items():
                of_rule = values[RULES[name].column]
                dropped[name] = _drops(name, of_rule, threshold)
                moved[name] += [int(_drops(name, of_rule, factor * threshold).sum()) for factor in FACTORS]
            n_rules = np.sum(list(dropped.values()), axis=0)
            for name, mask in dropped.items():
                alone[name] += int((mask & (n_rules == 1)).sum())
    return [
        {
            "rule": name,
            "column": RULES[name].column,
            "bound": RULES[name].bound,
            "threshold": threshold,
            "drops": int(moved[name][FACTORS.index(1.0)]),
            "alone": alone[name],
            "moved": [[factor * threshold, int(n)] for factor, n in zip(FACTORS, moved[name], strict=True)],
        }
        for name, threshold in thresholds.items()
    ]


def _drops(name: str, values: npt.NDArray[np.float64], threshold: float) -> npt.NDArray[np.bool_]:
    """Return which values the rule drops; an unknown one (NaN) isn't."""
    dropped: npt.NDArray[np.bool_] = values < threshold if RULES[name].bound == "min" else values > threshold
    return dropped
