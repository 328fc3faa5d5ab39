"""Who stays: the native lazy choice against the readable twin that sees every edge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webtext.clean import _minhash
from webtext.clean.dedup import reference

K = 8
A_LITTLE = 0.5


def settle_natively(
    signatures, buckets, sets, n_train, threshold=A_LITTLE, min_agreement=0, bucket_limit=1000, fixed=None
):
    fixed = np.zeros(len(sets), np.uint8) if fixed is None else np.array(fixed, np.uint8)
    ends = np.cumsum([len(found) for found in sets], dtype=np.int64)
    begins = ends - np.array([len(found) for found in sets], np.int64)
    values = np.concatenate([np.empty(0, np.uint64), *sets])
    return _minhash.settle(
        signatures, buckets, values, begins, ends, fixed, n_train, threshold, min_agreement, bucket_limit
    )


def path_of(n_nodes: int) -> list[np.ndarray]:
    """Sets in a row: each has Jaccard 4 / 8 with the next one and 2 / 10 with the one after."""
    return [np.arange(2 * node, 2 * node + 6, dtype=np.uint64) for node in range(n_nodes)]


def one_bucket(n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((n_nodes, K), np.uint8), np.zeros((n_nodes, 1), np.int32)


def test_in_a_chain_every_other_node_stays():
    """0 ~ 1 ~ 2 ~ 3 ~ 4 in priority order: 1 goes for 0, 2 has no edge to 0, so it stays, and so on."""
    fate, stays, similarity, *_ = settle_natively(*one_bucket(5), path_of(5), 5)
    assert fate.tolist() == [0, 1, 0, 1, 0]
    assert stays.tolist()[1] in (0, 2)
    assert similarity.tolist() == [0, 0.5, 0, 0.5, 0]


def test_a_middle_of_high_priority_takes_both_its_neighbours():
    sets = path_of(3)
    fate, stays, *_ = settle_natively(*one_bucket(3), [sets[1], sets[0], sets[2]], 3)
    assert (fate.tolist(), stays.tolist()) == ([0, 1, 1], [-1, 0, 0])


def test_a_chain_from_validation_into_train_takes_all_validation_with_it():
    """0 is train; 1 to 3 are validation, joined to it only one through the other."""
    fate, stays, similarity, *_ = settle_natively(*one_bucket(4), path_of(4), 1)
    assert (fate.tolist(), stays.tolist()) == ([0, 2, 2, 2], [-1, 0, 0, 0])
    assert similarity.tolist() == [0, 4 / 8, 2 / 10, 0]


def test_a_validation_node_near_a_dropped_train_node_goes():
    """0 ~ 1 ~ 2, 0 and 1 of train: 1 goes for 0; 2 is near 1 only, and is said to go for 0, which stays."""
    fate, stays, *_ = settle_natively(*one_bucket(3), path_of(3), 2)
    assert (fate.tolist(), stays.tolist()) == ([0, 1, 2], [-1, 0, 0])


def test_of_dropped_train_nodes_the_first_says_what_a_validation_node_goes_for():
    """2 and 3 of train go for 0 and 1; the held-out 4 lies in no bucket of these, and in two with 2 and 3.

    The bucket that comes first has 3 in it, and the last one added to the other is 3 too: 2 comes before it all the same.
    """
    text = np.arange(5, dtype=np.uint64)
    buckets = np.array([[0, -1, -1], [1, -1, -1], [0, 2, -1], [1, 2, 3], [3, 2, -1]], np.int32)
    fate, stays, similarity, *_ = settle_natively(np.zeros((5, K), np.uint8), buckets, [text] * 5, 4)
    assert (fate.tolist(), stays.tolist()) == ([0, 0, 1, 1, 2], [-1, -1, 0, 1, 0])
    assert similarity.tolist() == [0, 0, 1, 1, 1]


def test_one_joined_to_train_only_through_validation_goes_for_the_first_train_node_named_there():
    """4 ~ 2 ~ 1 and 4 ~ 3 ~ 0, with 0 and 1 of train: 2 comes before 3, but 0 before 1."""
    text = np.arange(5, dtype=np.uint64)
    buckets = np.array([[0, -1], [1, -1], [1, 2], [0, 3], [2, 3]], np.int32)
    fate, stays, *_ = settle_natively(np.zeros((5, K), np.uint8), buckets, [text] * 5, 2)
    assert (fate.tolist(), stays.tolist()) == ([0, 0, 2, 2, 2], [-1, -1, 1, 0, 0])


def test_fixed_nodes_stay_and_take_what_is_near_them():
    """0 ~ 1 ~ 2 ~ 3 ~ 4, all of train: 1 and 2 are in the index, so they stay although they are near each other."""
    fate, stays, *_ = settle_natively(*one_bucket(5), path_of(5), 5, fixed=[0, 1, 1, 0, 0])
    assert fate.tolist() == [1, 0, 0, 1, 0]
    assert stays.tolist() == [1, -1, -1, 2, -1]


def test_a_train_node_near_a_fixed_one_of_validation_goes_and_is_no_train_any_more():
    """0 ~ 1 ~ 2: 0 is train, 1 and 2 validation, and the 1 is fixed. 2 goes for 1, not for train."""
    fate, stays, *_ = settle_natively(*one_bucket(3), path_of(3), 1, fixed=[0, 1, 0])
    assert (fate.tolist(), stays.tolist()) == ([1, 0, 1], [1, -1, 1])


def test_a_chain_to_a_fixed_train_node_takes_validation_but_no_fixed_one():
    """0 ~ 1 ~ 2 ~ 3: 0 is fixed train, 1 to 3 validation, 2 fixed. The chain ends at 2; 3 is its duplicate."""
    fate, stays, *_ = settle_natively(*one_bucket(4), path_of(4), 1, fixed=[1, 0, 1, 0])
    assert (fate.tolist(), stays.tolist()) == ([0, 2, 0, 1], [-1, 0, -1, 2])


def test_validation_alone_is_settled_as_train_is():
    assert settle_natively(*one_bucket(4), path_of(4), 0)[0].tolist() == [0, 1, 0, 1]


def test_pairs_below_the_signature_check_or_without_a_common_bucket_are_no_edges():
    signatures, buckets = one_bucket(2)
    sets = path_of(1) * 2
    signatures[1, :4] = 7
    assert settle_natively(signatures, buckets, sets, 2, min_agreement=4)[0].tolist() == [0, 1]
    assert settle_natively(signatures, buckets, sets, 2, min_agreement=5)[0].tolist() == [0, 0]
    assert settle_natively(signatures, np.array([[0], [1]], np.int32), sets, 2)[0].tolist() == [0, 0]
    assert settle_natively(signatures, np.array([[-1], [-1]], np.int32), sets, 2)[0].tolist() == [0, 0]


def test_a_full_bucket_is_counted_and_other_buckets_still_find_the_pair():
    """Three unlike nodes and a copy of the third share bucket 0, which remembers two; bucket 1 has only the last pair."""
    sets = [np.arange(10 * node, 10 * node + 5, dtype=np.uint64) for node in (0, 1, 2, 2)]
    signatures, buckets = one_bucket(4)
    fate, _, _, _, beyond_limit = settle_natively(signatures, buckets, sets, 4, bucket_limit=2)
    assert (fate.tolist(), beyond_limit) == ([0, 0, 0, 0], 2)
    both = np.array([[0, -1], [0, -1], [0, 1], [0, 1]], np.int32)
    fate, stays, _, _, _ = settle_natively(signatures, both, sets, 4, bucket_limit=2)
    assert (fate.tolist(), stays.tolist()) == ([0, 0, 0, 1], [-1, -1, -1, 2])


@st.composite
def worlds(draw):
    n_nodes = draw(st.integers(0, 14))
    sets = [np.array(sorted(draw(st.sets(st.integers(0, 9), max_size=7))), dtype=np.uint64) for _ in range(n_nodes)]
    buckets = draw(st.lists(st.lists(st.integers(-1, 3), min_size=2, max_size=2), min_size=n_nodes, max_size=n_nodes))
    signatures = draw(st.lists(st.lists(st.integers(0, 1), min_size=K, max_size=K), min_size=n_nodes, max_size=n_nodes))
    return (
        np.array(signatures, np.uint8).reshape(n_nodes, K),
        np.array(buckets, np.int32).reshape(n_nodes, 2),
        sets,
        draw(st.integers(0, n_nodes)),
        draw(st.sampled_from([0.3, 0.5, 0.8, 1.0])),
        draw(st.sampled_from([0, 3, 5])),
        draw(st.lists(st.booleans(), min_size=n_nodes, max_size=n_nodes)),
    )


def copies_in(buckets: list[list[int]], copies: set[int]):
    """A world of one text, held by `copies`, and of empty sets; four nodes of train."""
    sets = [np.arange(node in copies, dtype=np.uint64) for node in range(len(buckets))]
    return np.zeros((len(buckets), K), np.uint8), np.array(buckets, np.int32), sets, 4, 0.3, 0, [False] * len(sets)


# Two train nodes, 1 and 3, of one text that meet only through validation: 10 has an edge to neither.
FAR_COPIES = [[0, 0], [-1, 2], [0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [0, 2], [0, 0], [0, 0], [1, 1]]


@settings(max_examples=200, deadline=None)
@given(worlds())
@example(copies_in(FAR_COPIES, {1, 3, 4, 10}))
@example(copies_in(FAR_COPIES, {1, 3, 4, 7, 10}))
def test_native_equals_twin(world):
    signatures, buckets, sets, n_train, threshold, least, fixed = world
    twin = reference.settle(signatures, buckets, sets, n_train, threshold, least, fixed)
    fate, stays, similarity, *_ = settle_natively(signatures, buckets, sets, n_train, threshold, least, fixed=fixed)
    assert (fate.tolist(), stays.tolist(), similarity.tolist()) == (twin.fate, twin.stays, twin.similarity)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=30))
def test_components_are_those_of_the_twin_in_whatever_order_pairs_come(pairs):
    def roots_of(pairs, join):
        parents = np.arange(20, dtype=np.uint32)
        join(parents, *np.array(pairs, np.uint32).reshape(-1, 2).T.copy())
        return parents

    expected = [reference.root(roots_of(pairs, reference.join), node) for node in range(20)]
    native = roots_of(pairs[::-1], _minhash.join)
    assert _minhash.roots(native, np.arange(20, dtype=np.uint32)).tolist() == expected


def test_nodes_that_are_none_are_refused():
    parents = np.arange(3, dtype=np.uint32)
    with pytest.raises(IndexError):
        _minhash.join(parents, np.array([0], np.uint32), np.array([3], np.uint32))
    with pytest.raises(IndexError):
        _minhash.roots(parents, np.array([3], np.uint32))
