"""Trials: training runs of one experiment, made side by side, each in a folder of its own.

    trials = [Trial(name=f"seed-{seed}", tokens=("build/tokens",), settings=replace(settings, seed=seed),
                    folder=f"out/seed-{seed}") for seed in range(3)]
    for result in run_trials(trials, run):
        result.trial.name, result.result, result.held_out_loss(), result.curve()

A trial is a run as `train run` makes it, under that command's rules: one that is done is skipped, one that was killed goes on
from its last whole checkpoint, and a folder of other settings or tokens is refused before anything starts. So an experiment
that is given again goes on, and each of its folders is a model folder like any other.

To a part of its steps a trial runs by `stop_at_step` in its settings, which is no part of a recipe: the schedule is that of all
`steps`. Given again with a later one, or none, it goes on (successive halving):

    first = run_trials([trial.until(100) for trial in trials], run)
    best = sorted(first, key=lambda result: result.held_out_loss())[:2]
    second = run_trials([result.trial.until(300) for result in best], run)

A trial that is past the step already (the experiment was given again) answers with the loss that it measured at that step:
`held_out_loss` reads it from the run's metrics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webtext.base.errors import ConfigError, InputError, RunFailed, WebtextError
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.curve import Curve, read_curve
from webtext.train.experiments.places import places_for
from webtext.train.experiments.side_by_side import Call, Failed, run_side_by_side
from webtext.train.loop import TrainResult, finished_result, train_model
from webtext.train.metrics import METRICS, read_metrics, steps_made
from webtext.train.settings import TrainSettings
from webtext.train.sources import open_sources

LOG, FAILED = "log.txt", "failed.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: `tokens` are the token sets that it mixes, `folder` is its model folder, `name` stands in messages."""

    name: str
    tokens: tuple[str, ...]
    settings: TrainSettings
    folder: str
    held_out: str | None = None
    """The token set whose validation split is measured on the way; None: what `tokens` hold out themselves."""

    def until(self, step: int | None) -> Trial:
        """The same trial, to that step of its schedule; None: to its end."""
        return replace(self, settings=replace(self.settings, stop_at_step=step))

    @property
    def log(self) -> Path:
        """What the run said, all its beginnings one after another."""
        return Path(self.folder) / LOG


@dataclass(frozen=True, slots=True)
class TrialResult:
    """How a trial ended. `result` is None where the run stopped by itself (`failure` says why): its loss was no number."""

    trial: Trial
    result: TrainResult | None
    failure: str | None = None
    answer: Any = None
    """What `then` returned, where it was given."""

    def held_out_loss(self, step: int | None = None) -> float:
        """Nats a token at the trial's last step, or at `step`. InputError where none was measured at that very step.

        Where a trial was ended at that step for another reason, or goes on with other stops, there may be none.
        """
        step = self.trial.settings.last_step if step is None else step
        folder = Folder(self.trial.folder)
        for row in read_metrics(folder, "give the command again"):
            if row["step"] == step and "validation_loss" in row:
                return float(row["validation_loss"])
        raise InputError(
            f"'{folder.location(METRICS)}' has no held-out loss of step {step:,}",
            "choose an eval_interval that divides it, token sets that hold documents out, and another folder",
        )

    def curve(self) -> Curve:
        """Its losses over the tokens seen."""
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
    """Run all trials to their ends (or their `stop_at_step`), as many at a time as the machine holds; results in order.

    `side_by_side` overrules how many (`places.places_for`). One bar counts the steps of all. The first trial that fails ends
    the others by SIGTERM, after which they are saved, and is raised with its name and log. With `allow_failed` a run that
    stops by itself (RunFailed: its loss is no number, or it spiked) is a result like another, with `failure`; errors of
    settings, input and machine are raised all the same. `then`, which must be picklable, is called with each trial that is
    done, in the process that ran it, and its answer stands in the result; so it is for trials that were done before. SIGTERM
    and Ctrl-C end all children, and the same call goes on.
    """
    _check_names(trials)
    done: list[Any] = [finished_result(trial.tokens, trial.folder, trial.settings) for trial in trials]
    n_done = sum(result is not None for result in done)
    left = [trial for trial, result in zip(trials, done, strict=True) if result is None or then is not None]
    vocab_sizes = [open_sources(trial.tokens)[0].train.vocab_size for trial in trials]
    places = places_for([trial.settings for trial in trials], vocab_sizes, side_by_side) if left else []
    total = sum(trial.settings.last_step for trial in trials)
    if left:
        skipped = f", {n_done:,} are trained" if n_done else ""
        run.console.say(f"{label}: {len(trials):,} runs, {len(places):,} at a time{skipped}")
    with run.console.progress(total, label, "steps") as progress:

        def tell() -> None:
            steps = sum(min(steps_made(Path(trial.folder)), trial.settings.last_step) for trial in trials)
            progress.advance(max(0, steps - progress.done))

        def is_fatal(error: WebtextError) -> bool:
            return not (allow_failed and isinstance(error, RunFailed))

        tell()
        calls = [Call(trial.name, train_trial, (trial, then), trial.log) for trial in left]
        made = iter(run_side_by_side(calls, places, on_tick=tell, is_fatal=is_fatal))
        results = [next(made) if trial in left else (result, None) for trial, result in zip(trials, done, strict=True)]
    return [_result(trial, result) for trial, result in zip(trials, results, strict=True)]


def trial_losses(
    trials: Sequence[Trial], run: Run, *, label: str, side_by_side: int | None = None
) -> list[float | None]:
    """Each trial's held-out loss at its last step; None of one that failed on its way there, now or when it was made before.

    One that failed is not made again until its folder is removed: it would do so again.
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
    """The trial in this process, and what `then` says of it."""
    run = Run.quiet()
    run.console.mode = "human"  # into its log
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
