"""Mixtures: exact counts, each sample from one source, and the right shares at every point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.shards.sampling.sampler import Mixture

WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=8)


def test_three_to_one_gives_every_fourth_sample_to_the_second() -> None:
    counts = Mixture([3, 1]).counts(np.arange(9))
    assert counts[1].tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2]


@given(weights=WEIGHTS, first=st.integers(0, 10**12))
def test_every_sample_comes_from_one_source_and_shares_hold_all_along(weights: list[float], first: int) -> None:
    mixture = Mixture(weights)
    samples = np.arange(first, first + 200)
    counts = mixture.counts(samples)
    assert np.array_equal(counts.sum(axis=0), samples)
    assert set(np.diff(counts, axis=1).ravel().tolist()) <= {0, 1}
    shares = np.array(mixture.parts) / sum(mixture.parts)
    assert np.abs(counts - shares[:, None] * samples).max() <= (2 + np.log(len(weights))) / 2 + 1e-3


@pytest.mark.parametrize("weights", [[], [0.0], [1, -2], [float("inf")]])
def test_weights_must_be_positive_numbers(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="expected one number above 0"):
        Mixture(weights)
