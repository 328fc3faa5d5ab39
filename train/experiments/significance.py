"""Test whether two corpora differ by more than their seeds do: Welch's t test, with Holm's correction over several.

A run's bits per byte depend on its seed (initial weights, order of the windows), so a corpus has a mean and a spread.
The difference of two corpora's means is compared with what such spreads would show by chance (Welch 1947), without
assuming equal variances. Seeds aren't paired: two corpora have different windows in another order, so an equal seed
makes only the initial weights equal, and pairs would halve the degrees of freedom. If several differences are judged
together, Holm's correction (1979) keeps the chance of any wrong verdict at `ALPHA`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of `values` minus mean of `baseline`; `margin` is half of its 95 % interval, `p` of the two-sided test.

    `margin` and `p` are None if there is no test: one seed, or seeds without any spread.
    """

    mean: float
    margin: float | None
    p: float | None


def welch(baseline: Sequence[float], values: Sequence[float]) -> Difference:
    """Return the difference of two corpora, given the values of their seeds.

    >>> found = welch([30.02, 29.99, 30.11, 29.97, 30.01, 29.99], [29.89, 29.93, 29.72, 29.98, 30.02, 29.98])
    >>> round(found.mean, 3), round(found.p, 4)
    (-0.095, 0.0908)
    """
    mean = statistics.fmean(values) - statistics.fmean(baseline)
    if min(len(baseline), len(values)) < 2:
        return Difference(mean, None, None)
    one, other = (statistics.variance(sample) / len(sample) for sample in (baseline, values))
    error = math.sqrt(one + other)
    if error == 0:
        return Difference(mean, None, None)
    freedom = (one + other) ** 2 / (one**2 / (len(baseline) - 1) + other**2 / (len(values) - 1))
    return Difference(mean, quantile(1 - ALPHA / 2, freedom) * error, 2 * tail(abs(mean) / error, freedom))


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p values that are judged together, so that each can be compared with ALPHA; None stays None.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    highest = 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = highest
    return adjusted


def tail(t: float, freedom: float) -> float:
    """Return P(T > t) for Student's t distribution and t >= 0.

    >>> round(tail(4.302653, 2), 6), round(tail(2.228139, 10), 6)
    (0.025, 0.025)
    """
    return 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(p: float, freedom: float) -> float:
    """Return the t with P(T <= t) = p for Student's t distribution and p >= 0.5.

    >>> round(quantile(0.975, 4), 4), round(quantile(0.975, 1), 3)
    (2.7764, 12.706)
    """
    low, high = 0.0, 1.0
    while tail(high, freedom) > 1 - p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > 1 - p else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(
        a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - math.log(a)
    )
    value = 1.0
    for m in range(200, 0, -1):  # from the innermost fraction outwards
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        value = 1 + odd / (1 + even / value)
    return front / value
