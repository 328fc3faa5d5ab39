"""The blocks of each stage, and the stages of each rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.train.mesh import (
    SCHEDULES,
    blocks_of_stage,
    check_microbatches,
    n_stages,
    rank_of_stage,
    stages_of_rank,
)


@given(st.integers(1, 40), st.integers(0, 100))
def test_stages_hold_all_blocks_in_order_and_the_last_none_too_many(n: int, more: int) -> None:
    n_layer = n + more
    runs = [blocks_of_stage(n_layer, n, stage) for stage in range(n)]
    assert [block for run in runs for block in run] == list(range(n_layer))
    sizes = [len(run) for run in runs]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == min(sizes)


def test_fewer_layers_than_stages_are_rejected() -> None:
    with pytest.raises(ConfigError, match="3 layers do not fill 4 pipeline stages"):
        blocks_of_stage(3, 4, 0)


@given(st.sampled_from(SCHEDULES), st.integers(1, 9))
def test_every_stage_is_on_one_rank(schedule: str, pp: int) -> None:
    held = [stage for rank in range(pp) for stage in stages_of_rank(schedule, rank, pp)]
    assert sorted(held) == list(range(n_stages(schedule, pp)))
    assert all(stage in stages_of_rank(schedule, rank_of_stage(schedule, stage, pp), pp) for stage in held)


def test_a_v_brings_the_first_and_the_last_stage_together() -> None:
    assert [stages_of_rank("zbv", rank, 3) for rank in range(3)] == [[0, 5], [1, 4], [2, 3]]
    assert [stages_of_rank("interleaved", rank, 3) for rank in range(3)] == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("schedule", "n_microbatches", "expected"),
    [("1f1b", 3, "at least 4"), ("zbv", 3, "at least 4"), ("interleaved", 6, "a multiple of 4")],
)
def test_a_step_of_too_few_microbatches_is_rejected(schedule: str, n_microbatches: int, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        check_microbatches(schedule, n_microbatches, 4)
    check_microbatches(schedule, n_microbatches, 1)
    check_microbatches(schedule, 8, 4)
