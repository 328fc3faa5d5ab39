"""What the winner of a sweep may claim: whether the grid's edge hides a better one, and whether chance explains its lead."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from webtext.train.experiments.grid import Candidate, value_text
from webtext.train.experiments.halving import Losses, Rung, mean_loss
from webtext.train.experiments.significance import ALPHA, welch


@dataclass(frozen=True, slots=True)
class Edge:
    """A setting whose best value is the smallest or largest that was tried; `further` would be the next one."""

    name: str
    value: Any
    is_largest: bool
    further: Any

    def __str__(self) -> str:
        side = "largest" if self.is_largest else "smallest"
        beyond = "" if self.further is None else f"; try {value_text(self.further)} too"
        return f"{self.name} {value_text(self.value)} is the {side} of those tried, so the best may lie beyond{beyond}"


def edges(candidates: Sequence[Candidate], winner: Candidate) -> list[Edge]:
    """The settings of numbers, several of which were tried, whose best is the first or last of them.

    A value whose runs failed was tried as well: next to it nothing is hidden.
    """
    found = []
    for i, (name, value) in enumerate(winner.values):
        tried = {candidate.values[i][1] for candidate in candidates}
        if all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in tried):
            found.append(edge_of(name, value, tried))
    return [edge for edge in found if edge is not None]


def edge_of(name: str, value: Any, tried: Iterable[Any]) -> Edge | None:
    """The edge that the best value of a setting lies at, of the numbers that were tried; None of one, and between others."""
    order = sorted(tried)
    if len(order) < 2 or value not in (order[0], order[-1]):
        return None
    is_largest = value == order[-1]
    return Edge(name, value, is_largest, _further(value, order[-2] if is_largest else order[1]))


def order_note(last: Rung, names: Sequence[str]) -> str:
    """What the last rung shows of the best two candidates: which is better, or not, and what would tell."""
    best = last.ranking()
    if len(best) < 2:
        return "No other candidate ran to the end, so the winner is compared with none there."
    first, second = (last.losses[i] for i in best[:2])
    difference = _mean(second) - _mean(first)
    two = f"{names[best[0]]} and {names[best[1]]}, {difference:.4f} apart"
    if len(first) < 2:
        return f"One seed: how much chance does is not known, so the order of {two}, is not shown. --seeds 3 tells."
    margin = welch(_numbers(first), _numbers(second)).margin
    spread = statistics.fmean(statistics.variance(_numbers(each)) for each in (first, second)) ** 0.5
    said = f"seeds of one candidate spread by {spread:.4f}"
    if margin is None or difference <= margin:
        width = "" if margin is None else f", and so few tell no less than {margin:.4f} from chance"
        return f"The order of {two}, is not shown: {said}{width}. More --seeds tell."
    return f"{two}: more than the {margin:.4f} that chance explains (Welch, p < {ALPHA}, two of several); {said}."


def _further(value: float, neighbour: float) -> float | int | None:
    """As far beyond as the neighbour lies before: by ratio where both are above 0, else none is proposed."""
    if min(value, neighbour) <= 0:
        return None
    further = value * value / neighbour
    if isinstance(value, int):
        return max(1, round(further)) if max(1, round(further)) != value else None
    return float(f"{further:.3g}")


def _mean(losses: Losses) -> float:
    mean = mean_loss(losses)
    assert mean is not None
    return mean


def _numbers(losses: Losses) -> list[float]:
    return [loss for loss in losses if loss is not None]
