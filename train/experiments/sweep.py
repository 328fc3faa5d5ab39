"""`train sweep`: find the best of a grid of settings by held-out loss, with successive halving.

GPT-2's learning rates were tuned on held-out perplexity (Radford et al. 2019, section 2.3). Here every candidate is a
run with its own schedule. The worse ones stop at the rungs (`halving.py`), the others continue from where they are.
With the schedule warm-up, stable, decay a rung judges no undecayed model, but a branch (`branch.py`).

    out/plan.json                what is equal for all trials; another plan is rejected
    out/trials/CANDIDATE/seed-N  model folders like any other; candidates of a larger grid are added later
    out/trials/CANDIDATE/seed-N-steps-M    branches
    out/sweep.json, sweep.html   the result
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webtext.base.errors import ConfigError, RunFailed
from webtext.base.run import Run
from webtext.train.data.sources import open_sources
from webtext.train.evaluate.page import Section
from webtext.train.experiments.branch import branch, judged_run, shared_steps
from webtext.train.experiments.experiment import experiment, need_held_out, publish
from webtext.train.experiments.grid import Candidate, edge_note, make_grid
from webtext.train.experiments.halving import Losses, Rung, halve, mean_loss, rung_steps, survivor_counts
from webtext.train.experiments.processes import held_out_losses, run_trials
from webtext.train.experiments.settings import SweepSettings
from webtext.train.experiments.significance import ALPHA, differences
from webtext.train.experiments.trials import LOSS, Trial, seeded
from webtext.train.settings import TrainSettings


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
        """Return the winner, and caveats: a value at the grid's edge, a lead within chance, undecayed rungs."""
        found = [f"Best: {self.winner.name}, {self.loss:.4f}; its models: '{self.out}/trials/{self.winner.name}'."]
        for i, (name, value) in enumerate(self.winner.values):
            found += edge_note(name, value, {candidate.values[i][1] for candidate in self.candidates})
        found.append(order_note(self.rungs[-1], [candidate.name for candidate in self.candidates]))
        stopped = [each for i, each in enumerate(self.candidates) if i not in self.rungs[-1].losses]
        if any(candidate.settings.schedule.schedule != "wsd" for candidate in stopped):
            found.append(
                f"{len(stopped)} of {len(self.candidates)} candidates stopped early, judged while the learning rate was "
                "still high, which favours low rates; --rungs 1 trains all to the end, and --schedule wsd judges "
                "decayed branches."
            )
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
        winner = {"values": dict(self.winner.values), "loss": self.loss}
        return {"seeds": self.seeds, "candidates": rows, "winner": winner, "notes": self.notes()}

    def sections(self) -> list[Section]:
        """Return a table of all candidates, the best first, with the caveats."""
        means = {
            i: [mean_loss(rung.losses[i]) for rung in self.rungs if i in rung.losses]
            for i in range(len(self.candidates))
        }
        rows = [("candidate", *(f"step {rung.step:,}" for rung in self.rungs))]
        for i in sorted(means, key=lambda i: (-len(means[i]), means[i][-1])):
            cells = [f"{mean:.4f}" if mean < math.inf else "failed" for mean in means[i]]
            rows.append((self.candidates[i].name, *cells, *[""] * (len(self.rungs) - len(cells))))
        return [Section(title=f"{LOSS}, mean of {self.seeds} seeds", notes=self.notes(), rows=rows)]


def run_sweep(
    tokens: Sequence[str], over: Sequence[str], out: str, settings: TrainSettings, sweep: SweepSettings, run: Run
) -> Sweep:
    """Train the grid `over` (`grid.make_grid`) in `out`, rung by rung, and write the result and its page there.

    Finished runs are reused, and a larger grid or more seeds add to them. InputError for tokens without a validation
    split; ConfigError or InputError for the folder of another sweep; RunFailed if no candidate has a loss.
    """
    candidates = make_grid(over, settings)
    sources = open_sources(tokens)
    need_held_out(sources)
    if (
        len({each.settings.data.crosses_documents for each in candidates}) > 1 < len(sources)
        and not settings.data.weights
    ):
        raise ConfigError(
            "'crosses_documents' is swept over several token sets, whose shares follow their windows",
            "the shares weight the held-out losses: set them with --weights",
        )
    of_candidates = [
        seeded(each.name, tokens, each.settings, sweep.seeds, Path(out) / "trials" / each.name) for each in candidates
    ]
    steps = rung_steps(settings.steps, sweep.rungs)
    counts = survivor_counts(len(candidates), len(steps))
    share = max(_steps_made(of[0], steps, counts) for of in of_candidates) / (len(candidates) * steps[-1])
    rungs = ", ".join(f"{count} to step {step:,}" for count, step in zip(counts, steps, strict=True))
    run.console.say(
        f"sweep: {len(candidates)} candidates x {sweep.seeds} seeds: {rungs}; {share:.0%} of training all to the end"
    )

    def measure(numbers: Sequence[int], step: int) -> list[Losses]:
        label = f"rung {steps.index(step) + 1} of {len(steps)}, to step {step:,}"
        losses = _losses([trial for i in numbers for trial in of_candidates[i]], step, label, run, sweep.side_by_side)
        return [tuple(losses[i : i + sweep.seeds]) for i in range(0, len(losses), sweep.seeds)]

    plan = {"rungs": list(sweep.rungs), "eval_windows": settings.monitor.eval_windows}
    trials = [trial for of in of_candidates for trial in of]
    with experiment("sweep", out, trials, plan, run, side_by_side=sweep.side_by_side, share=share):
        found = Sweep(candidates, halve(len(candidates), steps, measure), sweep.seeds, out)
        if not found.rungs[-1].ranking():
            raise RunFailed(
                "no candidate has a held-out loss: all runs failed", f"their logs: {out}/trials/*/*/log.txt"
            )
        publish(out, "sweep", found.to_json(), "Sweep", found.sections())
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


def _losses(trials: Sequence[Trial], step: int, label: str, run: Run, side_by_side: int | None) -> list[float | None]:
    """Train to a rung; return the held-out losses of the runs that are judged there."""
    judged = {trial.folder: judged_run(trial, step) for trial in trials}
    branched = [trial for trial in trials if judged[trial.folder].folder != trial.folder]
    trunks = [trial.until(stop) for trial in branched if (stop := shared_steps(trial, judged[trial.folder]))]
    ended = run_trials(trunks, run, label=label, side_by_side=side_by_side, may_fail=True)
    for trunk in ended:
        branch(trunk, judged[trunk.folder])
    for failed in {trunk.folder for trunk in trunks} - {trunk.folder for trunk in ended}:
        del judged[failed]
    losses = held_out_losses(list(judged.values()), run, label, side_by_side)
    of_trials = dict(zip(judged, losses, strict=True))
    return [of_trials.get(trial.folder) for trial in trials]


def _steps_made(trial: Trial, steps: Sequence[int], counts: Sequence[int]) -> int:
    """Return the most steps that `counts` such trials make in all rungs together, branches included."""
    made = [0, *(shared_steps(trial, judged_run(trial, step)) for step in steps)]
    return sum(count * (step - before) for count, step, before in zip(counts, steps, made, strict=False))
