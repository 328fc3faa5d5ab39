"""The keyed permutation: it permutes, its key matters, and it shuffles well enough."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from webtext.shards.sampling.order import Permutation


@given(n=st.integers(1, 5000), key=st.binary(max_size=8))
def test_it_is_a_permutation_whatever_the_key(n: int, key: bytes) -> None:
    permutation = Permutation(n, key)
    elements = permutation(np.arange(n)).tolist()
    assert sorted(elements) == list(range(n))
    assert [permutation.place(element) for element in elements[:9]] == list(range(min(n, 9)))


@given(n=st.integers(2**20, 2**62), places=st.lists(st.integers(0, 2**20 - 1), min_size=2, max_size=50, unique=True))
def test_places_of_a_huge_order_are_computed_alone(n: int, places: list[int]) -> None:
    permutation = Permutation(n, b"key")
    together = permutation(np.array(places))
    assert [int(permutation(np.array([place]))[0]) for place in places] == together.tolist()
    assert len(set(together.tolist())) == len(places)
    assert together.min() >= 0
    assert together.max() < n


def test_the_order_is_the_same_on_every_machine() -> None:
    assert Permutation(10, b"webtext")(np.arange(10)).tolist() == [1, 9, 8, 2, 0, 6, 4, 7, 5, 3]


def test_elements_are_spread_evenly_over_places() -> None:
    """With 2,000 keys each of 8 elements is first about 250 times: chi-squared of 7 degrees is below 24.3 at 0.1 %."""
    first = [int(Permutation(8, str(key).encode())(np.array([0]))[0]) for key in range(2000)]
    counts = np.bincount(first, minlength=8)
    assert ((counts - 250) ** 2 / 250).sum() < 24.3
