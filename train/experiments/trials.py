"""The engine of all experiments: sets of trials, which are training runs, made side by side and resumable.

A trial is a run as `train run` makes it, with that command's rules: a finished trial is skipped, a killed one resumes
from its last complete checkpoint, and a folder of other settings or tokens is rejected before anything starts. So an
experiment resumes if it is run again, and each of its folders is a model folder like any other.

With `stop_at_step` in its settings, which is not part of the recipe, a trial runs only a part of its steps; the
schedule is that of all `steps`. Run again with a later step, or none, it continues (successive halving).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webtext.base.config import changed
from webtext.base.errors import ConfigError, DryRun, InputError, RunFailed
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.checkpoint.checkpoint import (
    checkpoint_path,
    list_checkpoints,
    open_checkpoint,
    publish_checkpoint,
    temporary_path,
)
from webtext.train.data.sources import Source, open_sources
from webtext.train.evaluate.page import Section, as_page
from webtext.train.experiments.processes import Call, run_side_by_side, slots_for
from webtext.train.metrics import METRICS, read_metrics, steps_made
from webtext.train.model.flops import flops_per_token
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.plan.footprint import GIB
from webtext.train.run.loop import TrainResult, finished_result, train_model
from webtext.train.settings import TrainSettings

LOG, FAILED, PLAN = "log.txt", "failed.json", "plan.json"
CHECKPOINT_WORDS = 3
"""Float32 numbers per parameter in a checkpoint: the parameter and AdamW's two moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: `tokens` are the token sets that it mixes, `folder` is its model folder, `name` is used in messages."""

    name: str
    tokens: tuple[str, ...]
    settings: TrainSettings
    folder: str

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

    @property
    def loss(self) -> float | None:
        """Held-out loss at the trial's last step in nats per token, None if it failed; InputError if none was measured.

        It is read from the run's metrics, because the run may be past that step: the experiment was run again.
        """
        if self.failure is not None:
            return None
        step, folder = self.trial.settings.last_step, Folder(self.trial.folder)
        for row in read_metrics(folder, "rerun the command"):
            if row["step"] == step and "validation_loss" in row:
                return float(row["validation_loss"])
        raise InputError(
            f"'{folder.location(METRICS)}' has no held-out loss of step {step:,}",
            "choose an eval_interval that divides it, token sets that hold documents out, and another folder",
        )


def seeded(name: str, tokens: Sequence[str], settings: TrainSettings, seeds: int, folder: str | Path) -> list[Trial]:
    """Return a complete run for each seed, from the settings' own on."""
    whole = changed(settings, stop_at_step=None, sample_interval=None)
    return [
        Trial(
            name=f"{name}, seed {seed}",
            tokens=tuple(tokens),
            settings=replace(whole, seed=seed),
            folder=str(Path(folder) / f"seed-{seed}"),
        )
        for seed in range(settings.seed, settings.seed + seeds)
    ]


@contextlib.contextmanager
def experiment(
    verb: str,
    out: str,
    trials: Sequence[Trial],
    run: Run,
    *,
    side_by_side: int | None,
    share: float = 1.0,
    **plan: Any,
) -> Iterator[None]:
    """Print the budget of the trials, of which `share` of all steps will be made, and lock the folder `out`.

    Raises DryRun on a dry run, and ConfigError if the folder was made with another `plan`: what must be equal for its
    trials to be comparable, beyond what their checkpoints record. The plan is kept in plan.json.
    """
    folder = Folder(out)
    theirs: Mapping[str, Any] = folder.read_object(PLAN, "choose another --out") if folder.exists(PLAN) else plan
    for name, value in plan.items():
        if theirs.get(name) != value:
            raise ConfigError(
                f"'{out}' was made with {name} {theirs.get(name)}, but here it is {value}",
                "choose another --out, or remove the folder to start again",
            )
    configs = [each.settings.config(open_sources(each.tokens)[0].train.vocab_size) for each in trials]
    tokens = [total_tokens(each.settings) * share for each in trials]
    flops = sum(n * flops_per_token(config) for n, config in zip(tokens, configs, strict=True))
    disk = sum(
        config.n_parameters * 4 * CHECKPOINT_WORDS * ((trial.settings.checkpoint.keep_checkpoints or 1) + 1)
        for trial, config in zip(trials, configs, strict=True)
    )
    n_slots = len(slots_for([each.settings for each in trials], max(c.vocab_size for c in configs), side_by_side))
    run.console.say(
        f"{verb}: {len(trials):,} runs, {n_slots:,} at a time, {round(sum(tokens)):,} tokens and {flops:.3g} FLOP in all; "
        f"at most {disk / GIB:,.2f} GiB of disk"
    )
    if run.dry_run:
        raise DryRun
    with folder.held():
        if plan:
            folder.write_bytes(PLAN, json.dumps(plan, indent=1).encode() + b"\n")
        yield


