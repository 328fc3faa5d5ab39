"""Straight lines by least squares, with the interval for one more measurement: the fit of losses over sizes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from webtext.base.errors import ConfigError
from webtext.train.experiments.significance import ALPHA, quantile

FEWEST = 3
"""Points of a fit, at least: any two points are on a line."""


@dataclass(frozen=True, slots=True)
class LineFit:
    """y = intercept + slope x, fitted to the points; residuals are measured values minus the line's."""

    xs: Sequence[float]
    intercept: float
    slope: float
    residuals: Sequence[float]

    def at(self, x: float) -> float:
        """Return the line's value at x."""
        return self.intercept + self.slope * x

    @property
    def deviation(self) -> float:
        """Standard deviation of the residuals, with n - 2 degrees of freedom."""
        return math.sqrt(sum(residual**2 for residual in self.residuals) / (len(self.xs) - 2))

    def margin(self, x: float) -> float:
        """Return half of the 95 % interval for one new measurement at x (Student's t, n - 2 degrees of freedom).

        It grows with the distance from the points, and assumes that the line continues.
        """
        n, mean = len(self.xs), statistics.fmean(self.xs)
        spread = sum((each - mean) ** 2 for each in self.xs)
        return _student(n - 2) * self.deviation * math.sqrt(1 + 1 / n + (x - mean) ** 2 / spread)


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> LineFit:
    """Fit a line by least squares. ConfigError for fewer than FEWEST points, or if all xs are equal.

    >>> fit_line([1, 2, 3], [5.0, 3.0, 1.0]).slope
    -2.0
    """
    if len(xs) < FEWEST:
        raise ConfigError(f"{len(xs)} points make no fit", f"give at least {FEWEST} sizes")
    x, y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((each - x) ** 2 for each in xs)
    if spread == 0:
        raise ConfigError("all sizes are equal", "give sizes that differ")
    slope = sum((one - x) * (other - y) for one, other in zip(xs, ys, strict=True)) / spread
    intercept = y - slope * x
    return LineFit(xs, intercept, slope, [other - intercept - slope * one for one, other in zip(xs, ys, strict=True)])


@cache
def _student(freedom: int) -> float:
    """Cached, because a drawing calls it at every point."""
    return quantile(1 - ALPHA / 2, freedom)
