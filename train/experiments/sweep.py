"""`train sweep`: find the best of a grid of settings by held-out loss, with successive halving.

GPT-2's learning rates were tuned on held-out perplexity (Radford et al. 2019, section 2.3). Here every candidate is a
run with its own schedule. All run to a rung, and the better half continues from there (Jamieson & Talwalkar 2016). A
candidate's loss is the mean over its seeds. If one of them has no loss, because its run failed, it has lost. With the
schedule warm-up, stable, decay a rung judges no undecayed model, but a branch (`trials.py`).

    out/plan.json                what is equal for all trials; another plan is rejected
    out/trials/CANDIDATE/seed-N  model folders like any other; candidates of a larger grid are added later
    out/trials/CANDIDATE/seed-N-steps-M    branches
    out/sweep.json, sweep.html   the result
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from webtext.base.config import changed, options, setting_value, several_values
from webtext.base.errors import ConfigError, RunFailed, did_you_mean
from webtext.base.run import Run
from webtext.train.evaluate.page import Section
from webtext.train.experiments.engine import experiment, publish, run_trials
from webtext.train.experiments.settings import SweepSettings
from webtext.train.experiments.significance import ALPHA, differences
from webtext.train.experiments.trials import LOSS, Trial, held_out_sources, seeded
from webtext.train.settings import TrainSettings

_NOT_SWEPT = {
    "seed": "use --seeds N for several seeds",
    "steps": "candidates are compared after equal steps",
    "context": "losses of different contexts can't be compared",
    "document_masks": "losses with and without masks can't be compared",
    "weights": "they weight the sets' held-out losses, which then can't be compared",
}
FINALISTS = 2
"""Candidates that run to the end, at least: a winner that is compared with nothing after all steps has won nothing."""
Losses = tuple[float | None, ...]
"""Losses of a candidate's seeds, in order; None for a run that failed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the grid: the swept settings' values, in the grid's order, and all settings with them applied."""

    values: tuple[tuple[str, Any], ...]
    settings: TrainSettings

    @property
    def name(self) -> str:
        """The values as a command line takes them, also a folder's name: `learning_rate=0.001,optimizer=muon`."""
        texts = (f"{name}={value if isinstance(value, str) else str(value).lower()}" for name, value in self.values)
        return ",".join(texts)


