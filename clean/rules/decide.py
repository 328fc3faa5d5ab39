"""Decides from signals which documents to drop, and counts what each rule drops alone and together with the others.

Everything is vectorised: a new threshold doesn't read the texts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.workers.journal import KILLED_WORKER, RAISED
from webtext.clean.language import ALL, LanguageSettings
from webtext.clean.rules.thresholds import RULES, RuleSettings

OTHER_LANGUAGE = "other_language"
UNCERTAIN_LANGUAGE = "uncertain_language"
UNMEASURED = (KILLED_WORKER, RAISED)
"""Why a document has no signals; it then counts as failed, whatever the rules are."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """Row for row with the signals: `rule` is the first rule that drops the row, an index of `reasons`; -1: kept."""

    reasons: tuple[str, ...]
    rule: np.ndarray  # int16
    value: np.ndarray  # float64; NaN if kept or not a number
    threshold: np.ndarray  # float64; NaN if kept or not a number

    @property
    def kept(self) -> np.ndarray:
        """Mask of the rows to keep."""
        return self.rule < 0

    def reason(self, row: int) -> str | None:
        """Return why the row is dropped; None if it is kept."""
        return self.reasons[self.rule[row]] if self.rule[row] >= 0 else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule applied to all rows: which rows it drops, the measured values, the threshold (NaN: not a number)."""

    reason: str
    drops: np.ndarray  # bool
    values: np.ndarray  # float64
    threshold: float


def decide(
    signals: pa.Table, rules: RuleSettings | None, language: LanguageSettings | None, votes: Iterable[Verdict] = ()
) -> Decisions:
    """Return the first rule that drops each row: vote rules first, then the order of `verdicts`."""
    n_rows = signals.num_rows
    found = [*votes, *verdicts(signals, rules, language)]
    decisions = Decisions(
        tuple(verdict.reason for verdict in found),
        np.full(n_rows, -1, np.int16),
        np.full(n_rows, np.nan),
        np.full(n_rows, np.nan),
    )
    for index, verdict in enumerate(found):
        new = verdict.drops & decisions.kept
        decisions.rule[new] = index
        decisions.value[new] = verdict.values[new]
        decisions.threshold[new] = verdict.threshold
    return decisions


def verdicts(signals: pa.Table, rules: RuleSettings | None, language: LanguageSettings | None) -> Iterator[Verdict]:
    """Yield the verdicts on rows without signals, of the language rules, and of the quality rules in order.

    Settings that are None skip their rules.
    """
    for reason in pc.unique(signals["failed"]).drop_null().to_pylist():
        drops = pc.fill_null(pc.equal(signals["failed"], reason), False).to_numpy()
        yield Verdict(reason, drops, np.full(len(drops), np.nan), np.nan)
    if language is not None and ALL not in language.language:
        score = _numbers(signals, "language_score")
        wanted = pc.fill_null(pc.is_in(signals["language"], pa.array(language.language, pa.string())), False)
        yield Verdict(OTHER_LANGUAGE, ~wanted.to_numpy(), score, np.nan)
        minimum = language.min_language_score
        yield Verdict(UNCERTAIN_LANGUAGE, ~(score >= minimum), score, minimum)
    for reason, threshold in (rules.thresholds() if rules is not None else {}).items():
        rule = RULES[reason]
        values = _numbers(signals, rule.column)
        yield Verdict(reason, values < threshold if rule.bound == "min" else values > threshold, values, threshold)


def columns_of(rules: RuleSettings | None, language: LanguageSettings | None) -> list[str]:
    """Return the columns of signals that `verdicts` reads."""
    asked = [] if language is None or ALL in language.language else ["language", "language_score"]
    return [
        "failed",
        *asked,
        *dict.fromkeys(RULES[reason].column for reason in (rules.thresholds() if rules is not None else {})),
    ]


def _numbers(signals: pa.Table, column: str) -> np.ndarray:
    return np.asarray(signals[column].to_numpy(), np.float64)


@dataclass(slots=True)
class RuleYield:
    """The documents that one rule drops: `alone`, as the `first` rule in order that does, and as the `only` one."""

    threshold: float
    alone: int = 0
    first: int = 0
    only: int = 0

    def __add__(self, other: RuleYield) -> RuleYield:
        return RuleYield(self.threshold, self.alone + other.alone, self.first + other.first, self.only + other.only)


@dataclass(frozen=True, slots=True)
class Yields:
    """The yields of all rules; `kept` is the number of documents that no rule drops."""

    documents: int
    kept: int
    rules: dict[str, RuleYield]

    def __add__(self, other: Yields) -> Yields:
        rules = {name: self.rules[name] + each if name in self.rules else each for name, each in other.rules.items()}
        return Yields(self.documents + other.documents, self.kept + other.kept, self.rules | rules)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, rules in order; the threshold is null if it isn't a number."""
        rules = [
            {
                "rule": reason,
                "threshold": None if np.isnan(each.threshold) else each.threshold,
                "dropped_alone": each.alone,
                "dropped_first": each.first,
                "dropped_only": each.only,
            }
            for reason, each in self.rules.items()
        ]
        return {"documents": self.documents, "kept": self.kept, "rules": rules}

    def to_text(self) -> str:
        """Return an aligned table."""
        width = max(map(len, (*self.rules, "all together")))
        lines = [f"{'rule':<{width}}  {'threshold':>9}  {'alone':>22}  {'first':>12}  {'only':>12}"]
        for reason, each in self.rules.items():
            threshold = "" if np.isnan(each.threshold) else f"{each.threshold:g}"
            alone = self._share(each.alone)
            lines.append(f"{reason:<{width}}  {threshold:>9}  {alone:>22}  {each.first:>12,}  {each.only:>12,}")
        together = self._share(self.documents - self.kept)
        lines.append(f"{'all together':<{width}}  {'':>9}  {together:>22}")
        lines.append(f"{self.kept:,} of {self.documents:,} documents are kept")
        return "\n".join(lines)

    def _share(self, n: int) -> str:
        return f"{n:,} ({100 * n / max(1, self.documents):5.2f} %)"


def count_yields(signals: Iterable[pa.Table], rules: RuleSettings | None, language: LanguageSettings | None) -> Yields:
    """Count the yields over tables of signals, one table in memory at a time."""
    return sum((_yields(table, rules, language) for table in signals), Yields(0, 0, {}))


def _yields(table: pa.Table, rules: RuleSettings | None, language: LanguageSettings | None) -> Yields:
    found: dict[str, RuleYield] = {}
    n_drops = np.zeros(table.num_rows, np.uint8)
    drops = {}
    for verdict in verdicts(table, rules, language):
        n_alone, n_first = (int(np.count_nonzero(each)) for each in (verdict.drops, verdict.drops & (n_drops == 0)))
        found[verdict.reason] = RuleYield(verdict.threshold, n_alone, n_first)
        n_drops += verdict.drops
        drops[verdict.reason] = np.packbits(verdict.drops)
    only = np.packbits(n_drops == 1)
    for reason, packed in drops.items():
        found[reason].only = int(np.bitwise_count(packed & only).sum())
    return Yields(table.num_rows, int(np.count_nonzero(n_drops == 0)), found)
