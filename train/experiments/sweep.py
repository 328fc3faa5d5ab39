"""`train sweep`: find the best of a grid of settings by held-out loss.

GPT-2's learning rates were tuned on held-out perplexity (Radford et al. 2019, section 2.3). Here every candidate is a
complete run with its own schedule, and its loss is the mean over its seeds. If one of them failed, it has lost.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scipy import stats

from webtext.base.config import changed, options, setting_value, several_values
from webtext.base.console import counted
from webtext.base.errors import ConfigError, RunFailed, did_you_mean
from webtext.base.run import Run
from webtext.train.experiments.significance import ALPHA
from webtext.train.experiments.trials import LOSS, Result, Row, held_out_sources, run_experiment, seeded
from webtext.train.settings import ExperimentSettings, TrainSettings

NOT_SWEPT = {
    "seed": "use --seeds N for several seeds",
    "steps": "candidates are compared after equal steps",
    "stop_at_step": "candidates are compared at their ends",
    "eval_windows": "losses of different windows can't be compared",
    "context": "losses of different contexts can't be compared",
    "documents": "losses of other windows, or with masks, can't be compared",
    "weights": "they weight the sets' held-out losses, which then can't be compared",
}
Losses = Sequence[float | None]
"""Losses of a candidate's seeds, in order; None for a run that failed."""


def run_sweep(
    tokens: Sequence[str], over: Sequence[str], out: str, settings: TrainSettings, sweep: ExperimentSettings, run: Run
) -> Result:
    """Train the grid `over` (`make_grid`) in `out`, and write the result and its page there.

    Finished runs are reused, and a larger grid or more seeds add to them. InputError for tokens without a validation
    split; ConfigError or InputError for the folder of another sweep; RunFailed if no candidate has a loss.
    """
    grid, n_seeds = make_grid(over), sweep.seeds or 1
    rows: list[Row] = []
    for name, values in grid.items():
        trials = seeded(name, tokens, changed(settings, **values), n_seeds, Path(out, "trials", name))
        rows.append(({"candidate": name, "values": values}, trials))
    held_out_sources(tokens)
    run.console.say(f"sweep: {len(grid)} candidates x {counted(n_seeds, 'seed')}, {settings.steps:,} steps each")
    plan = {"eval_windows": settings.monitor.eval_windows}
    return run_experiment("sweep", out, rows, plan, run, partial(swept, out), may_fail=True)


def swept(out: str, candidates: Sequence[Mapping[str, Any]]) -> Result:
    """Return the result of a sweep; of equal losses the earlier candidate's is better. RunFailed if there is none."""
    rows = [{**each, "loss": mean_loss(each["losses"])} for each in candidates]
    rows.sort(key=lambda row: row["loss"])
    ran = [row for row in rows if row["loss"] < math.inf]
    if not ran:
        raise RunFailed("no candidate has a held-out loss: all runs failed", f"their logs: {out}/trials/*/*/log.txt")
    for row in rows[len(ran) :]:
        row["loss"] = "failed"
    best, n_seeds = ran[0], len(ran[0]["losses"])
    notes = [
        f"Best: {best['candidate']}, {best['loss']:.4f}; its models: '{out}/trials/{best['candidate']}'.",
        order_note({row["candidate"]: row["losses"] for row in ran[:2]}),
    ]
    facts = {"seeds": n_seeds, "winner": {"values": best["values"], "loss": best["loss"]}}
    title = f"{LOSS}, mean of {counted(n_seeds, 'seed')}"
    return Result(title=title, notes=notes, columns=("candidate", "loss"), rows=rows, facts=facts)


def make_grid(over: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return all combinations of `NAME=VALUE,VALUE,...`, the last setting changing fastest.

    A candidate's name has its values as a command line takes them, and is also a folder's name:
    `learning_rate=0.001,optimizer=muon`. ConfigError for a value of another type, for a setting that makes losses
    incomparable, and for fewer than two candidates.
    """
    known = options(TrainSettings)
    columns: dict[str, list[Any]] = {}
    for text in over:
        name, _, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        if name not in known:
            raise ConfigError(f"--over {text}: [train] has no '{name}'", did_you_mean(name, known))
        if name in NOT_SWEPT:
            raise ConfigError(f"--over {text}: '{name}' cannot be swept", NOT_SWEPT[name])
        values = [setting_value(known, name, value, "train") for value in several_values(listed) if listed]
        if name in columns or not values or any(value in values[:i] for i, value in enumerate(values)):
            raise ConfigError(f"--over {text}: not one list of different values", "e.g. --over weight_decay=0.01,0.1")
        columns[name] = values
    points = [dict(zip(columns, values, strict=True)) for values in itertools.product(*columns.values())]
    if len(points) < 2:
        raise ConfigError("a sweep needs two candidates or more", "e.g. --over learning_rate=1e-3,2e-3,4e-3")
    return {
        ",".join(
            f"{name}={value if isinstance(value, str) else str(value).lower()}" for name, value in point.items()
        ): point
        for point in points
    }


def mean_loss(losses: Losses) -> float:
    """Return the mean, or infinity if any loss is missing or not finite."""
    numbers = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return statistics.fmean(numbers) if len(numbers) == len(losses) else math.inf


def order_note(last: Mapping[str, Losses]) -> str:
    """Return whether the last losses of the best two candidates show which is better, or how to show it."""
    if len(last) < 2:
        return "No other candidate ran to the end, so the winner is compared with none there."
    best, second = last.values()
    two = f"{' and '.join(last)}, {mean_loss(second) - mean_loss(best):.4f} apart"
    if len(best) == 1:
        return f"One seed: the effect of chance is not known, so the order of {two}, is not shown. Use --seeds 3."
    low, high = stats.ttest_ind(second, best).confidence_interval(1 - ALPHA)
    spread = f"its 95 % interval by other seeds is ± {(high - low) / 2:.4f}"
    if not low > 0:  # or equal losses, which give no interval
        return f"The order of {two}, is not shown: {spread}. Use more --seeds."
    return f"{two}: {spread} (t test, p < {ALPHA}, two of several)."
