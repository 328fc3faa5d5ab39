"""Sweeps of short runs: trained in rungs, resumed, extended, rejected; the winner's recipe trains the winner again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_runs import talking, train

from webtext.base.config import changed
from webtext.base.errors import ConfigError, DryRun, InputError, RunFailed
from webtext.base.html import as_text
from webtext.base.run import Run
from webtext.train import TrainSettings
from webtext.train.experiments.settings import SweepSettings
from webtext.train.experiments.sweep import make_grid, run_sweep
from webtext.train.experiments.trials import Result, Trial


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
    return run_sweep([tokens], over, str(out), settings, SweepSettings(**how), Run.quiet())


def losses(found: Result, step: int) -> dict[str, list[float | None]]:
    """The losses after a step by candidate, of those that came so far."""
    return {row["candidate"]: row["losses"][step] for row in found.rows if step in row["losses"]}


def winner(settings: TrainSettings, found: Result) -> TrainSettings:
    return changed(settings, **found.facts["winner"]["values"])


def test_losers_stop_at_the_rungs_and_the_winner_is_the_run_that_it_would_be_alone(
    tokens: str, tmp_path: Path, settings: TrainSettings, made: Made
) -> None:
    found = sweep_of(tokens, tmp_path / "sweep", settings)
    names = [candidate.name for candidate in make_grid([RATES], settings)]
    assert steps(made[:3]) == [(f"{name}, seed 0", 1) for name in names]
    assert [step for _, step in steps(made[3:])] == [2, 2, 4, 4]
    assert names[0] == found.rows[-1]["candidate"] == "learning_rate=0.0001"
    assert names[0] not in losses(found, 4), "a rate that learns nothing stopped early"
    told = json.loads((tmp_path / "sweep/sweep.json").read_text())
    assert told["winner"] == found.facts["winner"]
    assert told["rows"][0]["values"] == told["winner"]["values"]
    assert "One seed" in "".join(told["notes"])
    alone = train(tokens, tmp_path / "alone", winner(settings, found))
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
    larger = sweep_of(tokens, tmp_path, settings, ["learning_rate=1e-4,1e-2,3e-2,1e-3"], rungs=(0.25, 0.5, 1.0))
    assert steps(made)[0] == ("learning_rate=0.001, seed 0", 1)
    assert losses(larger, 1)[name] == losses(first, 1)[name]
    made.clear()
    seeds = sweep_of(tokens, tmp_path, settings, seeds=2)
    assert {name.rpartition(", ")[2] for name, _ in steps(made)} == {"seed 1"}
    assert losses(seeds, 1)[name][0] == losses(first, 1)[name][0]


def test_the_folder_of_another_sweep_is_rejected(tokens: str, tmp_path: Path, settings: TrainSettings) -> None:
    out = tmp_path / "sweep"
    sweep_of(tokens, out, settings, rungs=(1.0,))
    with pytest.raises(ConfigError, match=r"rungs \[1.0\], but here it is \[0.5, 1.0\]"):
        sweep_of(tokens, out, settings, rungs=(0.5, 1.0))
    with pytest.raises(InputError, match="n_layer is 1 here and 2 in the checkpoint"):
        sweep_of(tokens, out, changed(settings, n_layer=1), rungs=(1.0,))


def test_a_candidate_whose_loss_is_not_finite_has_lost(tokens: str, tmp_path: Path, settings: TrainSettings) -> None:
    wild = changed(settings, max_grad_norm=None)
    found = sweep_of(tokens, tmp_path, wild, ["learning_rate=1e-2,3e-2,1e30"])
    assert losses(found, 1)["learning_rate=1e+30"] == [None]
    assert "learning_rate=1e+30" not in losses(found, 2)
    assert as_text(found.sections()).splitlines()[4].split() == ["learning_rate=1e+30", "failed"]
    assert sweep_of(tokens, tmp_path, wild, ["learning_rate=1e-2,3e-2,1e30"]).to_json() == found.to_json()
    with pytest.raises(RunFailed, match="no candidate has a held-out loss"):
        sweep_of(tokens, tmp_path / "all", wild, ["learning_rate=1e30,1e31"])


def test_a_dry_run_prints_runs_and_tokens_and_makes_nothing(
    tokens: str, tmp_path: Path, settings: TrainSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    how = SweepSettings(seeds=2)
    with pytest.raises(DryRun):
        run_sweep([tokens], [RATES], str(tmp_path / "sweep"), settings, how, talking(dry_run=True))
    said = capsys.readouterr().err
    assert "3 candidates x 2 seeds: 3 to step 1, 2 to step 2, 2 to step 4" in said
    n_tokens = (3 * 1 + 2 * 1 + 2 * 2) * 2 * settings.batch_size * settings.context
    assert "6 runs, " in said
    assert f" at a time, {n_tokens:,} tokens and " in said
    assert "67% of training all to the end" in said or "75%" in said
    assert not (tmp_path / "sweep").exists()


def test_windows_within_documents_or_across_them_are_not_swept_over_several_sets_without_weights(
    make_token_set: Callable[..., str], tmp_path: Path, settings: TrainSettings
) -> None:
    """A set's number of windows weights its held-out loss, and that number depends on how windows are cut."""
    sets = [make_token_set("one"), make_token_set("other", train=20)]
    over, how = ["crosses_documents=true,false"], SweepSettings(rungs=(1.0,))
    with pytest.raises(ConfigError, match="'crosses_documents' is swept over several"):
        run_sweep(sets, over, str(tmp_path / "sweep"), settings, how, Run.quiet())
    weighed = changed(settings, weights=(0.5, 0.5))
    assert run_sweep(sets, over, str(tmp_path / "sweep"), weighed, how, Run.quiet()).facts["winner"]["loss"] > 0


