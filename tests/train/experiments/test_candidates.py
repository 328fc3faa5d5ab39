"""The candidates of a sweep: the grid, which of them continue at a rung, and what is said about the winner."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.train.experiments.sweep import FINALISTS, Losses, halve, make_grid, mean_loss, order_note, survivor_counts
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
    grid = make_grid(["max-grad-norm=none,0.5"], SETTINGS)
    assert [each.settings.optimizer.max_grad_norm for each in grid] == [None, 0.5]


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
    table = dict(zip("abcdefgh", [5.0, 3.0, 4.0, 2.0, 6.0, 7.0, 8.0, 1.0], strict=True))
    asked: list[tuple[str, int]] = []

    def measure(names: Sequence[str], step: int) -> list[Losses]:
        asked.append(("".join(names), step))
        return [[table[name] / step] for name in names]

    losses, best = halve("abcdefgh", [10, 20, 40], measure)
    assert asked == [("abcdefgh", 10), ("bcdh", 20), ("dh", 40)]
    assert best == ["h", "d"]
    assert losses["d"] == {10: [2 / 10], 20: [2 / 20], 40: [2 / 40]}
    assert losses["a"] == {10: [5 / 10]}


def test_a_candidate_with_a_loss_that_is_not_finite_has_lost() -> None:
    table: dict[str, Losses] = {"a": [1.0, None], "b": [3.0, 3.0], "c": [math.nan, 1.0], "d": [4.0, 5.0]}
    losses, best = halve("abcd", [1, 2], lambda names, step: [table[name] for name in names])
    assert [name for name in losses if 2 in losses[name]] == best == ["b", "d"]
    assert mean_loss([1.0, None]) == mean_loss([1.0, math.inf]) == math.inf


def test_if_all_fail_it_ends_there() -> None:
    losses, best = halve("abc", [1, 2, 4], lambda names, step: [[None] for _ in names])
    assert {tuple(of) for of in losses.values()} == {(1,)}
    assert best == []


def test_of_equal_losses_the_earlier_continues() -> None:
    losses, _ = halve("abcd", [1, 2], lambda names, step: [[1.0] for _ in names])
    assert [name for name in losses if 2 in losses[name]] == ["a", "b"]


@given(st.integers(2, 40), st.integers(1, 5))
def test_as_many_candidates_run_as_are_planned(n: int, n_rungs: int) -> None:
    ran: list[int] = []

    def measure(names: Sequence[str], step: int) -> list[Losses]:
        ran.append(len(names))
        return [[float(name)] for name in names]

    halve([str(i) for i in range(n)], range(1, n_rungs + 1), measure)
    assert ran == survivor_counts(n, n_rungs) == sorted(ran, reverse=True)
    assert ran[-1] >= min(n, FINALISTS)


@pytest.mark.parametrize(
    ("last", "note"),
    [
        (
            {"middle": [4.0], "low": [4.02]},
            "One seed: the effect of chance is not known, so the order of middle and low, 0.0200 apart",
        ),
        (
            {"middle": [4.0, 4.18, 4.08], "low": [4.0, 4.2, 4.1]},
            "The order of middle and low, 0.0133 apart, is not shown: its 95 % interval by other seeds is ± 0.21",
        ),
        (
            {"high": [3.01, 3.0, 3.02], "low": [4.01, 4.0, 4.02]},
            "high and low, 1.0000 apart: its 95 % interval by other seeds is ± 0.02",
        ),
        ({"low": [4.0]}, "No other candidate ran to the end, so the winner is compared with none there."),
    ],
)
def test_whether_the_order_of_the_best_two_is_shown(last: dict[str, Losses], note: str) -> None:
    """A lead needs several seeds, and has to be larger than its interval by other seeds."""
    assert order_note(last).startswith(note)
