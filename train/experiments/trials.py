"""A trial: one training run of an experiment, in a model folder like any other.

With `stop_at_step` in its settings, which is not part of the recipe, a trial makes only a part of its steps; the
schedule is that of all `steps`. Run again with a later step, or none, it continues (successive halving).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from webtext.base.config import changed
from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.train.metrics import METRICS, read_metrics
from webtext.train.optimizer.schedule import sequences_before
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

    @property
    def log(self) -> Path:
        """Log of everything that the run printed, appended each time it is started."""
        return Path(self.folder) / "log.txt"

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
    whole = changed(settings, stop_at_step=None, sample_interval=None)
    return [
        Trial(
            name=f"{name}, seed {seed}",
            tokens=tuple(tokens),
            settings=replace(whole, seed=seed),
            folder=str(folder / f"seed-{seed}"),
        )
        for seed in range(settings.seed, settings.seed + seeds)
    ]


def with_tokens(settings: TrainSettings, n_tokens: float) -> TrainSettings:
    """Return the settings with the fewest steps that have at least `n_tokens`.

    Warm-up and ramp keep their steps. ConfigError if the budget ends before them.
    """
    in_ramp, per_step = _tokens_in_ramp(settings), settings.batch_size * settings.context
    steps = settings.schedule.batch_ramp_steps + math.ceil((n_tokens - in_ramp) / per_step - 1e-9)
    if steps <= max(settings.warmup_steps, settings.schedule.batch_ramp_steps):
        raise ConfigError(
            f"{n_tokens:,} tokens are {max(0, steps):,} steps of {per_step:,}, and the warm-up is {settings.warmup_steps:,}",
            "give more --tokens, fewer --warmup-steps, or a smaller --batch-size",
        )
    return replace(settings, steps=steps)


def whole_steps(settings: TrainSettings, n_tokens: float) -> int:
    """Return the tokens of as many complete steps as fit into `n_tokens`, which `with_tokens` doesn't round up."""
    in_ramp, per_step = _tokens_in_ramp(settings), settings.batch_size * settings.context
    return in_ramp + int((n_tokens - in_ramp) // per_step) * per_step


def _tokens_in_ramp(settings: TrainSettings) -> int:
    return sequences_before(settings, settings.schedule.batch_ramp_steps) * settings.context
