"""Mixtures: exact counts, each sample from one source, and the right shares at every point."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from webtext.shards.sampling.sampler import Mixture

WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=8)


@given(weights=WEIGHTS, first=st.integers(0, 10**12))
def test_every_sample_comes_from_one_source_and_shares_hold_all_along(weights: list[float], first: int) -> None:
    mixture = Mixture(weights)
    samples = np.arange(first, first + 200)
    counts = mixture.counts(samples)
    assert np.array_equal(counts.sum(axis=0), samples)
    assert set(np.diff(counts, axis=1).ravel().tolist()) <= {0, 1}
    shares = np.array(mixture.parts) / sum(mixture.parts)
    assert np.abs(counts - shares[:, None] * samples).max() <= (2 + np.log(len(weights))) / 2 + 1e-3
