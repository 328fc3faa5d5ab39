"""Successive halving: all candidates run to a rung, the better half continues (Jamieson & Talwalkar 2016).

A candidate's loss is the mean over its seeds. If one of them has no loss, because its run failed, it has lost.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Losses = tuple[float | None, ...]
"""Losses of a candidate's seeds, in order; None for a run that failed."""

FINALISTS = 2
"""Candidates that run to the end, at least: a winner that is compared with nothing after all steps has won nothing."""


@dataclass(frozen=True, slots=True)
class Rung:
    """Losses after `step` by candidate number, of the candidates that were still running."""

    step: int
    losses: Mapping[int, Losses]

    def ranking(self) -> list[int]:
        """Return the candidates from the lowest mean up, without failed ones; of equals the earlier comes first."""
        means = {i: mean_loss(losses) for i, losses in self.losses.items()}
        return sorted((i for i in means if means[i] < math.inf), key=lambda i: (means[i], i))


def mean_loss(losses: Losses) -> float:
    """Return the mean, or infinity if any loss is missing or not finite."""
    numbers = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return statistics.fmean(numbers) if numbers and len(numbers) == len(losses) else math.inf


def rung_steps(steps: int, shares: Sequence[float]) -> list[int]:
    """Return the steps of the rungs, rounded up; rungs of equal steps are merged.

    >>> rung_steps(500, (0.25, 0.5, 1)), rung_steps(2, (0.25, 0.5, 1))
    ([125, 250, 500], [1, 2])
    """
    return sorted({math.ceil(share * steps - 1e-9) for share in shares})


def survivor_counts(n: int, n_rungs: int) -> list[int]:
    """Return how many candidates run in each rung if few fail.

    >>> survivor_counts(8, 3), survivor_counts(3, 3)
    ([8, 4, 2], [3, 2, 2])
    """
    counts = [n]
    for _ in range(n_rungs - 1):
        counts.append(min(n, max(FINALISTS, math.ceil(counts[-1] / 2))))
    return counts


def halve(n: int, rungs: Sequence[int], measure: Callable[[Sequence[int], int], Sequence[Losses]]) -> list[Rung]:
    """Run candidates 0 ... n-1 through the rungs; `measure(candidates, step)` trains them to a step and returns losses.

    Ends early if no candidate is left.
    """
    alive = list(range(n))
    found: list[Rung] = []
    for step, n_kept in zip(rungs, [*survivor_counts(n, len(rungs))[1:], 0], strict=True):
        found.append(Rung(step, dict(zip(alive, measure(alive, step), strict=True))))
        alive = sorted(found[-1].ranking()[:n_kept])
        if not alive:
            break
    return found
