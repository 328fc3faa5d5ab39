"""`train sweep`: find the best of a grid of settings by held-out loss, with successive halving.

GPT-2's learning rates were tuned on held-out perplexity (Radford et al. 2019, section 2.3). Here every candidate is a
run with its own schedule. The worse ones stop at the rungs (`halving.py`), the others continue from where they are.

    out/plan.json                the swept settings, and those equal in every trial; another plan is rejected
    out/trials/CANDIDATE/seed-N  model folders like any other; candidates of a larger grid are added later
    out/sweep.json, winner.toml  the result; `sweep_page.py` makes the page
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webtext.base.config import changed, recipe_settings
from webtext.base.errors import ConfigError, DryRun, InputError, RunFailed
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.train.data.sources import Source, open_sources, source_uses
from webtext.train.evaluate.curve import Curve
from webtext.train.experiments.cost import cost_of
from webtext.train.experiments.grid import Candidate, make_grid
from webtext.train.experiments.halving import Losses, Rung, halve, mean_loss, rung_steps, survivor_counts, trained_steps
from webtext.train.experiments.recipe_file import recipe_file
from webtext.train.experiments.settings import SweepSettings
from webtext.train.experiments.side_by_side import refuse_torchrun
from webtext.train.experiments.trials import Trial, TrialResult, trial_losses
from webtext.train.experiments.winner import edges, order_note
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings, difference

WINNER = "winner.toml"


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of a sweep. Rungs refer to candidates by index in `candidates`; the last rung is after all steps."""

    tokens: tuple[str, ...]
    candidates: Sequence[Candidate]
    rungs: Sequence[Rung]
    seeds: Sequence[int]
    planned_steps: Sequence[int]
    out: str

    @property
    def best(self) -> int:
        """The winner's index. There is always one: a sweep in which all fail raises."""
        return self.rungs[-1].ranking()[0]

    @property
    def winner(self) -> Candidate:
        """The candidate of lowest held-out loss after all steps."""
        return self.candidates[self.best]

    @property
    def loss(self) -> float:
        """The winner's held-out loss in nats per token, the mean of its seeds."""
        loss = mean_loss(self.rungs[-1].losses[self.best])
        assert loss is not None
        return loss

    def notes(self) -> list[str]:
        """Return caveats: a winner at the grid's edge, a lead within chance, candidates that stopped or failed."""
        names = [candidate.name for candidate in self.candidates]
        found = [f"At the edge of the grid: {edge}." for edge in edges(self.candidates, self.winner)]
        found.append(order_note(self.rungs[-1], names))
        n_failed = sum(
            any(mean_loss(rung.losses[i]) is None for rung in self.rungs if i in rung.losses) for i in range(len(names))
        )
        n_stopped = len(names) - len(self.rungs[-1].losses)
        if n_stopped:
            found.append(
                f"{n_stopped} of {len(names)} candidates stopped early, judged while the learning rate was still high; "
                "--rungs 1 trains all to the end."
            )
        if n_failed:
            found.append(f"{n_failed} of them failed: a loss that is not finite has lost.")
        if len({candidate.settings.batch_size for candidate in self.candidates}) > 1:
            found.append("Batch sizes differ, so equal steps are not equal tokens.")
        return found

    def trial(self, number: int, seed: int) -> Trial:
        """Return the run of a candidate with one seed."""
        candidate = self.candidates[number]
        name = candidate.name if len(self.seeds) == 1 else f"{candidate.name}, seed {seed}"
        settings = changed(candidate.settings, seed=seed, stop_at_step=None, sample_interval=None)
        folder = str(Path(self.out) / "trials" / candidate.folder / f"seed-{seed}")
        return Trial(name=name, tokens=self.tokens, settings=settings, folder=folder)

    def curves(self) -> Iterator[tuple[int, Curve]]:
        """Yield the candidate's index and the losses of every run that made steps."""
        for number in range(len(self.candidates)):
            for seed in self.seeds:
                with contextlib.suppress(InputError):  # a run that failed in its first step has no losses
                    yield number, TrialResult(self.trial(number, seed), None).curve()

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for sweep.json; losses are nats per token, None for a failed run."""
        rows = [
            {
                "values": dict(candidate.values),
                "losses": {str(rung.step): list(rung.losses[i]) for rung in self.rungs if i in rung.losses},
                "folders": [self.trial(i, seed).folder for seed in self.seeds],
            }
            for i, candidate in enumerate(self.candidates)
        ]
        return {
            "tokens": list(self.tokens),
            "seeds": list(self.seeds),
            "rungs": list(self.planned_steps),
            "candidates": rows,
            "winner": {
                "values": dict(self.winner.values),
                "loss": self.loss,
                "recipe": Folder(self.out).location(WINNER),
                "at_edge": [edge.name for edge in edges(self.candidates, self.winner)],
            },
            "notes": self.notes(),
        }


def run_sweep(
    tokens: Sequence[str], over: Sequence[str], out: str, settings: TrainSettings, sweep: SweepSettings, run: Run
) -> Sweep:
    """Train the grid `over` (`grid.make_grid`) in `out`, rung by rung, and write sweep.json and winner.toml there.

    Finished runs are reused, and a larger grid or more seeds add to them. InputError for tokens without a validation
    split; ConfigError or InputError for the folder of another sweep; RunFailed if no candidate has a loss.
    """
    refuse_torchrun()
    candidates = make_grid(over, settings)
    sources = open_sources(tokens)
    need_held_out(sources)
    if (
        len(sources) > 1
        and not settings.data.weights
        and len({each.settings.data.crosses_documents for each in candidates}) > 1
    ):
        raise ConfigError(
            "'crosses_documents' is swept over several token sets, whose shares follow their windows",
            "the shares weight the held-out losses: set them with --weights",
        )
    steps = rung_steps(settings.steps, sweep.rungs)
    found = Sweep(tuple(tokens), candidates, [], range(settings.seed, settings.seed + sweep.seeds), steps, out)
    plan = _plan(sources, candidates, settings, sweep)
    _check_plan(out, plan)
    counts = survivor_counts(len(candidates), len(steps), sweep.keep_ratio)
    rungs = ", ".join(f"{count} to step {step:,}" for count, step in zip(counts, steps, strict=True))
    seeds = f" x {sweep.seeds} seeds" if sweep.seeds > 1 else ""
    run.console.say(f"sweep: {len(candidates)} candidates{seeds}: {rungs}")
    for use in source_uses(sources, candidates[0].settings, max(total_tokens(each.settings) for each in candidates)):
        run.console.say(f"  each run to the end: {use}")
    share = trained_steps(len(candidates), steps, sweep.keep_ratio) / (len(candidates) * steps[-1])
    trials = [found.trial(i, seed) for i in range(len(candidates)) for seed in found.seeds]
    run.console.say(f"sweep: {cost_of(trials, run, sweep, share)}, {share:.0%} of training all to the end")
    if run.dry_run:
        raise DryRun

    def measure(numbers: Sequence[int], step: int) -> list[Losses]:
        label = f"rung {steps.index(step) + 1} of {len(steps)}, to step {step:,}"
        trials = [found.trial(i, seed).until(step) for i in numbers for seed in found.seeds]
        losses = trial_losses(trials, run, label=label, side_by_side=sweep.side_by_side)
        return [tuple(losses[i : i + sweep.seeds]) for i in range(0, len(losses), sweep.seeds)]

    with Folder(out).held():
        Folder(out).write_bytes("plan.json", json.dumps(plan, indent=1).encode() + b"\n")
        found = replace(found, rungs=halve(len(candidates), steps, sweep.keep_ratio, measure))
        if not found.rungs[-1].ranking():
            raise RunFailed(
                "no candidate has a held-out loss: all runs failed", f"their logs: {out}/trials/*/*/log.txt"
            )
        Folder(out).write_bytes("sweep.json", json.dumps(found.to_json(), indent=1).encode() + b"\n")
        Folder(out).write_bytes(WINNER, winner_recipe(found).encode())
    return found


def winner_recipe(found: Sweep) -> str:
    """Return winner.toml: the winner's settings, with the sweep's result as a comment."""
    place = Folder(found.out).location(WINNER)
    seeds = f"mean of {len(found.seeds)} seeds" if len(found.seeds) > 1 else "one seed"
    comment = [
        f"{found.winner.name}: the best of {len(found.candidates)} candidates of `webtext train sweep {' '.join(found.tokens)}`,",
        f"{found.loss:.4f} nats per held-out token after {found.planned_steps[-1]:,} steps, {seeds}.",
        *found.notes(),
        f"  webtext train run {' '.join(found.tokens)} --out build/model --config {place}",
    ]
    return recipe_file(replace(found.winner.settings, seed=found.seeds[0]), comment)


def need_held_out(sources: Sequence[Source]) -> None:
    """Raise InputError if no token set has held-out tokens, since held-out loss decides."""
    if not any(source.validation.n_tokens for source in sources):
        names = ", ".join(f"'{source.name}'" for source in sources)
        raise InputError(f"{names} has no held-out tokens, and held-out loss decides", "pack with a validation split")


def _plan(
    sources: Sequence[Source], candidates: Sequence[Candidate], settings: TrainSettings, sweep: SweepSettings
) -> dict[str, Any]:
    """Return what must be equal for trials to be comparable: all but the swept values and the seeds."""
    swept = [name for name, _ in candidates[0].values]
    fixed = {name: value for name, value in recipe_settings(settings).items() if name not in (*swept, "seed")}
    measured = {"eval_windows": settings.monitor.eval_windows}
    return {
        "swept": swept,
        "rungs": list(sweep.rungs),
        "keep_ratio": sweep.keep_ratio,
        "settings": fixed | measured,
        "tokens": [source.train.hash for source in sources],
    }


def _check_plan(out: str, plan: dict[str, Any]) -> None:
    folder = Folder(out)
    if not folder.exists("plan.json"):
        return
    theirs = folder.read_object("plan.json", "choose another --out")
    remedy = "choose another --out, or remove the folder to start again"
    if theirs.get("tokens") != plan["tokens"]:
        raise InputError(f"'{out}' is a sweep of other tokens", remedy)
    for name in ("swept", "rungs", "keep_ratio"):
        if theirs.get(name) != plan[name]:
            raise ConfigError(f"'{out}' is a sweep with {name} {theirs.get(name)}, but here it is {plan[name]}", remedy)
    changed = difference(theirs.get("settings", {}), plan["settings"], "there")
    if changed:
        raise ConfigError(f"'{out}' is a sweep with other settings: {changed}", remedy)
