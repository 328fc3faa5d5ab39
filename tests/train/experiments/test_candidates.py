"""The candidates of a sweep: the grid, the best of them, and what is said about the winner."""

from __future__ import annotations

import math

import pytest

from webtext.base.errors import ConfigError
from webtext.base.run import Run
from webtext.train.experiments.sweep import Losses, make_grid, mean_loss, order_note, run_sweep, swept
from webtext.train.settings import ExperimentSettings, TrainSettings


def test_all_combinations_are_made_in_order_each_with_its_settings() -> None:
    grid = make_grid(["learning_rate=1e-3,2", "optimizer=adamw,muon"])
    assert list(grid) == [
        "learning_rate=0.001,optimizer=adamw",
        "learning_rate=0.001,optimizer=muon",
        "learning_rate=2.0,optimizer=adamw",
        "learning_rate=2.0,optimizer=muon",
    ]
    assert grid["learning_rate=2.0,optimizer=muon"] == {"learning_rate": 2.0, "optimizer": "muon"}


def test_values_are_those_of_a_config_file() -> None:
    grid = make_grid(["max-grad-norm=none,0.5"])
    assert grid == {"max_grad_norm=none": {"max_grad_norm": None}, "max_grad_norm=0.5": {"max_grad_norm": 0.5}}


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (["learning_rat=1,2"], "did you mean 'learning_rate'"),
        (["learning_rate"], "not one list of different values"),
        (["learning_rate="], "not one list of different values"),
        (["learning_rate=1e-3"], "two candidates or more"),
        ([], "--over learning_rate=1e-3,2e-3,4e-3"),
        (["learning_rate=fast,slow"], "expected a number"),
        (["learning_rate=1e-3,-1"], "learning_rate is -1.0"),
        (["learning_rate=1e-3,0.001"], "not one list of different values"),
        (["learning_rate=1,2", "learning-rate=3,4"], "not one list of different values"),
        (["optimizer=adamw,sgd"], "optimizer is 'sgd'"),
        (["n_layer=2.5,3"], "expected a whole number"),
        (["seed=0,1"], "--seeds N"),
        (["steps=10,20"], "equal steps"),
        (["stop_at_step=10,20"], "at their ends"),
        (["eval_windows=8,64"], "different windows can't be compared"),
        (["context=128,256"], "can't be compared"),
        (["documents=joined,padded"], "losses of other windows"),
        (["weights=[0.7,0.3],[0.5,0.5]"], "weight the sets' held-out losses"),
    ],
)
def test_a_setting_that_cannot_be_swept_is_rejected(over: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_sweep(["tokens"], over, "out", TrainSettings(), ExperimentSettings(), Run.quiet())


def test_the_best_has_the_lowest_mean_a_missing_loss_has_lost_and_of_equals_the_earlier_wins() -> None:
    table = {"a": [1.0, None], "b": [2.9, 3.1], "c": [2.0, 4.0], "d": [math.nan, 1.0], "e": [2.0, 3.0]}
    found = swept("out", [{"candidate": name, "values": {"x": name}, "losses": of} for name, of in table.items()])
    assert [row["candidate"] for row in found.rows] == ["e", "b", "c", "a", "d"]
    assert [row["loss"] for row in found.rows] == [2.5, 3.0, 3.0, "failed", "failed"]
    assert found.facts["winner"] == {"values": {"x": "e"}, "loss": 2.5}
    assert mean_loss([1.0, None]) == mean_loss([1.0, math.inf]) == math.inf


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
