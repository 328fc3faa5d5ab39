"""Trials: the runs that `train run` would make, side by side; skipped, resumed, stopped at a step, failed, ended."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import SECONDS, talking, wait_until

from webtext.base.config import changed
from webtext.base.errors import ConfigError, DryRun, InputError, RunFailed
from webtext.base.run import Run
from webtext.train import TrainSettings, train_model
from webtext.train.checkpoint.checkpoint import list_checkpoints
from webtext.train.experiments.trials import Result, Trial, run_experiment, run_trials, slots_for
from webtext.train.metrics import steps_made


def trials_of(tokens: str, out: Path, settings: TrainSettings, seeds: int = 2) -> list[Trial]:
    return [
        Trial(name=f"seed {seed}", tokens=(tokens,), settings=replace(settings, seed=seed), folder=f"{out}/{seed}")
        for seed in range(seeds)
    ]


def run(trials: list[Trial], *, may_fail: bool = False) -> list[Trial]:
    return run_trials(trials, "trials", Run.quiet(), may_fail=may_fail)


def judged(rows: list[dict[str, Any]]) -> Result:
    return Result(title="Trials", notes=[], columns=[], rows=rows, facts={})


def weights(folder: str, step: int = 12) -> bytes:
    return (Path(folder) / f"checkpoints/step-{step:06d}/model-00000.safetensors").read_bytes()


def test_trials_are_the_runs_that_one_would_make_alone_and_are_skipped_when_done(
    tokens: str, tmp_path: Path, settings: TrainSettings, make_token_set: Callable[..., str]
) -> None:
    trials = trials_of(tokens, tmp_path / "trials", settings)
    assert run(trials) == trials
    for trial in trials:
        alone = train_model(tokens, f"{tmp_path}/alone {trial.name}", trial.settings, Run.quiet())
        assert weights(trial.folder) == weights(f"{tmp_path}/alone {trial.name}")
        assert trial.loss() == alone.validation_loss
        assert "parameters (2 layers of 32" in Path(trial.folder, "log.txt").read_text()
    assert trials[0].loss() != trials[1].loss()
    bare = replace(trials[0], tokens=(make_token_set("bare", validation=0),), folder=f"{tmp_path}/bare")
    with pytest.raises(InputError, match="has no finite held-out loss"):
        run([bare])[0].loss()
    before = Path(trials[0].folder, "log.txt").read_bytes()
    assert run(trials) == trials
    assert Path(trials[0].folder, "log.txt").read_bytes() == before, "no process was started"


def test_a_failed_trial_is_an_error_with_its_name_and_log_or_left_out_if_allowed(
    tokens: str, tmp_path: Path, settings: TrainSettings
) -> None:
    good, bad = trials_of(tokens, tmp_path, settings)
    bad = replace(bad, settings=changed(bad.settings, learning_rate=1e30, max_grad_norm=None))
    with pytest.raises(RunFailed, match=r"'seed 1': step \d+: the (loss|gradient norm) is (nan|inf)\n.*\n.*1/log.txt"):
        run([good, bad])
    assert run([bad, good], may_fail=True) == [good]


def test_a_folder_of_another_run_is_rejected_before_any_starts(
    tokens: str, tmp_path: Path, settings: TrainSettings
) -> None:
    one, other = trials_of(tokens, tmp_path, settings)
    train_model(tokens, other.folder, replace(other.settings, steps=3), Run.quiet())
    with pytest.raises(InputError, match="steps is 12 here and 3 in the checkpoint"):
        run([one, other])
    assert not Path(one.folder).exists()
    twice = [one, replace(other, folder=one.folder)]
    with pytest.raises(ConfigError, match="two runs have the folder of 'seed 1'"):
        run_experiment("scale", str(tmp_path), [({}, twice)], {}, Run.quiet(), judged)


def test_the_runs_are_printed_first_and_another_plan_is_rejected(
    tokens: str, tmp_path: Path, settings: TrainSettings, capsys: pytest.CaptureFixture[str], made: object
) -> None:
    trials, out = trials_of(tokens, tmp_path, settings), str(tmp_path / "out")
    with pytest.raises(DryRun):
        run_experiment("sweep", out, [({}, trials)], {}, talking(dry_run=True), judged)
    assert f"sweep: 2 runs, 1 at a time, {2 * 12 * 4 * 32:,} tokens in all" in capsys.readouterr().err
    assert not Path(out).exists()
    run_experiment("sweep", out, [({}, [trial]) for trial in trials], {"windows": 4}, Run.quiet(), judged)
    written = json.loads((tmp_path / "out/sweep.json").read_text())
    assert written["rows"] == [{"losses": [trial.loss()]} for trial in trials]
    with pytest.raises(ConfigError, match="was made with windows 4, but here it is 5"):
        run_experiment("sweep", out, [({}, trials)], {"windows": 5}, Run.quiet(), judged)


def test_runs_with_threads_share_the_cores(settings: TrainSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webtext.train.experiments.trials.available_cores", lambda: 6)
    trials = trials_of("tokens", Path(), settings, seeds=4)
    cases = [("1", 4, 1), ("2", 3, 2), ("4", 1, 4), ("99", 1, 99), ("", 4, 1), ("2,1", 4, 1), ("0", 4, 1)]
    for asked, n, threads in cases:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert slots_for(trials) == [dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))] * n


PARENT = """
import pickle, sys
from webtext.base.errors import WebtextError
from webtext.base.run import Run
from webtext.train.experiments import trials
trials.available_cores = lambda: 2
try:
    trials.run_trials(pickle.loads(bytes.fromhex(sys.argv[1])), 'trials', Run.quiet())
except WebtextError as error:
    print(error, flush=True)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_when_the_parent_ends_its_children_save_and_the_same_trials_resume(
    tokens: str, tmp_path: Path, settings: TrainSettings, number: signal.Signals, forking: str
) -> None:
    """Runs too long to end by themselves, without checkpoints before the end: only the signal makes them save."""
    endless = changed(settings, steps=1_000_000, checkpoint_interval=None, stop_at_step=None)
    trials = trials_of(tokens, tmp_path, endless, seeds=1 if number == signal.SIGKILL else 2)
    command = [sys.executable, "-c", forking + PARENT, pickle.dumps(trials).hex()]
    parent = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True)
    folders = [Path(trial.folder) for trial in trials]
    wait_until(lambda: min(map(steps_made, folders)) >= 3, parent)
    parent.send_signal(number)
    said, _ = parent.communicate(timeout=SECONDS)
    wait_until(lambda: all(map(list_checkpoints, folders)))  # children of a killed parent end after it
    if number != signal.SIGKILL:
        assert parent.returncode == 130
        assert "rerun the same command to resume" in said
    for trial, folder in zip(trials, folders, strict=True):
        (saved,) = list_checkpoints(folder)
        step = json.loads((saved / "state.json").read_text())["step"]
        assert step >= 3
        log = Path(trial.folder, "log.txt")
        wait_until(lambda log=log: "ended by SIGTERM after step" in log.read_text())
    if number == signal.SIGKILL:
        return
    step = steps_made(folders[0])
    run([replace(trials[0], settings=changed(endless, stop_at_step=step + 2))])
    assert steps_made(folders[0]) == step + 2
    assert "resuming from step" in Path(trials[0].folder, "log.txt").read_text()
