"""Decisions from signals alone: vectorised, so a million documents are decided again without reading their texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.journal import KILLED_WORKER, RAISED
from webtext.clean.language import ALL, LanguageSettings
from webtext.clean.rules.thresholds import RULES, RuleSettings

OTHER_LANGUAGE = "other_language"
UNCERTAIN_LANGUAGE = "uncertain_language"
UNMEASURED = (KILLED_WORKER, RAISED)
"""Why a document has no signals: it then fails, whatever the rules are."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """Row for row with the signals: the index of the first rule that drops the row in `reasons`, or -1 to keep it."""

    reasons: tuple[str, ...]
    rule: np.ndarray  # int16
    value: np.ndarray  # float64; NaN where there is none
    threshold: np.ndarray  # float64; NaN where there is none

    @property
    def kept(self) -> np.ndarray:
        """Mask of the rows that stay."""
        return self.rule < 0

    def reason(self, row: int) -> str | None:
        """Why the row goes; None when it stays."""
        return self.reasons[self.rule[row]] if self.rule[row] >= 0 else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule over all rows: which it drops, what was measured, what it was held against (NaN: no number)."""

    reason: str
    drops: np.ndarray  # bool
    values: np.ndarray  # float64
    threshold: float


def decide(
    signals: pa.Table,
    rules: RuleSettings | None,
    language: LanguageSettings | None,
    votes: Iterable[Verdict] = (),
) -> Decisions:
    """The first rule that drops each row: those of votes, then in the order of `verdicts`."""
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
    """What has no signals, then the language rules, then the quality rules in their order; None leaves a kind of rules out."""
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
    """The signals that `verdicts` asks for."""
    asked = [] if language is None or ALL in language.language else ["language", "language_score"]
    return [
        "failed",
        *asked,
        *dict.fromkeys(RULES[reason].column for reason in (rules.thresholds() if rules is not None else {})),
    ]


def _numbers(signals: pa.Table, column: str) -> np.ndarray:
    return np.asarray(signals[column].to_numpy(), np.float64)
