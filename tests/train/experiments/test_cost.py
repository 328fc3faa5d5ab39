"""The cost of an experiment: runs, tokens, operations, time from some steps of the largest, disk from checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from webtext.base.config import changed
from webtext.base.run import Run
from webtext.train import TrainSettings
from webtext.train.experiments import cost as module
from webtext.train.experiments.cost import cost_of
from webtext.train.experiments.settings import ExperimentSettings
from webtext.train.experiments.trials import Trial
from webtext.train.plan.plan import flops_per_token


@pytest.fixture
def trials(tokens: str, settings: TrainSettings) -> list[Trial]:
    """Two trials of twelve steps, the second with twice the layers."""
    large = changed(settings, n_layer=4)
    return [
        Trial(name=f"{s.shape.n_layer}", tokens=(tokens,), settings=s, folder=f"{s.shape.n_layer}")
        for s in (settings, large)
    ]


def test_everything_is_counted_and_the_largest_are_timed(trials: list[Trial], monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def flops_per_second(some: Sequence[Trial], *_: Any) -> float:
        measured.extend(trial.name for trial in some)
        return 1e6

    monkeypatch.setattr(module, "_flops_per_second", flops_per_second)
    configs = [trial.settings.config(61) for trial in trials]
    n_tokens = 12 * 4 * 32
    flops = n_tokens * sum(map(flops_per_token, configs))
    cost = cost_of(trials, Run.quiet(), ExperimentSettings(side_by_side=1))
    assert measured == ["4"]
    assert (cost.runs, cost.side_by_side, cost.tokens) == (2, 1, 2 * n_tokens)
    assert (cost.flops, cost.seconds) == (flops, flops / 1e6)
    assert cost.disk_bytes == sum(config.n_parameters for config in configs) * 12 * 3
    half = cost_of(trials, Run.quiet(), ExperimentSettings(side_by_side=1), share=0.5)
    assert (half.tokens, half.flops, half.seconds) == (n_tokens, flops / 2, flops / 2e6)


def test_a_missing_measurement_is_reported(trials: list[Trial]) -> None:
    cost = cost_of(trials, Run.quiet(), ExperimentSettings(estimate=False, side_by_side=2))
    assert cost.seconds is None
    assert str(cost).startswith("2 runs, 2 at a time, 3,072 tokens and ")
    assert "time not measured" in str(cost)
