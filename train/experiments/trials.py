"""Trials: training runs of one experiment, made side by side, each in a folder of its own.

    trials = [Trial(name=f"seed-{seed}", tokens=("build/tokens",), settings=replace(settings, seed=seed),
                    folder=f"out/seed-{seed}") for seed in range(3)]
    for result in run_trials(trials, run):
        result.trial.name, result.result, result.held_out_loss(), result.curve()

A trial is a run as `train run` makes it, with that command's rules: a finished trial is skipped, a killed one resumes
from its last complete checkpoint, and a folder of other settings or tokens is rejected before anything starts. So an
experiment resumes if it is run again, and each of its folders is a model folder like any other.

With `stop_at_step` in its settings, which is not part of the recipe, a trial runs only a part of its steps; the
schedule is that of all `steps`. Run again with a later step, or none, it continues (successive halving):


    first = run_trials([trial.until(100) for trial in trials], run)
    best = sorted(first, key=lambda result: result.held_out_loss())[:2]
    second = run_trials([result.trial.until(300) for result in best], run)

For a trial that is already past the step (the experiment was run again), `held_out_loss` reads the loss that was
measured at that step from the run's metrics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webtext.base.config import changed
from webtext.base.errors import ConfigError, InputError, RunFailed, WebtextError
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.data.sources import open_sources
from webtext.train.evaluate.curve import Curve, read_curve
from webtext.train.experiments.side_by_side import Call, Failed, run_side_by_side
from webtext.train.experiments.slots import slots_for
from webtext.train.metrics import METRICS, read_metrics, steps_made
from webtext.train.run.loop import TrainResult, finished_result, train_model
from webtext.train.settings import TrainSettings

LOG, FAILED = "log.txt", "failed.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: `tokens` are the token sets that it mixes, `folder` is its model folder, `name` is used in messages."""

    name: str
    tokens: tuple[str, ...]
    settings: TrainSettings
    folder: str
    held_out: str | None = None
    """The token set whose validation split is measured during training; None: those of `tokens`."""

    def until(self, step: int | None) -> Trial:
        """Return the same trial, ending at a step of its schedule; None: at its end."""
        return replace(self, settings=changed(self.settings, stop_at_step=step))

    @property
    def log(self) -> Path:
        """Log of everything that the run printed, appended each time it is started."""
        return Path(self.folder) / LOG


@dataclass(frozen=True, slots=True)
class TrialResult:
    """How a trial ended. `result` is None if the run failed, e.g. by a loss that isn't finite; `failure` says why."""

    trial: Trial
    result: TrainResult | None
    failure: str | None = None
    answer: Any = None
    """What `then` returned, if given."""

    def held_out_loss(self, step: int | None = None) -> float:
        """Return nats per token at the trial's last step, or at `step`. InputError if none was measured at that step.

        There may be none if the trial ended at that step for another reason, or continues with other stops.
        """
        step = self.trial.settings.last_step if step is None else step
        folder = Folder(self.trial.folder)
        for row in read_metrics(folder, "rerun the command"):
            if row["step"] == step and "validation_loss" in row:
                return float(row["validation_loss"])
        raise InputError(
            f"'{folder.location(METRICS)}' has no held-out loss of step {step:,}",
            "choose an eval_interval that divides it, token sets that hold documents out, and another folder",
        )

    def curve(self) -> Curve:
        """Return the losses over the tokens seen."""
        return replace(read_curve(self.trial.folder), name=self.trial.name)


