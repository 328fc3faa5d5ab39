"""`train sweep`: find the best of a grid of settings by held-out loss, with successive halving.

GPT-2's learning rates were tuned on held-out perplexity (Radford et al. 2019, section 2.3). Here every candidate is a
run with its own schedule. All run to a rung, and the better half continues from there (Jamieson & Talwalkar 2016). A
candidate's loss is the mean over its seeds. If one of them has no loss, because its run failed, it has lost. With the
schedule warm-up, stable, decay a rung judges no undecayed model, but a complete run of its steps.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webtext.base.config import changed, options, setting_value, several_values
from webtext.base.errors import ConfigError, RunFailed, did_you_mean
from webtext.base.run import Run
from webtext.train.experiments.settings import SweepSettings
from webtext.train.experiments.significance import ALPHA, differences
from webtext.train.experiments.trials import LOSS, Result, Trial, held_out_sources, seeded, table
from webtext.train.settings import TrainSettings

NOT_SWEPT = {
    "seed": "use --seeds N for several seeds",
    "steps": "candidates are compared after equal steps",
    "context": "losses of different contexts can't be compared",
    "document_masks": "losses with and without masks can't be compared",
    "weights": "they weight the sets' held-out losses, which then can't be compared",
}
FINALISTS = 2
"""Candidates that run to the end, at least: a winner that is compared with nothing after all steps has won nothing."""
Losses = Sequence[float | None]
"""Losses of a candidate's seeds, in order; None for a run that failed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the grid: the swept settings' values, in the grid's order, and all settings with them applied."""

    values: Mapping[str, Any]
    settings: TrainSettings

    @property
    def name(self) -> str:
        """The values as a command line takes them, also a folder's name: `learning_rate=0.001,optimizer=muon`."""
        texts = (
            f"{name}={value if isinstance(value, str) else str(value).lower()}" for name, value in self.values.items()
        )
        return ",".join(texts)


def run_sweep(
    tokens: Sequence[str], over: Sequence[str], out: str, settings: TrainSettings, sweep: SweepSettings, run: Run
) -> Result:
    """Train the grid `over` (`make_grid`) in `out`, rung by rung, and write the result and its page there.

    Finished runs are reused, and a larger grid or more seeds add to them. InputError for tokens without a validation
    split; ConfigError or InputError for the folder of another sweep; RunFailed if no candidate has a loss.
    """
    candidates, sources = {each.name: each for each in make_grid(over, settings)}, held_out_sources(tokens)
    crossing = {each.settings.data.crosses_documents for each in candidates.values()}
    if len(crossing) > 1 < len(sources) and not settings.data.weights:
        raise ConfigError(
            "'crosses_documents' is swept over several token sets, whose shares follow their windows",
            "the shares weight the held-out losses: set them with --weights",
        )
    n_seeds = sweep.seeds or 1
    trials = {
        name: seeded(name, tokens, each.settings, n_seeds, Path(out) / "trials" / name)
        for name, each in candidates.items()
    }
    steps = sorted({math.ceil(share * settings.steps - 1e-9) for share in sweep.rungs})
    counts = survivor_counts(len(candidates), len(steps))
    is_whole = any(each.settings.schedule.schedule == "wsd" for each in candidates.values())
    made = [step - before * (not is_whole) for before, step in itertools.pairwise([0, *steps])]
    share = sum(count * n for count, n in zip(counts, made, strict=True)) / (len(candidates) * steps[-1])
    rungs = ", ".join(f"{count} to step {step:,}" for count, step in zip(counts, steps, strict=True))
    run.console.say(
        f"sweep: {len(candidates)} candidates x {n_seeds} seeds: {rungs}; {share:.0%} of training all to the end"
    )
    plan = {"rungs": list(sweep.rungs), "eval_windows": settings.monitor.eval_windows}
    every = [trial for of in trials.values() for trial in of]
    with table("sweep", out, every, plan, run, sweep.side_by_side, share) as runs:

        def measure(names: Sequence[str], step: int) -> list[Losses]:
            judged = [[judged_at(trial, step) for trial in trials[name]] for name in names]
            label = f"rung {steps.index(step) + 1} of {len(steps)}, to step {step:,}"
            trained = runs.run([trial for of in judged for trial in of], label, may_fail=True)
            return [[trial.loss() if trial in trained else None for trial in of] for of in judged]

        losses, best = halve(list(candidates), steps, measure)
        if not best:
            raise RunFailed(
                "no candidate has a held-out loss: all runs failed", f"their logs: {out}/trials/*/*/log.txt"
            )
        return runs.publish(swept(candidates, losses, best, out))


