"""Branches: under the schedule warm-up, stable, decay, shorter runs that share the stable steps of a longer one.

A branch leaves the longer run where a run of fewer steps starts its decay, and decays as that run would (Hu et al. 2024,
MiniCPM, section 4). So it ends as if it had made all its steps alone, and the longer run continues undecayed.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from webtext.base.config import changed
from webtext.train.checkpoint.checkpoint import (
    checkpoint_path,
    list_checkpoints,
    open_checkpoint,
    publish_checkpoint,
    temporary_path,
)
from webtext.train.experiments.trials import Trial
from webtext.train.optimizer.schedule import decay_start


def judged_run(trial: Trial, step: int) -> Trial:
    """Return the run that shows how good `trial` is after `step` steps: under wsd a branch, else the trial until then."""
    if trial.settings.schedule.schedule != "wsd" or step == trial.settings.steps:
        return trial.until(step)
    settings = changed(trial.settings, steps=step)
    return replace(
        trial, settings=settings, name=f"{trial.name}, {step:,} steps", folder=f"{trial.folder}-steps-{step}"
    )


def shared_steps(trial: Trial, judged: Trial) -> int:
    """Return how many of the judged run's steps are also the trial's: all of them, if it isn't a branch."""
    return judged.settings.last_step if judged.folder == trial.folder else decay_start(judged.settings)


def branch(trial: Trial, into: Trial) -> None:
    """Start `into`, unless it has a checkpoint, with that of `trial`, which has ended at its `stop_at_step`."""
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