def run_trials(
    trials: Sequence[Trial],
    run: Run,
    *,
    label: str = "trials",
    side_by_side: int | None = None,
    allow_failed: bool = False,
    then: Callable[[Trial], Any] | None = None,
) -> list[TrialResult]:
    """Run all trials to their ends (or their `stop_at_step`), as many at a time as fit; return results in order.

    `side_by_side` overrides how many (`slots.slots_for`). One progress bar counts the steps of all. The first trial
    that fails ends the others by SIGTERM, so that they save, and is raised with its name and log. With `allow_failed`,
    a run that stops by itself (RunFailed: its loss isn't finite, or it spiked) is a result with `failure`; errors of
    settings, input and machine are still raised. `then`, which must be picklable, is called with each finished trial in
    the process that ran it, also for trials that were finished before; its return value is the result's `answer`.
    SIGTERM and Ctrl-C end all children; the same call resumes.
    """
    _check_names(trials)
    done: list[Any] = [finished_result(trial.tokens, trial.folder, trial.settings) for trial in trials]
    n_done = sum(result is not None for result in done)
    left = [trial for trial, result in zip(trials, done, strict=True) if result is None or then is not None]
    vocab_sizes = [open_sources(trial.tokens)[0].train.vocab_size for trial in trials]
    slots = slots_for([trial.settings for trial in trials], vocab_sizes, side_by_side) if left else []
    total = sum(trial.settings.last_step for trial in trials)
    if left:
        skipped = f", {n_done:,} are trained" if n_done else ""
        run.console.say(f"{label}: {len(trials):,} runs, {len(slots):,} at a time{skipped}")
    with run.console.progress(total, label, "steps") as progress:

        def show_progress() -> None:
            steps = sum(
                min(steps_made(Folder(trial.folder).local_path()), trial.settings.last_step) for trial in trials
            )
            progress.advance(max(0, steps - progress.done))

        def is_fatal(error: WebtextError) -> bool:
            return not (allow_failed and isinstance(error, RunFailed))

        show_progress()
        calls = [Call(trial.name, train_trial, (trial, then), trial.log) for trial in left]
        made = iter(run_side_by_side(calls, slots, on_tick=show_progress, is_fatal=is_fatal))
        results = [next(made) if trial in left else (result, None) for trial, result in zip(trials, done, strict=True)]
    return [_result(trial, result) for trial, result in zip(trials, results, strict=True)]


def trial_losses(
    trials: Sequence[Trial], run: Run, *, label: str, side_by_side: int | None = None
) -> list[float | None]:
    """Return each trial's held-out loss at its last step; None for one that failed before it, now or earlier.

    A failed trial isn't tried again until its folder is removed, since it would fail again.
    """
    left = [trial for trial in trials if not _failed_before(trial)]
    results = run_trials(left, run, label=label, side_by_side=side_by_side, allow_failed=True) if left else []
    losses: dict[str, float] = {}
    for result in results:
        if result.failure is None:
            losses[result.trial.folder] = result.held_out_loss()
            continue
        failed = {"until_step": result.trial.settings.last_step, "failure": result.failure}
        Folder(result.trial.folder).write_bytes(FAILED, json.dumps(failed).encode() + b"\n")
        run.console.say(f"{result.failure}: it has lost")
    return [losses.get(trial.folder) for trial in trials]


def _failed_before(trial: Trial) -> bool:
    folder = Folder(trial.folder)
    return folder.exists(FAILED) and int(folder.read_object(FAILED)["until_step"]) <= trial.settings.last_step


def train_trial(trial: Trial, then: Callable[[Trial], Any] | None = None) -> tuple[TrainResult, Any]:
    """Run a trial in this process; return its result and that of `then`."""
    run = Run.quiet()
    run.console.mode = "human"  # for the log
    result = train_model(trial.tokens, trial.folder, trial.settings, run, held_out=trial.held_out)
    return result, None if then is None else then(trial)


def _result(trial: Trial, result: tuple[TrainResult, Any] | Failed) -> TrialResult:
    if isinstance(result, Failed):
        return TrialResult(trial, None, result.error.lines[0])
    trained, answer = result
    return TrialResult(trial, trained, answer=answer)


def _check_names(trials: Sequence[Trial]) -> None:
    for what, values in (
        ("name", [trial.name for trial in trials]),
        ("folder", [str(Path(trial.folder).absolute()) for trial in trials]),
    ):
        twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
        if twice is not None:
            raise ConfigError(f"two trials have the {what} '{twice}'", f"give each a {what} of its own")
