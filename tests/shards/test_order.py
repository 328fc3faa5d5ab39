"""The order of an epoch: a keyed permutation that is complete, computed place by place, and in groups of complete blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from webtext.shards.sampling.order import EpochOrder, Permutation


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


def whole(order: EpochOrder) -> list[int]:
    groups = (order.windows(group, 0, order.group_size(group)) for group in range(order.n_groups))
    return [window for group in groups for window in group.tolist()]


@given(
    n=st.integers(1, 300),
    block_windows=st.integers(1, 40),
    group_blocks=st.one_of(st.none(), st.integers(1, 9)),
    seed=st.integers(0, 9),
)
def test_every_window_has_one_place_and_every_block_one_group(
    n: int, block_windows: int, group_blocks: int | None, seed: int
) -> None:
    order = EpochOrder(n, block_windows=block_windows, group_blocks=group_blocks, key=f"{seed}".encode())
    assert sorted(whole(order)) == list(range(n))
    blocks = [order.blocks(group).tolist() for group in range(order.n_groups)]
    assert sorted(sum(blocks, [])) == list(range(order.n_blocks))
    for group, held in enumerate(blocks):
        places = range(order.group_start(group), order.group_start(group + 1))
        assert all(order.group_of(place) == group for place in places)
        assert {int(w) // block_windows for w in order.windows(group, 0, len(places))} == set(held)


def test_any_part_of_a_group_is_computed_alone() -> None:
    def order() -> EpochOrder:
        return EpochOrder(10_000, block_windows=100, group_blocks=8, key=b"k")

    at_once = order().windows(3, 0, 800)
    assert np.array_equal(np.concatenate([order().windows(3, i, i + 50) for i in range(0, 800, 50)]), at_once)


def test_without_groups_it_is_a_shuffle_of_everything() -> None:
    """Neighbours among 1,000 shuffled windows are 333 apart on average; within a block of 10 it would be at most 9."""
    shuffled = np.array(whole(EpochOrder(1000, block_windows=10, group_blocks=None, key=b"k")))
    assert 290 < np.abs(np.diff(shuffled)).mean() < 380
    near = np.array(whole(EpochOrder(1000, block_windows=10, group_blocks=1, key=b"k"))).reshape(100, 10)
    assert (near.max(axis=1) - near.min(axis=1)).max() == 9
