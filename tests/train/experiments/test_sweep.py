"""Sweeps of short runs: trained, resumed, extended, rejected; the winner's recipe trains the winner again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_runs import talking, train

from webtext.base.config import changed
from webtext.base.errors import ConfigError, DryRun, InputError, RunFailed
from webtext.base.html_pages.rendering import sections_text
from webtext.base.run import Run
from webtext.train import TrainSettings
from webtext.train.experiments.sweep import make_grid, run_sweep
from webtext.train.experiments.trials import Result, Trial
from webtext.train.settings import ExperimentSettings


@pytest.fixture
def settings(settings: TrainSettings) -> TrainSettings:
    """Settings of four steps, saved only at stops."""
    return changed(settings, steps=4, warmup_steps=1, checkpoint_interval=None)


RATES = "learning_rate=1e-4,1e-2,3e-2"
pytestmark = pytest.mark.usefixtures("made")
Made = list[tuple[Trial, int | None]]


def steps(made: Made) -> list[tuple[str, int | None]]:
    """The trials that made steps, and their last step; None if they failed."""
    return [(trial.name, step) for trial, step in made]


def sweep_of(tokens: str, out: Path, settings: TrainSettings, over: Sequence[str] = (RATES,), **how: Any) -> Result:
    return run_sweep([tokens], over, str(out), settings, ExperimentSettings(**how), Run.quiet())


def losses(found: Result) -> dict[str, list[float | None]]:
    """The losses by candidate."""
    return {row["candidate"]: row["losses"] for row in found.rows}


def test_all_run_to_the_end_and_the_winner_is_the_run_that_it_would_be_alone(
    tokens: str, tmp_path: Path, settings: TrainSettings, made: Made
) -> None:
    found = sweep_of(tokens, tmp_path / "sweep", settings)
    names = list(make_grid([RATES]))
    assert steps(made) == [(f"{name}, seed 0", 4) for name in names]
    assert names[0] == found.rows[-1]["candidate"] == "learning_rate=0.0001", "a rate that learns nothing"
    told = json.loads((tmp_path / "sweep/sweep.json").read_text())
    assert told["winner"] == found.facts["winner"]
    assert told["rows"][0]["values"] == told["winner"]["values"]
    assert "One seed" in "".join(told["notes"])
    alone = train(tokens, tmp_path / "alone", changed(settings, **found.facts["winner"]["values"]))
    assert alone.validation_loss == told["winner"]["loss"]
    assert f"its models: '{tmp_path}/sweep/trials/{found.rows[0]['candidate']}'" in "".join(told["notes"])


def test_the_same_sweep_again_trains_nothing_and_a_larger_one_only_what_is_new(
    tokens: str, tmp_path: Path, settings: TrainSettings, made: Made
) -> None:
    first = sweep_of(tokens, tmp_path, settings)
    made.clear()
    assert sweep_of(tokens, tmp_path, settings).to_json() == first.to_json()
    assert made == []
    name = "learning_rate=0.01"
    larger = sweep_of(tokens, tmp_path, settings, ["learning_rate=1e-4,1e-2,3e-2,1e-3"])
    assert steps(made) == [("learning_rate=0.001, seed 0", 4)]
    assert losses(larger)[name] == losses(first)[name]
    made.clear()
    seeds = sweep_of(tokens, tmp_path, settings, seeds=2)
    assert {name.rpartition(", ")[2] for name, _ in steps(made)} == {"seed 1"}
    assert losses(seeds)[name][0] == losses(first)[name][0]


def test_the_folder_of_another_sweep_is_rejected(tokens: str, tmp_path: Path, settings: TrainSettings) -> None:
    out = tmp_path / "sweep"
    sweep_of(tokens, out, settings)
    with pytest.raises(InputError, match="n_layer is 1 here and 2 in the checkpoint"):
        sweep_of(tokens, out, changed(settings, n_layer=1))
    with pytest.raises(ConfigError, match="eval_windows 4, but here it is 5"):
        sweep_of(tokens, out, changed(settings, eval_windows=5))


def test_a_candidate_whose_loss_is_not_finite_has_lost(tokens: str, tmp_path: Path, settings: TrainSettings) -> None:
    wild = changed(settings, max_grad_norm=None)
    found = sweep_of(tokens, tmp_path, wild, ["learning_rate=1e-2,3e-2,1e30"])
    assert losses(found)["learning_rate=1e+30"] == [None]
    assert ["learning_rate=1e+30", "failed"] in [line.split() for line in sections_text(found.sections()).splitlines()]
    assert sweep_of(tokens, tmp_path, wild, ["learning_rate=1e-2,3e-2,1e30"]).to_json() == found.to_json()
    with pytest.raises(RunFailed, match="no candidate has a held-out loss"):
        sweep_of(tokens, tmp_path / "all", wild, ["learning_rate=1e30,1e31"])


def test_a_dry_run_prints_runs_and_tokens_and_makes_nothing(
    tokens: str, tmp_path: Path, settings: TrainSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ExperimentSettings(seeds=2)
    with pytest.raises(DryRun):
        run_sweep([tokens], [RATES], str(tmp_path / "sweep"), settings, how, talking(dry_run=True))
    said = capsys.readouterr().err
    assert "3 candidates x 2 seeds, 4 steps each" in said
    n_tokens = 3 * 2 * 4 * settings.batch_size * settings.context
    assert "6 runs, " in said
    assert f" at a time, {n_tokens:,} tokens in all" in said
    assert not (tmp_path / "sweep").exists()


def test_tokens_without_a_validation_split_are_rejected(
    make_token_set: Callable[..., str], tmp_path: Path, settings: TrainSettings
) -> None:
    with pytest.raises(InputError, match="has no held-out tokens"):
        sweep_of(make_token_set("all", validation=0), tmp_path / "sweep", settings)