def test_tokens_without_a_validation_split_are_rejected(
    make_token_set: Callable[..., str], tmp_path: Path, settings: TrainSettings
) -> None:
    with pytest.raises(InputError, match="has no held-out tokens"):
        sweep_of(make_token_set("all", validation=0), tmp_path / "sweep", settings)


@pytest.mark.parametrize("rungs", [(), (0.5,), (0.5, 0.25, 1.0), (0.0, 1.0), (0.5, 2.0)])
def test_rungs_must_rise_to_all_steps(rungs: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="rise above 0 and end at 1"):
        SweepSettings(rungs=rungs)


def test_under_wsd_rungs_judge_complete_runs(
    tokens: str, tmp_path: Path, settings: TrainSettings, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight steps with a last half that decays: the rung of four has runs of its own, that of eight is the run itself."""
    wsd = changed(settings, steps=8, schedule="wsd", decay_ratio=0.5)
    with pytest.raises(DryRun):
        run_sweep([tokens], [RATES], str(tmp_path), wsd, SweepSettings(rungs=(0.5, 1.0)), talking(dry_run=True))
    n_tokens = (3 * 4 + 2 * 8) * settings.batch_size * settings.context
    assert f"{n_tokens:,} tokens and " in capsys.readouterr().err
    found = sweep_of(tokens, tmp_path / "sweep", wsd, rungs=(0.5, 1.0), seeds=2)
    assert [(trial.settings.steps, step) for trial, step in made] == [(4, 4)] * 6 + [(8, 8)] * 4
    for row in found.rows:
        for seed, loss in enumerate(row["losses"][4]):
            alone = tmp_path / f"alone {row['candidate']} {seed}"
            result = train(tokens, alone, changed(wsd, **row["values"], seed=seed, steps=4))
            assert loss == result.validation_loss, "a rung's loss is that of a run of its steps"
    best = train(tokens, tmp_path / "winner", winner(wsd, found))
    assert found.rows[0]["losses"][8][0] == best.validation_loss
    made.clear()
    assert sweep_of(tokens, tmp_path / "sweep", wsd, rungs=(0.5, 1.0), seeds=2).to_json() == found.to_json()
    assert made == []
    with pytest.raises(ConfigError, match="warmup_steps is 4"):
        sweep_of(tokens, tmp_path / "late", changed(wsd, warmup_steps=4), rungs=(0.5, 1.0))
