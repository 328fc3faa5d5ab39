"""A trial: one training run of an experiment, in a model folder like any other; and branches of it.

With `stop_at_step` in its settings, which is not part of the recipe, a trial makes only a part of its steps; the
schedule is that of all `steps`. Run again with a later step, or none, it continues (successive halving).

A branch, under the schedule warm-up, stable, decay, leaves the trial where a run of fewer steps starts its decay, and
decays as that run would (Hu et al. 2024, MiniCPM, section 4). So it ends as if it had made all its steps alone, and the
trial continues undecayed.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from webtext.base.config import changed
from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.train.checkpoint.checkpoint import (
    Checkpoint,
    checkpoint_path,
    list_checkpoints,
    open_checkpoint,
    publish_checkpoint,
    temporary_path,
)
from webtext.train.data.sources import Source, open_sources
from webtext.train.metrics import METRICS, read_metrics
from webtext.train.optimizer.schedule import decay_start
from webtext.train.settings import TrainSettings

LOSS = "held-out loss, nats per token"


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

    def judged_at(self, step: int) -> Trial:
        """Return the run that shows how good this one is after `step` steps: under wsd a branch, else itself until then."""
        if self.settings.schedule.schedule != "wsd" or step == self.settings.steps:
            return self.until(step)
        settings, folder = changed(self.settings, steps=step), f"{self.folder}-steps-{step}"
        return replace(self, settings=settings, name=f"{self.name}, {step:,} steps", folder=folder)

    def shared_steps(self, judged: Trial) -> int:
        """Return how many of the judged run's steps are also this one's: all of them, if it isn't a branch."""
        return judged.settings.last_step if judged.folder == self.folder else decay_start(judged.settings)

    def branch(self, into: Trial) -> None:
        """Start `into`, unless it has a checkpoint, with that of this trial, which has ended at its `stop_at_step`."""
        step = self.settings.last_step
        source, target = (checkpoint_path(Path(each.folder), step) for each in (self, into))
        if list_checkpoints(Path(into.folder)) or not source.is_dir():
            return  # resumed, or removed since: it makes all steps itself
        found = open_checkpoint(source)
        state = found.run_state()
        recipe = state["recipe"] | {"settings": state["recipe"]["settings"] | {"steps": into.settings.steps}}
        shutil.rmtree(temporary_path(target), ignore_errors=True)
        temporary_path(target).mkdir(parents=True)
        for name in found.state["files"]:  # synced, and never written to again
            try:
                os.link(source / name, temporary_path(target) / name)
            except OSError:  # a disk without hard links
                shutil.copyfile(source / name, temporary_path(target) / name)
        publish_checkpoint(Checkpoint(target, step, {**state, "recipe": recipe}), found.config, found.state["files"])

    def loss(self) -> float:
        """Return the held-out loss at the trial's last step in nats per token; InputError if none was measured.

        It is read from the run's metrics, because the run may be past that step: the experiment was run again.
        """
        step, folder = self.settings.last_step, Folder(self.folder)
        for row in read_metrics(folder, "rerun the command"):
            if row["step"] == step and "validation_loss" in row:
                return float(row["validation_loss"])
        raise InputError(
            f"'{folder.location(METRICS)}' has no held-out loss of step {step:,}",
            "choose an eval_interval that divides it, token sets that hold documents out, and another folder",
        )


def seeded(name: str, tokens: Sequence[str], settings: TrainSettings, seeds: int, folder: Path) -> list[Trial]:
    """Return a complete run for each seed, from the settings' own on."""
    whole, place = changed(settings, stop_at_step=None, sample_interval=None), str(folder / "seed-")
    return [
        Trial(name=f"{name}, seed {i}", tokens=tuple(tokens), settings=replace(whole, seed=i), folder=f"{place}{i}")
        for i in range(settings.seed, settings.seed + seeds)
    ]


def with_tokens(settings: TrainSettings, n_tokens: float) -> TrainSettings:
    """Return the settings with the fewest steps that have at least `n_tokens`; the warm-up keeps its steps.

    ConfigError if they end within the warm-up, and for a batch that grows.
    """
    if settings.schedule.batch_ramp_start is not None:
        raise ConfigError("batch_ramp_start is set", "leave it out: runs of one batch size are compared")
    per_step = settings.batch_size * settings.context
    steps = math.ceil(n_tokens / per_step - 1e-9)
    if steps <= settings.warmup_steps:
        raise ConfigError(
            f"{n_tokens:,} tokens are {max(0, steps):,} steps of {per_step:,}, and the warm-up is {settings.warmup_steps:,}",
            "give more --tokens, fewer --warmup-steps, or a smaller --batch-size",
        )
    return replace(settings, steps=steps)


def held_out_sources(tokens: str | Sequence[str]) -> list[Source]:
    """Open token sets. InputError if none has held-out tokens, since held-out loss decides."""
    sources = open_sources(tokens)
    if not any(source.validation.n_tokens for source in sources):
        names = ", ".join(f"'{source.name}'" for source in sources)
        raise InputError(f"{names} has no held-out tokens, and held-out loss decides", "pack with a validation split")
    return sources
