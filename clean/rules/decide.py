"""Judges documents by their signals, and counts what each rule drops alone and together with the others.

Everything is vectorised: a new threshold doesn't read the texts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.config import recipe_settings
from webtext.clean.language import ALL, LanguageSettings
from webtext.clean.rules.measure import measure_signals, score_model
from webtext.clean.rules.thresholds import RULES, RuleSettings
from webtext.clean.steps import Batch, Cleaning, DocumentsPart, Step, Verdict

OTHER_LANGUAGE = "other_language"
UNCERTAIN_LANGUAGE = "uncertain_language"


def verdicts(signals: pa.Table, rules: RuleSettings | None, language: LanguageSettings | None) -> Iterator[Verdict]:
    """Yield the verdicts on rows without signals, of the language rules, and of the quality rules in order.

    Settings that are None skip their rules.
    """
    for reason in pc.unique(signals["failed"]).drop_null().to_pylist():
        drops = pc.fill_null(pc.equal(signals["failed"], reason), False).to_numpy()
        yield Verdict(reason, drops)
    if language is not None and ALL not in language.language:
        score = _numbers(signals, "language_score")
        wanted = pc.fill_null(pc.is_in(signals["language"], pa.array(language.language, pa.string())), False)
        yield Verdict(OTHER_LANGUAGE, ~wanted.to_numpy(), score)
        minimum = language.min_language_score
        yield Verdict(UNCERTAIN_LANGUAGE, ~(score >= minimum), score, minimum)
    for reason, threshold in (rules.thresholds() if rules else {}).items():
        rule = RULES[reason]
        values = _numbers(signals, rule.column)
        yield Verdict(reason, values < threshold if rule.bound == "min" else values > threshold, values, threshold)


def columns_of(rules: RuleSettings | None, language: LanguageSettings | None) -> list[str]:
    """Return the columns of signals that `verdicts` reads."""
    asked = [] if language is None or ALL in language.language else ["language", "language_score"]
    compared = (RULES[reason].column for reason in (rules.thresholds() if rules else ()))
    return ["failed", *asked, *dict.fromkeys(compared)]


def _numbers(signals: pa.Table, column: str) -> np.ndarray:
    return np.asarray(signals[column].to_numpy(), np.float64)


@dataclass
class Rules(Step):
    """Refuses documents by their signals: for their language, or by the quality rules, for which they are measured."""

    rules: RuleSettings | None = None
    language: LanguageSettings | None = None

    def sections(self) -> dict[str, Any]:
        sections = {"rules": self.rules, "language": self.language}
        return {name: recipe_settings(each) for name, each in sections.items() if each is not None}

    def prepare(self, cleaning: Cleaning) -> Sequence[Step]:
        if self.rules is not None:
            out, model = cleaning.out.location("signals"), score_model(self.rules)
            cleaning.signals = measure_signals(cleaning.documents, out, cleaning.run, model)
        return super().prepare(cleaning)

    def begin(self, part: DocumentsPart, dropped: Any) -> None:
        assert part.signals is not None, "the quality rules have measured"
        self._signals = part.signals.open().table(part.place, columns_of(self.rules, self.language))

    def judge(self, batch: Batch) -> Iterator[Verdict]:
        return verdicts(self._signals.slice(batch.first, len(batch.kept)), self.rules, self.language)


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
            {"rule": reason, "threshold": None if np.isnan(each.threshold) else each.threshold}
            | {f"dropped_{name}": getattr(each, name) for name in ("alone", "first", "only")}
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
    found, n_drops = dict[str, RuleYield](), np.zeros(table.num_rows, np.uint8)
    given = list(verdicts(table, rules, language))
    for each in given:
        found[each.reason] = RuleYield(each.threshold, int(each.drops.sum()), int((each.drops & (n_drops == 0)).sum()))
        n_drops += each.drops
    for each in given:
        found[each.reason].only = int((each.drops & (n_drops == 1)).sum())
    return Yields(table.num_rows, int(np.count_nonzero(n_drops == 0)), found)
