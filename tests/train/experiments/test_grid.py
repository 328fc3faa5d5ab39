"""Grids: combinations in order, values of the setting's type, and settings that can't be compared are rejected."""

from __future__ import annotations

import pytest

from webtext.base.errors import ConfigError
from webtext.train.experiments.grid import make_grid
from webtext.train.settings import TrainSettings

SETTINGS = TrainSettings()


def test_all_combinations_are_made_in_order_each_with_its_settings() -> None:
    grid = make_grid(["learning_rate=1e-3,2", "optimizer=adamw,muon"], SETTINGS)
    assert [candidate.name for candidate in grid] == [
        "learning_rate=0.001, optimizer=adamw",
        "learning_rate=0.001, optimizer=muon",
        "learning_rate=2.0, optimizer=adamw",
        "learning_rate=2.0, optimizer=muon",
    ]
    assert grid[3].settings == TrainSettings.of(learning_rate=2.0, optimizer="muon")
    assert grid[1].folder == "learning_rate=0.001,optimizer=muon"


def test_values_are_those_of_a_config_file() -> None:
    assert [each.settings.optimizer.max_grad_norm for each in make_grid(["max-grad-norm=none,0.5"], SETTINGS)] == [
        None,
        0.5,
    ]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (["learning_rat=1,2"], "did you mean 'learning_rate'"),
        (["learning_rate"], "no values"),
        (["learning_rate="], "no values"),
        (["learning_rate=1e-3"], "two candidates or more"),
        ([], "--lr 1e-3,2e-3,4e-3"),
        (["learning_rate=fast,slow"], "expected a number"),
        (["learning_rate=1e-3,-1"], "learning_rate is -1.0"),
        (["learning_rate=1e-3,0.001"], "0.001 appears twice"),
        (["learning_rate=1,2", "learning-rate=3,4"], "swept twice"),
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