def swept(
    candidates: Mapping[str, Candidate], losses: Mapping[str, Mapping[int, Losses]], best: Sequence[str], out: str
) -> Result:
    """Return the result of a sweep, given the losses by candidate and step, and the best after all steps."""
    means = {name: {f"step {step:,}": mean_loss(of) for step, of in losses[name].items()} for name in candidates}
    rows = []
    for name in sorted(candidates, key=lambda name: (-len(means[name]), [*means[name].values()][-1])):
        shown = {step: mean if mean < math.inf else "failed" for step, mean in means[name].items()}
        rows.append({"candidate": name, "values": candidates[name].values, "losses": losses[name], **shown})
    last = {name: [*losses[name].values()][-1] for name in best[:2]}
    loss, n_seeds = mean_loss(last[best[0]]), len(last[best[0]])
    notes = [f"Best: {best[0]}, {loss:.4f}; its models: '{out}/trials/{best[0]}'.", order_note(last)]
    return Result(
        title=f"{LOSS}, mean of {n_seeds} seeds",
        notes=notes,
        columns=["candidate", *means[best[0]]],
        rows=rows,
        facts={"seeds": n_seeds, "winner": {"values": candidates[best[0]].values, "loss": loss}},
    )


def make_grid(over: Sequence[str], settings: TrainSettings) -> list[Candidate]:
    """Return all combinations of `NAME=VALUE,VALUE,...`, the last setting changing fastest.

    Values are parsed and checked like those of a config file. ConfigError for a bad value, for a setting that makes
    losses incomparable or changes no model, and for fewer than two candidates.
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
        if not known[name].field.metadata["in_recipe"]:
            raise ConfigError(f"--over {text}: '{name}' does not change the model", "sweep a setting that does")
        texts = several_values(listed) if listed else []
        values = [setting_value(TrainSettings, name, value, "train") for value in texts]
        if name in columns or not values or any(value in values[:i] for i, value in enumerate(values)):
            raise ConfigError(f"--over {text}: not one list of different values", "e.g. --over weight_decay=0.01,0.1")
        columns[name] = values
    points = [dict(zip(columns, values, strict=True)) for values in itertools.product(*columns.values())]
    if len(points) < 2:
        raise ConfigError("a sweep needs two candidates or more", "e.g. --lr 1e-3,2e-3,4e-3")
    return [Candidate(point, changed(settings, **point)) for point in points]


def mean_loss(losses: Losses) -> float:
    """Return the mean, or infinity if any loss is missing or not finite."""
    numbers = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return statistics.fmean(numbers) if numbers and len(numbers) == len(losses) else math.inf


def survivor_counts(n: int, n_rungs: int) -> list[int]:
    """Return how many candidates run in each rung if few fail.

    >>> survivor_counts(8, 3), survivor_counts(3, 3)
    ([8, 4, 2], [3, 2, 2])
    """
    counts = [n]
    for _ in range(n_rungs - 1):
        counts.append(min(n, max(FINALISTS, math.ceil(counts[-1] / 2))))
    return counts


def halve(
    names: Sequence[str], steps: Sequence[int], measure: Callable[[Sequence[str], int], Sequence[Losses]]
) -> tuple[dict[str, dict[int, Losses]], list[str]]:
    """Run candidates through the rungs; `measure(names, step)` trains them to a step and returns their losses.

    Returns the losses by name and step, and the names that have a loss after all steps, the best first; of equals the
    earlier is better. Ends early if no candidate is left.
    """
    losses: dict[str, dict[int, Losses]] = {name: {} for name in names}
    best = list(names)
    for step, count in zip(steps, survivor_counts(len(names), len(steps)), strict=True):
        alive = [name for name in names if name in best[:count]]
        for name, of_seeds in zip(alive, measure(alive, step) if alive else [], strict=True):
            losses[name][step] = of_seeds
        means = {name: mean_loss(losses[name][step]) for name in alive}
        best = sorted((name for name in alive if means[name] < math.inf), key=means.__getitem__)
    return losses, best


def order_note(last: Mapping[str, Losses]) -> str:
    """Say whether the last losses of the best two candidates show which is better, and what would show it."""
    if len(last) < 2:
        return "No other candidate ran to the end, so the winner is compared with none there."
    (found,) = differences(list(last.values()))
    two = f"{' and '.join(last)}, {found.difference:.4f} apart"
    if found.margin is None:
        return f"One seed: the effect of chance is not known, so the order of {two}, is not shown. Use --seeds 3."
    spread = f"its 95 % interval by other seeds is ± {found.margin:.4f}"
    if found.difference <= found.margin:
        return f"The order of {two}, is not shown: {spread}. Use more --seeds."
    return f"{two}: {spread} (t test, p < {ALPHA}, two of several)."


def judged_at(trial: Trial, step: int) -> Trial:
    """Return the run that shows how good a trial is after `step` steps: under wsd a complete one, else itself until then."""
    if trial.settings.schedule.schedule != "wsd" or step == trial.settings.steps:
        return trial.until(step)
    settings, folder = changed(trial.settings, steps=step), f"{trial.folder}-steps-{step}"
    return replace(trial, settings=settings, name=f"{trial.name}, {step:,} steps", folder=folder)
