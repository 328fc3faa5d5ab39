"""A pipeline: the blocks of each stage, the stages of each rank, and what a stage returns."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.train import GPT2, GPT2Config
from webtext.train.data.windows import WindowRules
from webtext.train.mesh import SCHEDULES, blocks_of_stage, check_microbatches, n_stages, stages_of_rank
from webtext.train.parallel.stage import Stage


@given(st.integers(1, 40), st.integers(0, 100))
def test_stages_hold_all_blocks_in_order_and_the_last_none_too_many(n: int, more: int) -> None:
    n_layer = n + more
    runs = [blocks_of_stage(n_layer, n, stage) for stage in range(n)]
    assert [block for run in runs for block in run] == list(range(n_layer))
    sizes = [len(run) for run in runs]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == min(sizes)


@given(st.sampled_from(SCHEDULES), st.integers(1, 9))
def test_every_stage_is_on_one_rank(schedule: str, pp: int) -> None:
    held = [stage for rank in range(pp) for stage in stages_of_rank(schedule, rank, pp)]
    assert sorted(held) == list(range(n_stages(schedule, pp)))
    assert all(stage in stages_of_rank(schedule, stage % pp, pp) for stage in held)


def test_interleaved_stages_go_round_the_ranks() -> None:
    assert [stages_of_rank("interleaved", rank, 3) for rank in range(3)] == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("schedule", "n_microbatches", "expected"), [("1f1b", 3, "at least 4"), ("interleaved", 6, "a multiple of 4")]
)
def test_a_step_of_too_few_microbatches_is_rejected(schedule: str, n_microbatches: int, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        check_microbatches(schedule, n_microbatches, 4)
    check_microbatches(schedule, n_microbatches, 1)
    check_microbatches(schedule, 8, 4)


CONFIG = GPT2Config(n_layer=2, n_head=2, n_embd=8, context=8, vocab_size=32)


def test_two_stages_return_the_complete_models_loss_and_no_view() -> None:
    tokens_bt = torch.randint(32, (2, 9), generator=torch.Generator().manual_seed(1))
    inputs_bt, model = tokens_bt[:, :-1], GPT2(CONFIG)
    whole = Stage(model, range(2), torch.float64, WindowRules())(inputs_bt, tokens_bt)
    pads = WindowRules(pads=True)  # of which there is none, so that all targets count
    first, last = (Stage(model, blocks, torch.float64, pads) for blocks in (range(1), range(1, 2)))
    loss = last(first(inputs_bt, tokens_bt), tokens_bt)
    torch.testing.assert_close(loss, whole)
    assert whole.shape == (1,)
    assert whole._base is None
    assert loss._base is None
