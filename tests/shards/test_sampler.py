"""The order of samples: each window once per epoch, equal for any number of processes, and exact after a restart."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError
from webtext.shards import Sampler, TokenShards
from webtext.shards.sampling.sampler import Mixture
from webtext.shards.sampling.stream import ORDER_VERSION
from webtext.shards.sampling.windows import RingWindows

from .conftest import ByteTokenizer

Make = Callable[..., TokenShards]
GOLDEN = [82, 90, 34, 26, 42, 74, 10, 66, 58, 50, 18, 2, 50, 18, 2, 10]


def ring(shards: TokenShards) -> Any:
    return np.concatenate([shards.tokens(i) for i in range(len(shards))]).astype(np.int64)


def samples(sampler: Sampler, n_batches: int) -> list[list[list[int]]]:
    return [batch.tolist() for batch in itertools.islice(sampler, n_batches)]


@pytest.fixture
def shards(shards_of: Make) -> TokenShards:
    """Three parts of 60 + 1, 25 + 1 and 9 + 1 tokens: 97 in three files."""
    letters = "".join(chr(ord("0") + i) for i in range(60))
    return shards_of([[letters], ["abcdefghijklmnopqrstuvwxy"], ["ABCDEFGHI"]])


def test_each_window_comes_once_an_epoch(shards: TokenShards) -> None:
    """97 tokens and a context of 8 make 12 windows; each epoch cuts them from its own offset."""
    sampler = Sampler(shards, context=8, batch_size=4, seed=3)
    assert sampler.n_windows == 12
    twice = np.tile(ring(shards), 2)
    offsets = set()
    windows = sampler.streams[0].windows
    assert isinstance(windows, RingWindows)
    for epoch in range(4):
        seen = sorted(window for batch in samples(sampler, 3) for window in batch)
        offset = windows.offset(epoch)
        assert seen == sorted(twice[offset + 8 * i : offset + 8 * i + 9].tolist() for i in range(12))
        offsets.add(offset)
    assert len(offsets) > 1


def test_epochs_and_seeds_differ(shards: TokenShards) -> None:
    first, other = (Sampler(shards, context=8, batch_size=12, seed=seed) for seed in (0, 1))
    assert len({str(samples(each, 1)) for each in (first, other, first)}) == 3


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
def test_a_restart_in_mid_epoch_resumes_exactly(shards: TokenShards, consumed: int) -> None:
    undisturbed = Sampler(shards, context=8, batch_size=5)
    samples(undisturbed, consumed)
    state = undisturbed.state_dict()
    again = Sampler(shards, context=8, batch_size=5)
    again.load_state_dict(state)
    assert samples(again, 6) == samples(undisturbed, 6)


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
def test_an_invalid_state_is_rejected(shards: TokenShards, state: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not the state of a sampler"):
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


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"rank": 2, "world_size": 2}, {"context": 0}, {"seed": 2**65}])
def test_impossible_settings_are_rejected(shards: TokenShards, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"expected -?\d+ to \d+"):
        Sampler(shards, **({"context": 8} | wrong))


def test_numbers_of_other_libraries_make_the_same_order_and_state(shards: TokenShards) -> None:
    same = {"context": 8, "batch_size": 2, "seed": 3, "rank": 1, "world_size": 2, "block_bytes": 48, "group_blocks": 2}
    plain = Sampler([shards, shards], weights=[3, 1], **same)
    theirs: Any = {name: np.int16(value) for name, value in same.items()} | {"crosses_documents": np.bool_(True)}
    for weights in (np.array([3, 1]), np.array([3, 1], np.float32), iter([3, 1])):
        sampler = Sampler([shards, shards], weights=weights, **theirs)
        assert samples(sampler, 9) == samples(plain, 9)
        assert json.dumps(sampler.state_dict()) == json.dumps(plain.state_dict())
        plain.samples_consumed = 0


@pytest.mark.parametrize("value", [2.0, np.float64(2), "2", True, np.ones(2)], ids=repr)
def test_what_is_not_an_integer_is_rejected_at_the_start_by_its_name(shards: TokenShards, value: Any) -> None:
    for name in ("context", "batch_size", "seed", "rank", "world_size", "block_bytes", "group_blocks"):
        with pytest.raises(ConfigError, match=f"{name} is .*{type(value).__name__}"):
            Sampler(shards, **({"context": 8} | {name: value}))


def test_an_empty_validation_split_is_refused(shards: TokenShards) -> None:
    empty = TokenShards(shards.set.folder.url, "validation")
    assert (len(empty), empty.n_tokens, empty.n_documents) == (0, 0, 0)
    with pytest.raises(InputError, match="the validation split .* has 0 tokens"):
        Sampler(empty, context=8)


def test_the_order_of_a_seed_is_the_same_on_every_machine(shards: TokenShards) -> None:
    """If this changes, raise ORDER_VERSION, so that older runs are rejected instead of mixed up."""
    stream = Sampler(shards, context=8, seed=5, block_bytes=48, group_blocks=2).streams[0]
    assert ORDER_VERSION == 2
    assert [stream.place(g)[0] for g in range(16)] == GOLDEN


@pytest.mark.parametrize("group_blocks", [1, 2, 3, None])
def test_each_window_comes_once_an_epoch_whatever_the_groups(shards: TokenShards, group_blocks: int | None) -> None:
    """Blocks of 48 bytes contain 3 windows of 8 tokens of two bytes, so 12 windows make 4 blocks."""
    grouped = Sampler(shards, context=8, batch_size=12, seed=3, block_bytes=48, group_blocks=group_blocks)
    alike = Sampler(shards, context=8, batch_size=12, seed=3)
    for _ in range(3):
        assert sorted(next(grouped).tolist()) == sorted(next(alike).tolist())


def test_samples_of_a_group_come_from_its_blocks_alone(shards: TokenShards) -> None:
    stream = Sampler(shards, context=8, seed=3, block_bytes=48, group_blocks=2).streams[0]
    windows = [(stream.place(g)[0] - stream.windows.extent(0, 0, 0)[0]) % 97 // 8 for g in range(12)]
    order = stream.order(0)
    assert [{w // 3 for w in windows[:6]}, {w // 3 for w in windows[6:]}] == [
        set(order.blocks(0)),
        set(order.blocks(1)),
    ]


def test_another_grouping_is_another_order(shards: TokenShards) -> None:
    state = Sampler(shards, context=8).state_dict()
    for changed in ({"group_blocks": None}, {"block_bytes": 48}, {"crosses_documents": False}):
        with pytest.raises(InputError, match=f"another order of samples: {next(iter(changed))}"):
            Sampler(shards, context=8, **changed).load_state_dict(state)


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<i4", "<i8"])
def test_a_batch_may_be_written_into_an_array_of_the_callers(shards: TokenShards, dtype: str) -> None:
    out = np.zeros((3, 9), dtype)
    expected = next(Sampler(shards, context=8, batch_size=3))
    assert expected.dtype == np.int64
    assert Sampler(shards, context=8, batch_size=3).fill(out) is out
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("out", [np.zeros((3, 8), np.uint16), np.zeros((3, 9), np.uint8), np.zeros((3, 9), np.float32)])
def test_an_array_that_cannot_hold_a_batch_is_refused(shards: TokenShards, out: Any) -> None:
    with pytest.raises(ConfigError, match="expected"):
        Sampler(shards, context=8, batch_size=3).fill(out)


def test_windows_inside_documents_are_filled_up_with_end_of_text(shards_of: Make) -> None:
    """With a context of 2, the 6 tokens '|abcde' make the windows |ab, bcd, de|, and '|f' makes one window."""
    shards = shards_of([["abcde", "f"], ["gh"]])
    sampler = Sampler(shards, context=2, batch_size=6, crosses_documents=False)
    seen = ["".join("|" if token == 256 else chr(token) for token in window) for window in next(sampler)]
    assert sorted(seen) == ["bcd", "de|", "h||", "|ab", "|f|", "|gh"]


def test_a_mixture_keeps_its_weights_and_each_sources_own_order(shards_of: Make, tmp_path: Path) -> None:
    first, second = shards_of([["abcdefghijklmnopqrstuvwxyz"]]), shards_of([["ABCDEFGH"]], folder="second")
    mixed = Sampler([first, second], context=2, batch_size=4, weights=[3, 1])
    seen = [window for batch in samples(mixed, 20) for window in batch]
    of_second = [window for window in seen if min(window) < ord("a")]
    assert len(of_second) == 20
    alone = Sampler(second, context=2, batch_size=4)
    assert of_second == [window for batch in samples(alone, 5) for window in batch]
    assert mixed.mixture.counts(np.arange(5)).tolist() == [[0, 1, 2, 2, 3], [0, 0, 0, 1, 1]]


def test_a_mixture_restarts_exactly_and_is_independent_of_processes(shards_of: Make) -> None:
    first, second = shards_of([["abcdefghijklmnopqrstuvwxyz"]]), shards_of([["ABCDEFGH"]], folder="second")
    alone = Sampler([first, second], context=2, batch_size=6, weights=[1, 2])
    batches = samples(alone, 9)
    again = Sampler([first, second], context=2, batch_size=3, rank=1, world_size=2, weights=[1, 2])
    alone.samples_consumed = 24
    again.load_state_dict(alone.state_dict())
    assert samples(again, 5) == [batch[3:] for batch in batches[4:]]
    with pytest.raises(InputError, match="another order of samples: weights"):
        Sampler([first, second], context=2, weights=[1, 1]).load_state_dict(alone.state_dict())


WRONG: list[Any] = [[1], [1, 0], [1, -1], [1, float("nan")], 5, "12", {1: 2}, [1, "x"], []]
WRONG += [np.ones((2, 2)), [1, 10**400], [1e308] * 2]


@pytest.mark.parametrize("weights", WRONG)
def test_impossible_weights_are_rejected(shards: TokenShards, weights: Any) -> None:
    with pytest.raises(ConfigError, match="weight"):
        Sampler([shards, shards], context=8, weights=weights)


@pytest.mark.parametrize("given", ["tokens", ["tokens"]])
def test_the_name_of_a_set_is_not_a_set(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"token sets are \['tokens'\] \(list\)\nexpected TokenShards"):
        Sampler(given)


def test_sets_of_two_tokenizers_do_not_mix(shards_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shards_of([["abcdef"]])
    other = ByteTokenizer(name="other")
    monkeypatch.setattr("webtext.shards.writing.pack.load_tokenizer", lambda _: other)
    with pytest.raises(InputError, match="packed with another tokenizer"):
        Sampler([first, shards_of([["abcdef"]], folder="other")], context=2)


@given(weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=8), first=st.integers(0, 10**12))
def test_every_sample_comes_from_one_source_and_shares_hold_all_along(weights: list[float], first: int) -> None:
    mixture = Mixture(weights)
    samples = np.arange(first, first + 200)
    counts = mixture.counts(samples)
    assert np.array_equal(counts.sum(axis=0), samples)
    assert set(np.diff(counts, axis=1).ravel().tolist()) <= {0, 1}
    shares = np.array(mixture.parts) / sum(mixture.parts)
    assert np.abs(counts - shares[:, None] * samples).max() <= (2 + np.log(len(weights))) / 2 + 1e-3
