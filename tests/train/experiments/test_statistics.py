"""Student's t and Welch's test, lines by least squares: published values, error rates and intervals that cover as they claim."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.train.experiments import significance
from webtext.train.experiments.fit import fit_line
from webtext.train.experiments.significance import ALPHA, holm, quantile, tail, welch


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706205), (2, 4.302653), (4, 2.776445), (10, 2.228139), (120, 1.979930)]
)
def test_quantiles_are_those_of_the_tables(freedom: float, expected: float) -> None:
    assert quantile(0.975, freedom) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("freedom", [1.0, 2.7, 40.0])
@pytest.mark.parametrize("t", [0.1, 1.0, 4.0])
def test_quantile_and_tail_are_inverse(freedom: float, t: float) -> None:
    assert quantile(1 - tail(t, freedom), freedom) == pytest.approx(t, rel=1e-6)


def test_one_corpus_against_itself_is_called_different_in_at_most_one_of_twenty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three normal values against three of the same distribution; 400 repetitions of a fixed generator."""
    monkeypatch.setattr(significance, "quantile", lambda *_: 0.0)  # of the margins, which aren't looked at
    generator = random.Random(0)
    found = [welch(*([generator.gauss(0, 1) for _ in range(3)] for _ in range(2))) for _ in range(400)]
    assert sum(each.p is not None and each.p < ALPHA for each in found) <= 400 / 20


def test_the_margin_ends_where_p_is_alpha() -> None:
    values = [1.00, 1.02, 0.98]
    margin = welch(values, values).margin
    assert margin is not None
    assert welch(values, [value + margin for value in values]).p == pytest.approx(ALPHA)


def test_one_seed_and_seeds_that_change_nothing_have_no_test() -> None:
    for one, other in (([1.0], [2.0]), ([1.0, 1.1], [2.0]), ([1.0, 1.0], [2.0, 2.0])):
        found = welch(one, other)
        assert (found.mean, found.margin, found.p) == (pytest.approx(found.mean), None, None)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_between_no_correction_and_bonferroni_s_and_keeps_the_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    for p, corrected in zip(ps, adjusted, strict=True):
        assert corrected is not None
        assert p <= corrected <= min(1.0, p * len(ps)) or corrected == pytest.approx(max(ps), abs=1)
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    told = [adjusted[i] or 0.0 for i in order]
    assert told == sorted(told)
    if min(ps) > 0:
        assert adjusted[order[0]] == pytest.approx(min(1.0, ps[order[0]] * len(ps)))


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
