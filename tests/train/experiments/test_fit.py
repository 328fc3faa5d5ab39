"""Least-squares lines: exact on a line, equal to numpy's, with intervals that cover as often as they claim."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.train.experiments.fit import fit_line

NUMBERS = st.integers(-1000, 1000).map(lambda n: n / 10)


@given(NUMBERS, NUMBERS, st.lists(NUMBERS, min_size=3, max_size=10, unique=True))
def test_points_of_a_line_are_fitted_without_residuals(a: float, b: float, xs: list[float]) -> None:
    fit = fit_line(xs, [a + b * x for x in xs])
    assert fit.at(2.5) == pytest.approx(a + 2.5 * b, abs=1e-6)
    assert fit.deviation == pytest.approx(0, abs=1e-6)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=10, unique_by=lambda point: point[0]))
def test_other_points_are_fitted_like_numpy(points: list[tuple[float, float]]) -> None:
    xs, ys = zip(*points, strict=True)
    fit = fit_line(xs, ys)
    slope, intercept = np.polyfit(xs, ys, 1)
    assert (fit.slope, fit.intercept) == pytest.approx((slope, intercept), abs=1e-6, rel=1e-6)
    assert sum(fit.residuals) == pytest.approx(0, abs=1e-6)


def test_the_interval_covers_one_more_measurement_nineteen_times_of_twenty() -> None:
    generator = np.random.default_rng(0)
    xs, hits, n = [5.0, 5.3, 5.6, 5.9], 0, 1000
    for _ in range(n):
        noise = generator.normal(0, 0.1, 5)
        fit = fit_line(xs, [3 - 0.4 * x + e for x, e in zip(xs, noise, strict=False)])
        hits += abs(3 - 0.4 * 6.2 + noise[4] - fit.at(6.2)) <= fit.margin(6.2)
    assert 0.93 < hits / n < 0.97


def test_the_interval_grows_with_the_distance() -> None:
    fit = fit_line([1, 2, 3, 4], [4, 3.1, 1.9, 1])
    assert fit.margin(2.5) < fit.margin(5) < fit.margin(9)


@pytest.mark.parametrize(("xs", "message"), [([1, 2], "2 points make no fit"), ([1, 1, 1], "all sizes are equal")])
def test_points_that_make_no_line_are_rejected(xs: list[float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit_line(xs, xs)