@dataclass(frozen=True, slots=True)
class Rung:
    """Losses after `step` by candidate number, of the candidates that were still running."""

    step: int
    losses: Mapping[int, Losses]

    def ranking(self) -> list[int]:
        """Return the candidates from the lowest mean up, without failed ones; of equals the earlier comes first."""
        means = {i: mean_loss(losses) for i, losses in self.losses.items()}
        return sorted((i for i in means if means[i] < math.inf), key=lambda i: (means[i], i))


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of a sweep. Rungs refer to candidates by index in `candidates`; the last rung is after all steps."""

    candidates: Sequence[Candidate]
    rungs: Sequence[Rung]
    seeds: int
    out: str

    @property
    def winner(self) -> Candidate:
        """The candidate of lowest held-out loss after all steps. There is one: a sweep in which all fail raises."""
        return self.candidates[self.rungs[-1].ranking()[0]]

    @property
    def loss(self) -> float:
        """The winner's held-out loss in nats per token, the mean of its seeds."""
        return mean_loss(self.rungs[-1].losses[self.rungs[-1].ranking()[0]])

    def notes(self) -> list[str]:
        """Return the winner, and whether it is shown to be better than the next."""
        best = f"Best: {self.winner.name}, {self.loss:.4f}; its models: '{self.out}/trials/{self.winner.name}'."
        return [best, order_note(self.rungs[-1], [candidate.name for candidate in self.candidates])]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for sweep.json; losses are nats per token, None for a failed run."""
        rows = []
        for i, candidate in enumerate(self.candidates):
            losses = {str(rung.step): list(rung.losses[i]) for rung in self.rungs if i in rung.losses}
            rows.append({"values": dict(candidate.values), "losses": losses})
        winner = {"values": dict(self.winner.values), "loss": self.loss}
        return {"seeds": self.seeds, "candidates": rows, "winner": winner, "notes": self.notes()}

    def sections(self) -> list[Section]:
        """Return a table of all candidates, the best first, with the caveats."""
        numbers = range(len(self.candidates))
        means = {i: [mean_loss(rung.losses[i]) for rung in self.rungs if i in rung.losses] for i in numbers}
        rows = [("candidate", *(f"step {rung.step:,}" for rung in self.rungs))]
        for i in sorted(numbers, key=lambda i: (-len(means[i]), means[i][-1])):
            cells = [f"{mean:.4f}" if mean < math.inf else "failed" for mean in means[i]]
            rows.append((self.candidates[i].name, *cells, *[""] * (len(self.rungs) - len(cells))))
        return [Section(title=f"{LOSS}, mean of {self.seeds} seeds", notes=self.notes(), rows=rows)]


def run_sweep(
    tokens: Sequence[str], over: Sequence[str], out: str, settings: TrainSettings, sweep: SweepSettings, run: Run
) -> Sweep:
    """Train the grid `over` (`make_grid`) in `out`, rung by rung, and write the result and its page there.

    Finished runs are reused, and a larger grid or more seeds add to them. InputError for tokens without a validation
    split; ConfigError or InputError for the folder of another sweep; RunFailed if no candidate has a loss.
    """
    candidates, sources = make_grid(over, settings), held_out_sources(tokens)
    crossing = {each.settings.data.crosses_documents for each in candidates}
    if len(crossing) > 1 < len(sources) and not settings.data.weights:
        raise ConfigError(
            "'crosses_documents' is swept over several token sets, whose shares follow their windows",
            "the shares weight the held-out losses: set them with --weights",
        )
    place = Path(out) / "trials"
    of_candidates = [seeded(each.name, tokens, each.settings, sweep.seeds, place / each.name) for each in candidates]
    steps = rung_steps(settings.steps, sweep.rungs)
    counts = survivor_counts(len(candidates), len(steps))
    share = max(_steps_made(of[0], steps, counts) for of in of_candidates) / (len(candidates) * steps[-1])
    rungs = ", ".join(f"{count} to step {step:,}" for count, step in zip(counts, steps, strict=True))
    run.console.say(
        f"sweep: {len(candidates)} candidates x {sweep.seeds} seeds: {rungs}; {share:.0%} of training all to the end"
    )

    def measure(numbers: Sequence[int], step: int) -> list[Losses]:
        label = f"rung {steps.index(step) + 1} of {len(steps)}, to step {step:,}"
        train = partial(run_trials, run=run, label=label, side_by_side=sweep.side_by_side, may_fail=True)
        return _losses([of_candidates[i] for i in numbers], step, train)

    plan = {"rungs": list(sweep.rungs), "eval_windows": settings.monitor.eval_windows}
    trials = [trial for of in of_candidates for trial in of]
    with experiment("sweep", out, trials, plan, run, side_by_side=sweep.side_by_side, share=share):
        found = Sweep(candidates, halve(len(candidates), steps, measure), sweep.seeds, out)
        if not found.rungs[-1].ranking():
            raise RunFailed("no candidate has a held-out loss: all runs failed", f"their logs: {place}/*/*/log.txt")
        publish(out, "sweep", found.to_json(), "Sweep", found.sections())
    return found


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
        if name in _NOT_SWEPT:
            raise ConfigError(f"--over {text}: '{name}' cannot be swept", _NOT_SWEPT[name])
        if not known[name].field.metadata["in_recipe"]:
            raise ConfigError(f"--over {text}: '{name}' does not change the model", "sweep a setting that does")
        texts = several_values(listed) if listed else []
        values = [setting_value(TrainSettings, name, value, "train") for value in texts]
        if name in columns or not values or any(value in values[:i] for i, value in enumerate(values)):
            raise ConfigError(f"--over {text}: not one list of different values", "e.g. --over weight_decay=0.01,0.1")
        columns[name] = values
    points = [tuple(zip(columns, values, strict=True)) for values in itertools.product(*columns.values())]
    if len(points) < 2:
        raise ConfigError("a sweep needs two candidates or more", "e.g. --lr 1e-3,2e-3,4e-3")
    return [Candidate(point, changed(settings, **dict(point))) for point in points]


def mean_loss(losses: Losses) -> float:
    """Return the mean, or infinity if any loss is missing or not finite."""
    numbers = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return statistics.fmean(numbers) if numbers and len(numbers) == len(losses) else math.inf


def rung_steps(steps: int, shares: Sequence[float]) -> list[int]:
    """Return the steps of the rungs, rounded up; rungs of equal steps are merged.

    >>> rung_steps(500, (0.25, 0.5, 1)), rung_steps(2, (0.25, 0.5, 1))
    ([125, 250, 500], [1, 2])
    """
    return sorted({math.ceil(share * steps - 1e-9) for share in shares})


def survivor_counts(n: int, n_rungs: int) -> list[int]:
    """Return how many candidates run in each rung if few fail.

    >>> survivor_counts(8, 3), survivor_counts(3, 3)
    ([8, 4, 2], [3, 2, 2])
    """
    counts = [n]
    for _ in range(n_rungs - 1):
        counts.append(min(n, max(FINALISTS, math.ceil(counts[-1] / 2))))
    return counts


def halve(n: int, rungs: Sequence[int], measure: Callable[[Sequence[int], int], Sequence[Losses]]) -> list[Rung]:
    """Run candidates 0 ... n-1 through the rungs; `measure(candidates, step)` trains them to a step and returns losses.

    Ends early if no candidate is left.
    """
    alive = list(range(n))
    found: list[Rung] = []
    for step, n_kept in zip(rungs, [*survivor_counts(n, len(rungs))[1:], 0], strict=True):
        found.append(Rung(step, dict(zip(alive, measure(alive, step), strict=True))))
        alive = sorted(found[-1].ranking()[:n_kept])
        if not alive:
            break
    return found


def order_note(last: Rung, names: Sequence[str]) -> str:
    """Say whether the last rung shows which of the best two candidates is better, and what would show it."""
    best = last.ranking()
    if len(best) < 2:
        return "No other candidate ran to the end, so the winner is compared with none there."
    (found,) = differences([last.losses[i] for i in best[:2]])
    two = f"{names[best[0]]} and {names[best[1]]}, {found.mean:.4f} apart"
    if found.margin is None:
        return f"One seed: the effect of chance is not known, so the order of {two}, is not shown. Use --seeds 3."
    spread = f"its 95 % interval by other seeds is ± {found.margin:.4f}"
    if found.mean <= found.margin:
        return f"The order of {two}, is not shown: {spread}. Use more --seeds."
    return f"{two}: {spread} (t test, p < {ALPHA}, two of several)."


def _losses(
    of_candidates: Sequence[Sequence[Trial]], step: int, train: Callable[[Sequence[Trial]], Sequence[Trial]]
) -> list[Losses]:
    """Train to a rung, and return the held-out losses of the runs that are judged there."""
    judged = {trial.folder: trial.judged_at(step) for of in of_candidates for trial in of}
    branched = [trial for of in of_candidates for trial in of if judged[trial.folder].folder != trial.folder]
    trunks = [trial.until(stop) for trial in branched if (stop := trial.shared_steps(judged[trial.folder]))]
    failed = {trunk.folder for trunk in trunks}
    for trunk in train(trunks):
        trunk.branch(judged[trunk.folder])
        failed.remove(trunk.folder)
    losses = {each.folder: each.loss() for each in train([judged[folder] for folder in judged if folder not in failed])}
    return [tuple(losses.get(judged[trial.folder].folder) for trial in of) for of in of_candidates]


def _steps_made(trial: Trial, steps: Sequence[int], counts: Sequence[int]) -> int:
    """Return the most steps that `counts` such trials make in all rungs together, branches included."""
    made = [0, *(trial.shared_steps(trial.judged_at(step)) for step in steps)]
    return sum(count * (step - before) for count, step, before in zip(counts, steps, made, strict=False))
