"""Caveats about a sweep's winner: the grid's edge may hide a better one, and chance may explain its lead."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from webtext.train.experiments.grid import Candidate, value_text
from webtext.train.experiments.halving import Rung
from webtext.train.experiments.significance import ALPHA, differences


@dataclass(frozen=True, slots=True)
class Edge:
    """A setting whose best value is the smallest or largest that was tried; `further` is the next value to try."""

    name: str
    value: Any
    is_largest: bool
    further: Any

    def __str__(self) -> str:
        side = "largest" if self.is_largest else "smallest"
        beyond = "" if self.further is None else f"; try {value_text(self.further)} too"
        return f"{self.name} {value_text(self.value)} is the {side} of those tried, so the best may lie beyond{beyond}"


def edges(candidates: Sequence[Candidate], winner: Candidate) -> list[Edge]:
    """Return the edges: numeric settings whose best value is the smallest or largest of those tried.

    Values whose runs failed count as tried: beyond a value that failed there is nothing to find.
    """
    found = []
    for i, (name, value) in enumerate(winner.values):
        tried = {candidate.values[i][1] for candidate in candidates}
        if all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in tried):
            found.append(edge_of(name, value, tried))
    return [edge for edge in found if edge is not None]


def edge_of(name: str, value: Any, tried: Iterable[Any]) -> Edge | None:
    """Return the edge if `value` is the smallest or largest of the tried numbers; None otherwise, or for one number."""
    order = sorted(tried)
    if len(order) < 2 or value not in (order[0], order[-1]):
        return None
    is_largest = value == order[-1]
    return Edge(name, value, is_largest, _further(value, order[-2] if is_largest else order[1]))


def order_note(last: Rung, names: Sequence[str]) -> str:
    """Say whether the last rung shows which of the best two candidates is better, and what would show it."""
    best = last.ranking()
    if len(best) < 2:
        return "No other candidate ran to the end, so the winner is compared with none there."
    runs = [[loss for loss in last.losses[i] if loss is not None] for i in best[:2]]
    found = differences(runs)[0]
    two = f"{names[best[0]]} and {names[best[1]]}, {found.mean:.4f} apart"
    if len(runs[0]) < 2:
        return f"One seed: the effect of chance is not known, so the order of {two}, is not shown. Use --seeds 3."
    spread = math.sqrt(statistics.fmean(statistics.variance(each) for each in runs))
    spread_text = f"seeds of one candidate spread by {spread:.4f}"
    if found.margin is None or found.mean <= found.margin:
        width = (
            "" if found.margin is None else f", and so few can't distinguish less than {found.margin:.4f} from chance"
        )
        return f"The order of {two}, is not shown: {spread_text}{width}. Use more --seeds."
    return f"{two}: more than the {found.margin:.4f} that chance explains (t test, p < {ALPHA}, two of several); {spread_text}."


def _further(value: float, neighbour: float) -> float | int | None:
    """Return the value as far beyond as the neighbour is before, by ratio; None unless both are above 0."""
    if min(value, neighbour) <= 0:
        return None
    further = value * value / neighbour
    if isinstance(value, int):
        return max(1, round(further)) if max(1, round(further)) != value else None
    return float(f"{further:.3g}")
