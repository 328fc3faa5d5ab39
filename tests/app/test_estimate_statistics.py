"""From a sample to the whole: hand-counted cases, and ranges that hold the truth of made populations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from webtext.app.estimates.estimate_statistics import Range, duplicate_ratio, mean, total_of_share


def test_wilsons_interval_is_that_of_his_paper_where_the_sample_is_a_small_part() -> None:
    """8 of 10 at 95 %: 0.4902 to 0.9433 (Wilson's formula by hand); of 10^9 nothing is taken off for the part that was seen."""
    found = total_of_share(8, 10, 10**9)
    assert (found.low / 1e9, found.value / 1e9, found.high / 1e9) == pytest.approx((0.4902, 0.8, 0.9433), abs=1e-4)


def test_what_was_seen_bounds_the_whole() -> None:
    """9 of 10 say yes, one no: of 12 there are 9 to 11 who do."""
    found = total_of_share(9, 10, 12)
    assert found.low >= 9
    assert found.high == 11


def test_the_whole_as_its_own_sample_is_certain() -> None:
    assert total_of_share(7, 9, 9) == Range(7, 7, 7)
    assert mean(3, 6.0, 14.0, 1.0) == Range(2, 2, 2)
    assert duplicate_ratio([2, 3], 10, 1.0) == Range(0.3, 0.3, 0.3)


def test_a_mean_has_students_interval() -> None:
    """1, 2, 3: deviation 1, so 2 +- t / sqrt(3); t for 2 degrees of freedom is 4.30, of which the expansion gives 3.14."""
    found = mean(3, 6.0, 14.0, 0.0)
    assert found.high - found.value == pytest.approx((1.96 + (1.96**3 + 1.96) / 8) / math.sqrt(3))


def test_ranges_round_outwards() -> None:
    assert Range(1.2, 2.5001, 3.1).rounded() == Range(1, 3, 4)


def test_shares_of_made_populations_lie_in_their_ranges() -> None:
    random = np.random.default_rng(1)
    for ratio, yes in ((0.001, 0.7), (0.01, 0.5), (0.3, 0.97), (0.8, 0.02)):
        said = random.random(20_000) < yes
        held = 0
        for _ in range(200):
            sample = said[random.random(len(said)) < ratio]
            found = total_of_share(int(sample.sum()), len(sample), len(said)) if len(sample) else Range(0, 0, len(said))
            held += found.low <= said.sum() <= found.high
        assert held >= 184  # of 200, at 95 % 190 are to be expected, with a deviation of 3


POPULATIONS = {
    "unlike": [],
    "pairs": [2] * 500,
    "mixed": [2] * 250 + [5] * 50 + [100] * 3 + [400],
    "large": [200] * 5,
}


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.5])
def test_the_share_of_duplicates_of_a_made_population_lies_in_its_range(population: str, ratio: float) -> None:
    sizes = [1] * (10_000 - sum(POPULATIONS[population])) + POPULATIONS[population]
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    random = np.random.default_rng(2)
    held = 0
    for _ in range(50):
        sample = cluster[random.random(len(cluster)) < ratio]
        counts = np.bincount(sample)
        found = duplicate_ratio(counts[counts > 1].tolist(), len(sample), len(sample) / len(cluster))
        assert 0 <= found.low <= found.value <= found.high <= 1
        held += found.low <= 1 - len(sizes) / len(cluster) <= found.high
    assert held >= 46


def test_pairs_are_met_by_the_square_of_the_share() -> None:
    """Of 100 pairs among 10,000 documents a tenth of the links meets one: it represents a hundred."""
    assert duplicate_ratio([2], 1000, 0.1).value == pytest.approx(100 / 10_000)
