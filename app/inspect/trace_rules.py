"""Apply a build's rules to one document: measured value, threshold, and whether the rule drops it."""

from __future__ import annotations

from typing import Any

from webtext.app.inspect.lookup import find_rows
from webtext.base.config import from_table
from webtext.base.parts.partset import PartSet
from webtext.clean.rules.thresholds import RULES, RuleSettings


def rules_of(signals: PartSet | None, corpus: PartSet | None, identifier: str) -> list[dict[str, Any]]:
    """Return one row per rule of the corpus's recipe: rule, column, value, bound ('min' or 'max'), threshold, drops.

    Empty when the build has no signals or applied no rules.
    """
    settings = corpus.recipe["settings"].get("rules") if corpus is not None else None
    row = next(find_rows(signals, "id", [identifier]), None)
    if row is None or not isinstance(settings, dict):
        return []
    thresholds = from_table(RuleSettings, settings, "clean.rules").thresholds()
    return [_said(row, reason, threshold) for reason, threshold in thresholds.items()]


def _said(row: dict[str, Any], reason: str, threshold: float) -> dict[str, Any]:
    rule = RULES[reason]
    value = row[rule.column]
    drops = value < threshold if rule.bound == "min" else value > threshold
    return {
        "rule": reason,
        "column": rule.column,
        "value": value,
        "bound": rule.bound,
        "threshold": threshold,
        "drops": drops,
    }
