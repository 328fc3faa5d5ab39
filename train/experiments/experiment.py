"""What all experiments share: the printed budget, the lock and the plan of a folder, the files of the result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.data.sources import Source, open_sources
from webtext.train.evaluate.page import Section, as_page
from webtext.train.experiments.processes import slots_for
from webtext.train.experiments.trials import Trial
from webtext.train.model.flops import flops_per_token
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.plan.footprint import GIB

PLAN = "plan.json"
CHECKPOINT_BYTES = 12
"""Bytes per parameter in a checkpoint: the parameter and AdamW's two moments, in float32."""


@contextlib.contextmanager
def experiment(
    verb: str,
    out: str,
    trials: Sequence[Trial],
    plan: Mapping[str, Any],
    run: Run,
    *,
    side_by_side: int | None,
    share: float = 1.0,
) -> Iterator[None]:
    """Print the budget of the trials, of which `share` of all steps will be made, and lock the folder `out`.

    Raises DryRun on a dry run, and ConfigError if the folder was made with another `plan`: what must be equal for its
    trials to be comparable, beyond what their checkpoints record. The plan is kept in plan.json. ConfigError also for two
    trials of one folder, and under torchrun, whose processes would each start all the trials.
    """
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError("an experiment starts its own processes", "give the command without torchrun")
    folder = Folder(out)
    theirs: Mapping[str, Any] = folder.read_object(PLAN, "choose another --out") if folder.exists(PLAN) else plan
    for name, value in plan.items():
        if theirs.get(name) != value:
            raise ConfigError(
                f"'{out}' was made with {name} {theirs.get(name)}, but here it is {value}",
                "choose another --out, or remove the folder to start again",
            )
    for i, trial in enumerate(trials):
        if any(trial.folder == other.folder for other in trials[:i]):
            raise ConfigError(f"two runs have the folder of '{trial.name}'", "give values and budgets that differ more")
    vocab_size = open_sources(trials[0].tokens)[0].train.vocab_size
    tokens, flops, disk = 0.0, 0.0, 0
    for trial in trials:
        config, n_tokens = trial.settings.config(vocab_size), total_tokens(trial.settings) * share
        tokens += n_tokens
        flops += n_tokens * flops_per_token(config)
        disk += config.n_parameters * CHECKPOINT_BYTES * ((trial.settings.checkpoint.keep_checkpoints or 1) + 1)
    n_slots = len(slots_for(trials, side_by_side))
    run.console.say(
        f"{verb}: {len(trials):,} runs, {n_slots:,} at a time, {round(tokens):,} tokens and {flops:.3g} FLOP in all; "
        f"at most {disk / GIB:,.2f} GiB of disk"
    )
    if run.dry_run:
        raise DryRun
    with folder.held():
        folder.write_object(PLAN, plan)
        yield


def need_held_out(sources: Sequence[Source]) -> None:
    """Raise InputError if no token set has held-out tokens, since held-out loss decides."""
    if not any(source.validation.n_tokens for source in sources):
        names = ", ".join(f"'{source.name}'" for source in sources)
        raise InputError(f"{names} has no held-out tokens, and held-out loss decides", "pack with a validation split")


def publish(out: str, verb: str, found: Mapping[str, Any], title: str, sections: Sequence[Section]) -> None:
    """Write VERB.json and VERB.html into the folder `out`."""
    Folder(out).write_object(f"{verb}.json", found)
    Folder(out).write_bytes(f"{verb}.html", as_page(title, sections).encode())
