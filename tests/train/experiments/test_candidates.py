"""The candidates of a sweep: the grid, which of them continue at a rung, and what is said about the winner."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.train.experiments.sweep import (
    FINALISTS,
    Losses,
    Rung,
    halve,
    make_grid,
    mean_loss,
    order_note,
    rung_steps,
    survivor_counts,
)
from webtext.train.settings import TrainSettings

SETTINGS = TrainSettings()


def test_all_combinations_are_made_in_order_each_with_its_settings() -> None:
    grid = make_grid(["learning_rate=1e-3,2", "optimizer=adamw,muon"], SETTINGS)
    assert [candidate.name for candidate in grid] == [
        "learning_rate=0.001,optimizer=adamw",
        "learning_rate=0.001,optimizer=muon",
        "learning_rate=2.0,optimizer=adamw",
        "learning_rate=2.0,optimizer=muon",
    ]
    assert grid[3].settings == TrainSettings.of(learning_rate=2.0, optimizer="muon")


def test_values_are_those_of_a_config_file() -> None:
    assert [each.settings.optimizer.max_grad_norm for each in make_grid(["max-grad-norm=none,0.5"], SETTINGS)] == [
        None,
        0.5,
    ]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (["learning_rat=1,2"], "did you mean 'learning_rate'"),
        (["learning_rate"], "not one list of different values"),
        (["learning_rate="], "not one list of different values"),
        (["learning_rate=1e-3"], "two candidates or more"),
        ([], "--lr 1e-3,2e-3,4e-3"),
        (["learning_rate=fast,slow"], "expected a number"),
        (["learning_rate=1e-3,-1"], "learning_rate is -1.0"),
        (["learning_rate=1e-3,0.001"], "not one list of different values"),
        (["learning_rate=1,2", "learning-rate=3,4"], "not one list of different values"),
        (["optimizer=adamw,sgd"], "optimizer is 'sgd'"),
        (["n_layer=2.5,3"], "expected a whole number"),
        (["device=cpu,cuda"], "does not change the model"),
        (["seed=0,1"], "--seeds N"),
        (["steps=10,20"], "equal steps"),
        (["context=128,256"], "can't be compared"),
        (["weights=[0.7,0.3],[0.5,0.5]"], "weight the sets' held-out losses"),
    ],
)
def test_a_setting_that_cannot_be_swept_is_rejected(over: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_grid(over, SETTINGS)


def test_the_better_half_continues_and_two_run_to_the_end() -> None:
    losses = [5.0, 3.0, 4.0, 2.0, 6.0, 7.0, 8.0, 1.0]
    asked: list[tuple[list[int], int]] = []

    def measure(numbers: Sequence[int], step: int) -> list[Losses]:
        asked.append((list(numbers), step))
        return [(losses[i] / step,) for i in numbers]

    found = halve(8, [10, 20, 40], measure)
    assert asked == [(list(range(8)), 10), ([1, 2, 3, 7], 20), ([3, 7], 40)]
    assert found[-1] == Rung(40, {3: (2 / 40,), 7: (1 / 40,)})
    assert found[-1].ranking() == [7, 3]


def test_a_candidate_with_a_loss_that_is_not_finite_has_lost() -> None:
    table: dict[int, Losses] = {0: (1.0, None), 1: (3.0, 3.0), 2: (math.nan, 1.0), 3: (4.0, 5.0)}
    found = halve(4, [1, 2], lambda numbers, step: [table[i] for i in numbers])
    assert list(found[1].losses) == [1, 3]
    assert mean_loss((1.0, None)) == math.inf
    assert mean_loss((1.0, math.inf)) == math.inf


def test_if_all_fail_it_ends_there() -> None:
    found = halve(3, [1, 2, 4], lambda numbers, step: [(None,) for _ in numbers])
    assert [rung.step for rung in found] == [1]
    assert found[-1].ranking() == []


def test_of_equal_losses_the_earlier_continues() -> None:
    found = halve(4, [1, 2], lambda numbers, step: [(1.0,) for _ in numbers])
    assert list(found[1].losses) == [0, 1]


def test_rungs_are_rounded_up_and_never_below_a_step() -> None:
    assert rung_steps(10, (0.25, 0.5, 1.0)) == [3, 5, 10]
    assert rung_steps(1, (0.25, 0.5, 1.0)) == [1]
    assert rung_steps(7, (1.0,)) == [7]


@given(st.integers(2, 40), st.integers(1, 5))
def test_as_many_candidates_run_as_are_planned(n: int, n_rungs: int) -> None:
    ran: list[int] = []

    def measure(numbers: Sequence[int], step: int) -> list[Losses]:
        ran.append(len(numbers))
        return [(float(i),) for i in numbers]

    halve(n, range(1, n_rungs + 1), measure)
    assert ran == survivor_counts(n, n_rungs) == sorted(ran, reverse=True)
    assert ran[-1] >= min(n, FINALISTS)


NAMES = ["low", "middle", "high"]


def test_one_seed_shows_no_order_and_says_so() -> None:
    note = order_note(Rung(10, {0: (4.02,), 1: (4.0,)}), NAMES)
    assert note.startswith("One seed: the effect of chance is not known, so the order of middle and low, 0.0200 apart")


def test_a_lead_within_the_seeds_spread_is_not_a_lead() -> None:
    note = order_note(Rung(10, {0: (4.0, 4.2, 4.1), 1: (4.0, 4.18, 4.08), 2: (5.0, 5.0, 5.0)}), NAMES)
    assert note.startswith(
        "The order of middle and low, 0.0133 apart, is not shown: its 95 % interval by other seeds is ± 0.21"
    )
    assert "Use more --seeds" in note


def test_a_lead_of_many_spreads_is_one() -> None:
    note = order_note(Rung(10, {0: (4.01, 4.0, 4.02), 2: (3.01, 3.0, 3.02)}), NAMES)
    assert note.startswith("high and low, 1.0000 apart: its 95 % interval by other seeds is ± 0.02")


def test_a_winner_alone_is_compared_with_none() -> None:
    assert "compared with none" in order_note(Rung(10, {0: (4.0,), 1: (None,)}), NAMES)
