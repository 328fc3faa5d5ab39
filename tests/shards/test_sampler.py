"""The order of samples: each window once an epoch, the same for any number of processes, exact after a restart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError
from webtext.shards import Sampler, TokenShards
from webtext.shards.sampler import ORDER_VERSION, WindowOrder

Make = Callable[..., TokenShards]
GOLDEN = [48, 13, 20, 55, 27, 41, 6, 34, 49, 35, 14, 28, 7, 21, 42, 0]


def ring(shards: TokenShards) -> Any:
    return np.concatenate([shards.tokens(i) for i in range(len(shards))]).astype(np.int64)


def samples(sampler: Sampler, n_batches: int) -> list[list[list[int]]]:
    return [batch.tolist() for batch in itertools.islice(sampler, n_batches)]


@pytest.fixture
def shards(shards_of: Make) -> TokenShards:
    """Three parts of 60 + 1, 25 + 1 and 9 + 1 tokens: 97 in all, across three files."""
    letters = "".join(chr(ord("0") + i) for i in range(60))
    return shards_of([[letters], ["abcdefghijklmnopqrstuvwxy"], ["ABCDEFGHI"]])


def test_a_batch_holds_windows_of_context_plus_one(shards: TokenShards) -> None:
    batch = next(Sampler(shards, context=8, batch_size=3))
    assert (batch.shape, batch.dtype) == ((3, 9), np.int64)


def test_each_window_comes_once_an_epoch(shards: TokenShards) -> None:
    """97 tokens and a context of 8 make 12 windows; in each epoch they are cut from that epoch's own offset."""
    sampler = Sampler(shards, context=8, batch_size=4, seed=3)
    assert sampler.n_windows == 12
    twice = np.tile(ring(shards), 2)
    offsets = set()
    for epoch in range(4):
        seen = sorted(window for batch in samples(sampler, 3) for window in batch)
        offset = sampler.order.offset(epoch)
        assert seen == sorted(twice[offset + 8 * i : offset + 8 * i + 9].tolist() for i in range(12))
        offsets.add(offset)
    assert sampler.epoch == 4
    assert len(offsets) > 1


@given(n_tokens=st.integers(2, 400), context=st.integers(1, 20), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_an_epoch_covers_the_ring_without_overlap(n_tokens: int, context: int, seed: int, epoch: int) -> None:
    order = WindowOrder(n_tokens, context, seed)
    if order.n_windows == 0:
        return
    starts = [order.start(epoch * order.n_windows + k) for k in range(order.n_windows)]
    targets = [(start + 1 + i) % n_tokens for start in starts for i in range(context)]
    assert len(set(targets)) == len(targets) == order.n_windows * context > n_tokens - context


def test_orders_longer_than_a_block_are_whole() -> None:
    order = WindowOrder(n_tokens=20_000, context=2, seed=1)
    assert len({order.start(g) for g in range(10_000)}) == 10_000
    assert [order.start(g) for g in (9_999, 0, 5_000)] == [
        WindowOrder(20_000, 2, 1).start(g) for g in (9_999, 0, 5_000)
    ]


def test_epochs_and_seeds_differ(shards: TokenShards) -> None:
    first = Sampler(shards, context=8, batch_size=12, seed=0)
    assert samples(first, 1) != samples(first, 1)
    assert samples(Sampler(shards, context=8, batch_size=12, seed=0), 1) != samples(
        Sampler(shards, context=8, batch_size=12, seed=1), 1
    )


@pytest.mark.parametrize("world_size", [2, 3, 6])
def test_a_step_has_the_same_samples_for_any_number_of_processes(shards: TokenShards, world_size: int) -> None:
    alone = samples(Sampler(shards, context=8, batch_size=6), 7)
    ranks = [
        Sampler(shards, context=8, batch_size=6 // world_size, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    together = [[window for rank in ranks for window in next(rank).tolist()] for _ in range(7)]
    assert together == alone
    assert all(rank.samples_consumed == 42 for rank in ranks)


@pytest.mark.parametrize("consumed", [0, 1, 2, 3, 5, 11])
def test_a_restart_in_mid_epoch_goes_on_exactly(shards: TokenShards, consumed: int) -> None:
    undisturbed = Sampler(shards, context=8, batch_size=5)
    samples(undisturbed, consumed)
    state = undisturbed.state_dict()
    again = Sampler(shards, context=8, batch_size=5)
    again.load_state_dict(state)
    assert samples(again, 6) == samples(undisturbed, 6)


def test_a_restart_may_change_batch_size_and_processes(shards: TokenShards) -> None:
    first = Sampler(shards, context=8, batch_size=6)
    samples(first, 3)
    second = Sampler(shards, context=8, batch_size=3, rank=1, world_size=2)
    second.load_state_dict(first.state_dict())
    assert next(second).tolist() == next(first).tolist()[3:]


@pytest.mark.parametrize(("changed", "named"), [({"seed": 1}, "seed 0"), ({"context": 4}, "context 8")])
def test_the_state_of_another_order_is_refused(shards: TokenShards, changed: dict[str, int], named: str) -> None:
    state = Sampler(shards, context=8, seed=0).state_dict()
    with pytest.raises(InputError, match=f"another order of samples: {named}"):
        Sampler(shards, **({"context": 8, "seed": 0} | changed)).load_state_dict(state)


def test_the_state_of_other_tokens_is_refused(shards_of: Make) -> None:
    state = Sampler(shards_of([["abcdefghijkl"]]), context=4).state_dict()
    with pytest.raises(InputError, match=r"another order of samples: tokens [0-9a-f]{64}"):
        Sampler(shards_of([["abcdefghijkm"]]), context=4).load_state_dict(state)


@pytest.mark.parametrize(
    "state", [{}, {"samples_consumed": 3}, {"samples_consumed": None, "order": {}, "fingerprint": ""}]
)
def test_what_is_no_state_is_refused(shards: TokenShards, state: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no state of a sampler"):
        Sampler(shards, context=8).load_state_dict(state)


def test_an_altered_fingerprint_or_count_is_refused(shards: TokenShards) -> None:
    state = Sampler(shards, context=8).state_dict()
    for altered in ({"fingerprint": "0" * 64}, {"samples_consumed": -1}):
        with pytest.raises(InputError, match="another order"):
            Sampler(shards, context=8).load_state_dict(state | altered)


def test_a_context_longer_than_the_corpus_is_refused_with_both_numbers(shards: TokenShards) -> None:
    with pytest.raises(InputError, match=r"train split .* has 97 tokens; a context of 97 needs more"):
        Sampler(shards, context=97)
    assert Sampler(shards, context=96).n_windows == 1


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"rank": 2, "world_size": 2}, {"rank": -1}, {"context": 0}])
def test_settings_that_cannot_be_are_refused(shards: TokenShards, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Sampler(shards, **({"context": 8} | wrong))


def test_an_empty_validation_split_is_refused(shards: TokenShards) -> None:
    empty = TokenShards(shards.set.folder.url, "validation")
    assert (len(empty), empty.n_tokens, empty.n_documents) == (0, 0, 0)
    with pytest.raises(InputError, match="the validation split .* has 0 tokens"):
        Sampler(empty, context=8)


def test_the_order_of_a_seed_is_the_same_on_every_machine() -> None:
    """Pinned: when this changes, ORDER_VERSION rises, and runs of before are refused rather than mixed up."""
    order = WindowOrder(n_tokens=60, context=7, seed=5)
    assert ORDER_VERSION == 1
    assert [order.start(g) for g in range(16)] == GOLDEN
