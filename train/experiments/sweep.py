"""`train sweep`: find the best of a grid of settings by held-out loss, with successive halving.

GPT-2's learning rates were tuned on held-out perplexity (Radford et al. 2019, section 2.3). Here every candidate is a
run with its own schedule. The worse ones stop at the rungs (`halving.py`), the others continue from where they are.

With the schedule warm-up, stable, decay a rung judges no undecayed model: a branch leaves the run where a run of that
many steps starts its decay, and decays as that run would. So a rung's loss is that of a complete run of its steps, and
the run itself continues undecayed (Hu et al. 2024, MiniCPM, section 4).

    out/plan.json                what is equal for all trials; another plan is rejected
    out/trials/CANDIDATE/seed-N  model folders like any other; candidates of a larger grid are added later
    out/trials/CANDIDATE/seed-N-steps-M    branches
    out/sweep.json, sweep.html, winner.toml    the result
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webtext.base.config import changed
from webtext.base.errors import ConfigError, RunFailed
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.data.sources import open_sources
from webtext.train.evaluate.page import Section
from webtext.train.experiments.grid import Candidate, make_grid, recipe_file, value_text
from webtext.train.experiments.halving import Losses, Rung, halve, mean_loss, rung_steps, survivor_counts
from webtext.train.experiments.processes import refuse_torchrun
from webtext.train.experiments.settings import SweepSettings
from webtext.train.experiments.significance import ALPHA, differences
from webtext.train.experiments.trials import Trial, branch, experiment, need_held_out, publish, run_trials, seeded
from webtext.train.optimizer.schedule import decay_start
from webtext.train.settings import TrainSettings

WINNER, LOSS = "winner.toml", "held-out loss, nats per token"


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
        return mean_loss(self.rungs[-1].losses[self.rungs[-1].ranking()[0]]) or 0.0

    def notes(self) -> list[str]:
        """Return caveats: a winner at the grid's edge, a lead within chance, candidates that stopped or failed."""
        names = [candidate.name for candidate in self.candidates]
        found = []
        for i, (name, value) in enumerate(self.winner.values):
            found += edge_note(name, value, {candidate.values[i][1] for candidate in self.candidates})
        found.append(order_note(self.rungs[-1], names))
        stopped = [candidate for i, candidate in enumerate(self.candidates) if i not in self.rungs[-1].losses]
        n_failed = sum(
            any(mean_loss(rung.losses.get(i, (0.0,))) is None for rung in self.rungs) for i in range(len(names))
        )
        if any(candidate.settings.schedule.schedule != "wsd" for candidate in stopped):
            found.append(
                f"{len(stopped)} of {len(names)} candidates stopped early, judged while the learning rate was still high, "
                "which favours low rates; --rungs 1 trains all to the end, and --schedule wsd judges decayed branches."
            )
        elif stopped:
            found.append(f"{len(stopped)} of {len(names)} candidates stopped early, each judged after a decay.")
        if n_failed:
            found.append(f"{n_failed} of them failed: a loss that is not finite has lost.")
        if len({candidate.settings.batch_size for candidate in self.candidates}) > 1:
            found.append("Batch sizes differ, so equal steps are not equal tokens.")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for sweep.json; losses are nats per token, None for a failed run."""
        rows = [
            {
                "values": dict(candidate.values),
                "losses": {str(rung.step): list(rung.losses[i]) for rung in self.rungs if i in rung.losses},
            }
            for i, candidate in enumerate(self.candidates)
        ]
        winner = {"values": dict(self.winner.values), "loss": self.loss, "recipe": str(Path(self.out) / WINNER)}
        return {"seeds": self.seeds, "candidates": rows, "winner": winner, "notes": self.notes()}

    def sections(self) -> list[Section]:
        """Return the winner with its caveats, and a table of all candidates, the best first."""
        order: list[int] = []
        for rung in reversed(self.rungs):
            order += [i for i in rung.ranking() if i not in order]
        order += [i for i in range(len(self.candidates)) if i not in order]

        def cell(rung: Rung, number: int) -> str:
            mean = mean_loss(rung.losses.get(number, ()))
            return f"{mean:.4f}" if mean is not None else "failed" if number in rung.losses else ""

        head = ("candidate", *(f"step {rung.step:,}" for rung in self.rungs))
        rows = [head, *((self.candidates[i].name, *(cell(rung, i) for rung in self.rungs)) for i in order)]
        best = (
            f"best: {self.winner.name}, {self.loss:.4f} {LOSS} ({self.seeds} seeds); its recipe: '{self.out}/{WINNER}'"
        )
        return [Section(title=f"{LOSS}, mean of the seeds", notes=[best, *self.notes()], rows=rows)]


def run_sweep(
    tokens: Sequence[str], over: Sequence[str], out: str, settings: TrainSettings, sweep: SweepSettings, run: Run
) -> Sweep:
    """Train the grid `over` (`grid.make_grid`) in `out`, rung by rung, and write the result and its page there.

    Finished runs are reused, and a larger grid or more seeds add to them. InputError for tokens without a validation
    split; ConfigError or InputError for the folder of another sweep; RunFailed if no candidate has a loss.
    """
    refuse_torchrun()
    candidates = make_grid(over, settings)
    sources = open_sources(tokens)
    need_held_out(sources)
    windows = {each.settings.data.crosses_documents for each in candidates}
    if len(sources) > 1 and not settings.data.weights and len(windows) > 1:
        raise ConfigError(
            "'crosses_documents' is swept over several token sets, whose shares follow their windows",
            "the shares weight the held-out losses: set them with --weights",
        )
    steps = rung_steps(settings.steps, sweep.rungs)
    places = [Path(out) / "trials" / each.name for each in candidates]
    of_candidates = [
        seeded(each.name, tokens, each.settings, sweep.seeds, place)
        for each, place in zip(candidates, places, strict=True)
    ]
    counts = survivor_counts(len(candidates), len(steps))
    share = max(_steps_made(of[0], steps, counts) for of in of_candidates) / (len(candidates) * steps[-1])
    rungs = ", ".join(f"{count} to step {step:,}" for count, step in zip(counts, steps, strict=True))
    run.console.say(
        f"sweep: {len(candidates)} candidates x {sweep.seeds} seeds: {rungs}; {share:.0%} of training all to the end"
    )

    def measure(numbers: Sequence[int], step: int) -> list[Losses]:
        label = f"rung {steps.index(step) + 1} of {len(steps)}, to step {step:,}"
        trials = [trial for i in numbers for trial in of_candidates[i]]
        losses = _losses(trials, step, label, run, sweep.side_by_side)
        return [tuple(losses[i : i + sweep.seeds]) for i in range(0, len(losses), sweep.seeds)]

    plan: dict[str, Any] = {
        "swept": [name for name, _ in candidates[0].values],
        "rungs": list(sweep.rungs),
        "eval_windows": settings.monitor.eval_windows,
        "tokens": [source.train.hash for source in sources],
    }
    trials = [trial for of in of_candidates for trial in of]
    with experiment("sweep", out, trials, run, side_by_side=sweep.side_by_side, share=share, **plan):
        found = Sweep(candidates, halve(len(candidates), steps, measure), sweep.seeds, out)
        if not found.rungs[-1].ranking():
            raise RunFailed(
                "no candidate has a held-out loss: all runs failed", f"their logs: {out}/trials/*/*/log.txt"
            )
        Folder(out).write_bytes(WINNER, winner_recipe(found, tokens).encode())
        publish(out, "sweep", found.to_json(), f"Sweep of {', '.join(plan['swept'])}", found.sections())
    return found


def winner_recipe(found: Sweep, tokens: Sequence[str]) -> str:
    """Return winner.toml: the winner's settings, with the sweep's result as a comment."""
    comment = [
        f"{found.winner.name}: the best of {len(found.candidates)} candidates of `webtext train sweep {' '.join(tokens)}`,",
        f"{found.loss:.4f} nats per held-out token after {found.rungs[-1].step:,} steps, seeds: {found.seeds}.",
        *found.notes(),
        f"  webtext train run {' '.join(tokens)} --out build/model --config {Path(found.out) / WINNER}",
    ]
    return recipe_file(found.winner.settings, comment)


def edge_note(name: str, value: Any, tried: Iterable[Any]) -> list[str]:
    """Return a sentence if the best value is the smallest or largest of two or more numbers.

    Values whose runs failed count as tried: beyond a value that failed there is nothing to find.
    """
    values = sorted(tried) if all(map(_is_number, tried := set(tried))) else []
    if len(values) < 2 or value not in (values[0], values[-1]):
        return []
    side = "largest" if value == values[-1] else "smallest"
    return [f"At the edge: {name} {value_text(value)} is the {side} of those tried, so the best may lie beyond."]


def order_note(last: Rung, names: Sequence[str]) -> str:
    """Say whether the last rung shows which of the best two candidates is better, and what would show it."""
    best = last.ranking()
    if len(best) < 2:
        return "No other candidate ran to the end, so the winner is compared with none there."
    runs = [[loss for loss in last.losses[i] if loss is not None] for i in best[:2]]
    (found,) = differences(runs)
    two = f"{names[best[0]]} and {names[best[1]]}, {found.mean:.4f} apart"
    if len(runs[0]) < 2:
        return f"One seed: the effect of chance is not known, so the order of {two}, is not shown. Use --seeds 3."
    spread = f"seeds of one candidate spread by {math.sqrt(statistics.fmean(map(statistics.variance, runs))):.4f}"
    if found.margin is None or found.mean <= found.margin:
        return f"The order of {two}, is not shown: {spread}. Use more --seeds."
    return f"{two}: more than the {found.margin:.4f} of chance (t test, p < {ALPHA}, two of several); {spread}."


def _losses(trials: Sequence[Trial], step: int, label: str, run: Run, side_by_side: int | None) -> list[float | None]:
    """Train to a rung; return the held-out losses of complete runs of `step` steps, or under cosine of undecayed ones."""
    how: dict[str, Any] = {"run": run, "label": label, "side_by_side": side_by_side, "may_fail": True}
    ends = {trial.folder: _branch(trial, step) for trial in trials}
    branched = [trial for trial in trials if ends[trial.folder].folder != trial.folder]
    trunks = [trial.until(stop) for trial in branched if (stop := decay_start(ends[trial.folder].settings))]
    for result in run_trials(trunks, **how):
        if result.failure is None:
            branch(result.trial, ends[result.trial.folder])
        else:
            del ends[result.trial.folder]
    losses = {place: end.loss for place, end in zip(ends, run_trials(list(ends.values()), **how), strict=True)}
    return [losses.get(trial.folder) for trial in trials]


def _branch(trial: Trial, step: int) -> Trial:
    """Return the run that is judged at a rung: under wsd a complete run of `step` steps, which shares the stable part."""
    if trial.settings.schedule.schedule != "wsd" or step == trial.settings.steps:
        return trial.until(step)
    settings = changed(trial.settings, steps=step)
    return replace(
        trial, settings=settings, name=f"{trial.name}, {step:,} steps", folder=f"{trial.folder}-steps-{step}"
    )


def _steps_made(trial: Trial, steps: Sequence[int], counts: Sequence[int]) -> int:
    """Return the most steps that `counts` such trials make in all rungs together, branches included."""
    ends = [_branch(trial, step) for step in steps]
    trunks = [end.settings.last_step if end.folder == trial.folder else decay_start(end.settings) for end in ends]
    return sum(count * (step - before) for count, step, before in zip(counts, steps, [0, *trunks], strict=False))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
