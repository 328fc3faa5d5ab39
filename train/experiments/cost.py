"""The cost of an experiment before it starts: runs, tokens, operations, disk, and time measured by a few steps."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace

from webtext.base.config import changed
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.data.sources import open_sources
from webtext.train.experiments.settings import ExperimentSettings
from webtext.train.experiments.side_by_side import Call, run_side_by_side
from webtext.train.experiments.slots import slots_for
from webtext.train.experiments.trials import Trial, train_trial
from webtext.train.metrics import read_metrics
from webtext.train.model.flops import flops_per_token
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.plan.footprint import GIB
from webtext.train.plan.plan import time_text
from webtext.train.shape import GPT2Config

WARM_UP_STEPS = 4
"""Steps of one microbatch each; the first is not counted."""
_CHECKPOINT_WORDS = 3
"""Float32 numbers per parameter in a checkpoint: the parameter and AdamW's two moments."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Totals over all runs. `seconds` counts training only; None if nothing was measured."""

    runs: int
    side_by_side: int
    tokens: int
    flops: float
    seconds: float | None
    disk_bytes: int

    def __str__(self) -> str:
        time = "time not measured" if self.seconds is None else f"about {time_text(self.seconds)} of training"
        return (
            f"{self.runs:,} runs, {self.side_by_side:,} at a time, {self.tokens:,} tokens and {self.flops:.3g} FLOP in all; "
            f"{time}, at most {self.disk_bytes / GIB:,.2f} GiB of disk"
        )


def cost_of(trials: Sequence[Trial], run: Run, how: ExperimentSettings, share: float = 1.0) -> Cost:
    """Estimate the cost of the trials for `share` of their steps; with `how.estimate`, measured in a temporary folder.

    The largest trials make some steps, as many at a time as would run. A step is one microbatch of the trial, so the
    estimate doesn't account for the small share of the optimizer in a large batch. Disk counts each run's kept
    checkpoints and one being written.
    """
    configs = [each.settings.config(open_sources(each.tokens)[0].train.vocab_size) for each in trials]
    slots = slots_for([each.settings for each in trials], [config.vocab_size for config in configs], how.side_by_side)
    tokens = [total_tokens(each.settings) for each in trials]
    flops = [n * flops_per_token(config) for n, config in zip(tokens, configs, strict=True)]
    disk = sum(
        config.n_parameters * 4 * _CHECKPOINT_WORDS * ((trial.settings.checkpoint.keep_checkpoints or 1) + 1)
        for trial, config in zip(trials, configs, strict=True)
    )
    seconds = None
    if how.estimate:
        largest = sorted(range(len(trials)), key=lambda i: -configs[i].n_parameters)[: len(slots)]
        per_second = _flops_per_second([trials[i] for i in largest], [configs[i] for i in largest], run, len(slots))
        seconds = sum(flops) * share / per_second
    return Cost(len(trials), len(slots), round(sum(tokens) * share), sum(flops) * share, seconds, disk)


def _flops_per_second(trials: Sequence[Trial], configs: Sequence[GPT2Config], run: Run, n_slots: int) -> float:
    """Return the FLOP/s of all slots together while each makes some steps."""
    run.console.say("measuring some steps to estimate the time of all")
    with tempfile.TemporaryDirectory(prefix="webtext-") as folder:
        short = [_short(trial, f"{folder}/{i}") for i, trial in enumerate(trials)]
        slots = slots_for([each.settings for each in short], [config.vocab_size for config in configs], n_slots)
        calls = [Call(f"{each.name}, some steps", train_trial, (each,), each.log) for each in short]
        run_side_by_side(calls, slots)
        return sum(
            _tokens_per_second(each) * flops_per_token(config) for each, config in zip(short, configs, strict=True)
        )


def _short(trial: Trial, folder: str) -> Trial:
    settings = changed(
        trial.settings,
        batch_size=min(trial.settings.microbatch_size, trial.settings.first_batch_size),
        batch_ramp_start=None,
        batch_ramp_steps=0,
        warmup_steps=0,
        steps=WARM_UP_STEPS,
        eval_interval=None,
        eval_windows=1,
        checkpoint_interval=None,
    )
    return replace(trial, settings=settings, folder=folder)


def _tokens_per_second(trial: Trial) -> float:
    rows = read_metrics(Folder(trial.folder), "rerun the command")
    return max([float(row["tokens_per_second"]) for row in rows if "tokens_per_second" in row][1:])