def run_trials(
    trials: Sequence[Trial],
    run: Run,
    *,
    label: str,
    side_by_side: int | None = None,
    may_fail: bool = False,
    then: Callable[[Trial], Any] | None = None,
) -> list[TrialResult]:
    """Run all trials to their ends (or their `stop_at_step`), as many at a time as fit; return results in order.

    `side_by_side` overrides how many (`slots_for`). One progress bar counts the steps of all. The first trial that
    fails ends the others by SIGTERM, so that they save, and is raised with its name and log. With `may_fail`, a run that
    stops by itself (RunFailed: its loss isn't finite, or it spiked) is a result with `failure`, and isn't tried again
    until its folder is removed, since it would fail again; errors of settings, input and machine are still raised.
    `then`, which must be picklable, is called with each finished trial in a process of its own, also for trials that
    were finished before; its return value is the result's `answer`. SIGTERM and Ctrl-C end all children; the same call
    resumes.
    """
    for i, trial in enumerate(trials):
        if any(trial.name == other.name or trial.folder == other.folder for other in trials[:i]):
            raise ConfigError(f"two trials have the name or folder '{trial.name}'", "give each its own")
    results = [
        TrialResult(
            trial,
            finished_result(trial.tokens, trial.folder, trial.settings),
            _failure_before(trial) if may_fail else None,
        )
        for trial in trials
    ]
    left = [i for i, each in enumerate(results) if not each.failure and (each.result is None or then is not None)]
    if left:
        vocab_size = max(open_sources(trial.tokens)[0].train.vocab_size for trial in trials)
        # finished runs count too, so a resumed run gets the same threads as before
        slots = slots_for([trial.settings for trial in trials], vocab_size, side_by_side)
        skipped = f", {len(trials) - len(left):,} are done" if len(left) < len(trials) else ""
        run.console.say(f"{label}: {len(trials):,} runs, {len(slots):,} at a time{skipped}")
        with run.console.progress(sum(trial.settings.last_step for trial in trials), label, "steps") as progress:

            def show_progress() -> None:
                steps = sum(min(steps_made(Path(each.folder)), each.settings.last_step) for each in trials)
                progress.advance(max(0, steps - progress.done))

            show_progress()
            calls = [Call(trials[i].name, train_trial, (trials[i], then), trials[i].log) for i in left]
            allowed = (RunFailed,) if may_fail else ()
            for i, made in zip(
                left, run_side_by_side(calls, slots, on_tick=show_progress, allowed=allowed), strict=True
            ):
                results[i] = _result(trials[i], made, run)
    return results


def branch(trial: Trial, into: Trial) -> None:
    """Start `into`, unless it has a checkpoint, with that of `trial`, which has ended at its `stop_at_step`.

    Both must be the same run until then, except for `steps`: then `into` ends as if it had made all its steps alone.
    """
    step = trial.settings.last_step
    source, target = (checkpoint_path(Path(each.folder), step) for each in (trial, into))
    if list_checkpoints(Path(into.folder)) or not source.is_dir():
        return  # resumed, or removed since: it makes all steps itself
    found = open_checkpoint(source)
    own = ("format", "step", "config", "files")
    state = {name: value for name, value in found.run_state().items() if name not in own}
    recipe = state["recipe"] | {"settings": state["recipe"]["settings"] | {"steps": into.settings.steps}}
    shutil.rmtree(temporary_path(target), ignore_errors=True)
    temporary_path(target).mkdir(parents=True)
    for name in found.state["files"]:  # synced, and never written to again
        try:
            os.link(source / name, temporary_path(target) / name)
        except OSError:  # a disk without hard links
            shutil.copyfile(source / name, temporary_path(target) / name)
    publish_checkpoint(target, step, found.config, found.state["files"], state | {"recipe": recipe})


def train_trial(trial: Trial, then: Callable[[Trial], Any] | None = None) -> tuple[TrainResult, Any]:
    """Run a trial in this process; return its result and that of `then`."""
    run = Run.quiet()
    run.console.mode = "human"  # for the log
    result = train_model(trial.tokens, trial.folder, trial.settings, run)
    return result, None if then is None else then(trial)


def publish(out: str, verb: str, found: Mapping[str, Any], title: str, sections: Sequence[Section]) -> None:
    """Write VERB.json and VERB.html into the folder `out`."""
    Folder(out).write_bytes(f"{verb}.json", json.dumps(found, indent=1, ensure_ascii=False).encode() + b"\n")
    Folder(out).write_bytes(f"{verb}.html", as_page(title, sections).encode())


def need_held_out(sources: Sequence[Source]) -> None:
    """Raise InputError if no token set has held-out tokens, since held-out loss decides."""
    if not any(source.validation.n_tokens for source in sources):
        names = ", ".join(f"'{source.name}'" for source in sources)
        raise InputError(f"{names} has no held-out tokens, and held-out loss decides", "pack with a validation split")


def _result(trial: Trial, made: tuple[TrainResult, Any] | RunFailed, run: Run) -> TrialResult:
    if not isinstance(made, RunFailed):
        return TrialResult(trial, made[0], answer=made[1])
    failure = made.lines[0]
    run.console.say(f"{failure}: it has lost")
    failed = {"until_step": trial.settings.last_step, "failure": failure}
    Folder(trial.folder).write_bytes(FAILED, json.dumps(failed).encode() + b"\n")
    return TrialResult(trial, None, failure)


def _failure_before(trial: Trial) -> str | None:
    folder = Folder(trial.folder)
    failed = folder.read_object(FAILED) if folder.exists(FAILED) else {}
    return failed["failure"] if failed and int(failed["until_step"]) <= trial.settings.last_step else None
