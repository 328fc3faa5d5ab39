"""How many documents each rule drops, alone and together with the others, counted from signals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from webtext.clean.language import LanguageSettings
from webtext.clean.rules.decide import verdicts
from webtext.clean.rules.thresholds import RuleSettings


@dataclass(slots=True)
class RuleYield:
    """The documents that one rule drops: `alone`, as the `first` rule in order that does, and as the `only` one."""

    threshold: float
    alone: int = 0
    first: int = 0
    only: int = 0


@dataclass(frozen=True, slots=True)
class Yields:
    """The yields of all rules; `kept` is the number of documents that no rule drops."""

    documents: int
    kept: int
    rules: dict[str, RuleYield]

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
    found: dict[str, RuleYield] = {}
    n_documents = n_kept = 0
    for table in signals:
        n_drops = np.zeros(table.num_rows, np.uint8)
        drops = {}
        for verdict in verdicts(table, rules, language):
            rule = found.setdefault(verdict.reason, RuleYield(verdict.threshold))
            rule.alone += int(np.count_nonzero(verdict.drops))
            rule.first += int(np.count_nonzero(verdict.drops & (n_drops == 0)))
            n_drops += verdict.drops
            drops[verdict.reason] = np.packbits(verdict.drops)
        only = np.packbits(n_drops == 1)
        for reason, packed in drops.items():
            found[reason].only += int(np.bitwise_count(packed & only).sum())
        n_documents += table.num_rows
        n_kept += int(np.count_nonzero(n_drops == 0))
    return Yields(n_documents, n_kept, found)
