"""Which documents are kept: the native rule, which computes only the edges it needs, against the readable twin."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import minhash as reference

from webtext.clean import _minhash

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


def test_in_a_chain_every_other_node_is_kept():
    """0 ~ 1 ~ 2 ~ 3 ~ 4 in priority order: 1 is dropped for 0, 2 has no edge to 0, so it is kept, and so on."""
    decision, kept, similarity, *_ = settle_natively(*one_bucket(5), path_of(5), 5)
    assert decision.tolist() == [0, 1, 0, 1, 0]
    assert kept.tolist()[1] in (0, 2)
    assert similarity.tolist() == [0, 0.5, 0, 0.5, 0]


def test_a_middle_node_of_high_priority_removes_both_its_neighbours():
    sets = path_of(3)
    decision, kept, *_ = settle_natively(*one_bucket(3), [sets[1], sets[0], sets[2]], 3)
    assert (decision.tolist(), kept.tolist()) == ([0, 1, 1], [-1, 0, 0])


def test_a_chain_from_validation_into_train_removes_all_its_validation_nodes():
    """0 is train; 1 to 3 are validation, joined to it only one through the other."""
    decision, kept, similarity, *_ = settle_natively(*one_bucket(4), path_of(4), 1)
    assert (decision.tolist(), kept.tolist()) == ([0, 2, 2, 2], [-1, 0, 0, 0])
    assert similarity.tolist() == [0, 4 / 8, 2 / 10, 0]


def test_a_validation_node_near_a_dropped_train_node_is_dropped():
    """0 ~ 1 ~ 2, 0 and 1 of train: 1 is dropped for 0; 2 is near 1 only, and names 0, which is kept."""
    decision, kept, *_ = settle_natively(*one_bucket(3), path_of(3), 2)
    assert (decision.tolist(), kept.tolist()) == ([0, 1, 2], [-1, 0, 0])


def test_a_validation_node_takes_the_name_of_the_first_dropped_train_node_near_it():
    """2 and 3 of train go for 0 and 1; the held-out 4 shares two buckets with 2 and 3, but none with 0 and 1.

    The first bucket contains 3, and the last node added to the other is 3 too; nevertheless 2 comes first.
    """
    text = np.arange(5, dtype=np.uint64)
    buckets = np.array([[0, -1, -1], [1, -1, -1], [0, 2, -1], [1, 2, 3], [3, 2, -1]], np.int32)
    decision, kept, similarity, *_ = settle_natively(np.zeros((5, K), np.uint8), buckets, [text] * 5, 4)
    assert (decision.tolist(), kept.tolist()) == ([0, 0, 1, 1, 2], [-1, -1, 0, 1, 0])
    assert similarity.tolist() == [0, 0, 1, 1, 1]


def test_a_node_joined_to_train_only_through_validation_takes_the_first_name_in_its_component():
    """4 ~ 2 ~ 1 and 4 ~ 3 ~ 0, with 0 and 1 of train: 2 comes before 3, but 0 before 1."""
    text = np.arange(5, dtype=np.uint64)
    buckets = np.array([[0, -1], [1, -1], [1, 2], [0, 3], [2, 3]], np.int32)
    decision, kept, *_ = settle_natively(np.zeros((5, K), np.uint8), buckets, [text] * 5, 2)
    assert (decision.tolist(), kept.tolist()) == ([0, 0, 2, 2, 2], [-1, -1, 1, 0, 0])


def test_fixed_nodes_stay_and_remove_what_is_near_them():
    """0 ~ 1 ~ 2 ~ 3 ~ 4, all of train: 1 and 2 are in the index, so they stay although they are near each other."""
    decision, kept, *_ = settle_natively(*one_bucket(5), path_of(5), 5, fixed=[0, 1, 1, 0, 0])
    assert decision.tolist() == [1, 0, 0, 1, 0]
    assert kept.tolist() == [1, -1, -1, 2, -1]


def test_a_train_node_near_a_fixed_validation_node_is_dropped_and_no_longer_counts_as_train():
    """0 ~ 1 ~ 2: 0 is train, 1 and 2 validation, and the 1 is fixed. 2 is dropped for 1, not for train."""
    decision, kept, *_ = settle_natively(*one_bucket(3), path_of(3), 1, fixed=[0, 1, 0])
    assert (decision.tolist(), kept.tolist()) == ([1, 0, 1], [1, -1, 1])


def test_a_chain_to_a_fixed_train_node_removes_validation_nodes_but_not_fixed_ones():
    """0 ~ 1 ~ 2 ~ 3: 0 is fixed train, 1 to 3 validation, 2 fixed. The chain ends at 2; 3 is its duplicate."""
    decision, kept, *_ = settle_natively(*one_bucket(4), path_of(4), 1, fixed=[1, 0, 1, 0])
    assert (decision.tolist(), kept.tolist()) == ([0, 2, 0, 1], [-1, 0, -1, 2])


def test_validation_alone_is_decided_like_train():
    assert settle_natively(*one_bucket(4), path_of(4), 0)[0].tolist() == [0, 1, 0, 1]


def test_pairs_below_the_signature_check_or_without_a_common_bucket_have_no_edge():
    signatures, buckets = one_bucket(2)
    sets = path_of(1) * 2
    signatures[1, :4] = 7
    assert settle_natively(signatures, buckets, sets, 2, min_agreement=4)[0].tolist() == [0, 1]
    assert settle_natively(signatures, buckets, sets, 2, min_agreement=5)[0].tolist() == [0, 0]
    assert settle_natively(signatures, np.array([[0], [1]], np.int32), sets, 2)[0].tolist() == [0, 0]
    assert settle_natively(signatures, np.array([[-1], [-1]], np.int32), sets, 2)[0].tolist() == [0, 0]


def test_a_full_bucket_is_counted_and_other_buckets_still_find_the_pair():
    """Three unlike nodes and a copy of the third share bucket 0, which remembers two; bucket 1 has the last pair."""
    sets = [np.arange(10 * node, 10 * node + 5, dtype=np.uint64) for node in (0, 1, 2, 2)]
    signatures, buckets = one_bucket(4)
    decision, _, _, _, beyond_limit = settle_natively(signatures, buckets, sets, 4, bucket_limit=2)
    assert (decision.tolist(), beyond_limit) == ([0, 0, 0, 0], 2)
    both = np.array([[0, -1], [0, -1], [0, 1], [0, 1]], np.int32)
    decision, kept, _, _, _ = settle_natively(signatures, both, sets, 4, bucket_limit=2)
    assert (decision.tolist(), kept.tolist()) == ([0, 0, 0, 1], [-1, -1, -1, 2])


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
    """A world in which `copies` have one text and the others empty sets; four nodes are of train."""
    sets = [np.arange(node in copies, dtype=np.uint64) for node in range(len(buckets))]
    return np.zeros((len(buckets), K), np.uint8), np.array(buckets, np.int32), sets, 4, 0.3, 0, [False] * len(sets)


# Two train nodes with equal texts, 1 and 3, are joined only through validation: 10 has an edge to neither.
FAR_COPIES = [[0, 0], [-1, 2], [0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [0, 2], [0, 0], [0, 0], [1, 1]]


@settings(max_examples=60)
@given(worlds())
@example(copies_in(FAR_COPIES, {1, 3, 4, 10}))
@example(copies_in(FAR_COPIES, {1, 3, 4, 7, 10}))
def test_native_equals_twin(world):
    signatures, buckets, sets, n_train, threshold, least, fixed = world
    twin = reference.settle(signatures, buckets, sets, n_train, threshold, least, fixed)
    decision, kept, similarity, *_ = settle_natively(signatures, buckets, sets, n_train, threshold, least, fixed=fixed)
    assert (decision.tolist(), kept.tolist(), similarity.tolist()) == (twin.decision, twin.kept, twin.similarity)
