"""`train scale`: held-out loss over the model's size and its training tokens, and the law that fits it.

Every size of a family is trained with every budget of tokens and every seed, at one learning rate, and the law
L = E + A / N^alpha + B / D^beta is fitted to all these runs together (`fit.py`).
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.config import changed
from webtext.base.errors import ConfigError
from webtext.base.line_chart import Line
from webtext.base.run import Run
from webtext.train.data.sources import source_uses
from webtext.train.evaluate.page import Section, chart, dots
from webtext.train.experiments.engine import experiment, publish, run_trials
from webtext.train.experiments.fit import FEWEST, Law, fit_law
from webtext.train.experiments.settings import ScaleSettings
from webtext.train.experiments.trials import LOSS, Trial, held_out_sources, seeded, with_tokens
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

CURVE_POINTS = 40


@dataclass(frozen=True, slots=True)
class Measured:
    """One size with one budget, and its seeds' losses in nats per token. `parameters` has the shared embedding once."""

    size: str
    parameters: int
    tokens: int
    passes: float
    losses: Sequence[float]


@dataclass(frozen=True, slots=True)
class Scale:
    """The measured sizes and budgets, from the smallest up, and the law that fits each seed's loss."""

    rows: Sequence[Measured]
    law: Law

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for scale.json; intervals are of 95 %, losses nats per token."""
        runs = [asdict(row) | {"fit": self.law.at(row.parameters, row.tokens)} for row in self.rows]
        return {"runs": runs, "law": self.law.constants(), "notes": self.notes()}

    def notes(self) -> list[str]:
        """Return sentences on the law."""
        law = {name: f"{of[0]:.4g} ({of[1]:.4g} to {of[2]:.4g})" for name, of in self.law.constants().items()}
        found = [
            f"L = E + A / N^alpha + B / D^beta of all parameters N and tokens D (Hoffmann et al. 2022, approach 3), least "
            f"squares of log L over {len(self.law.residuals)} runs, 95 % intervals of a bootstrap of the residuals: "
            f"{', '.join(f'{name} {law[name]}' for name in ('E', 'A', 'alpha', 'B', 'beta'))}.",
            f"The compute-optimal size grows as operations to the power {law['compute_exponent']}.",
        ]
        if len(self.rows[0].losses) == 1:
            found.append("One seed: the residuals contain chance, which can't be separated from what the law misses.")
        return found

    def sections(self) -> list[Section]:
        """Return the law with a table and a chart of all sizes and budgets."""
        rows = [("size", "parameters", "tokens", "passes", "loss", "seeds apart", "fit", "residual")]
        points: dict[int, list[tuple[float, float]]] = {}
        for row in self.rows:
            fit, mean = self.law.at(row.parameters, row.tokens), statistics.fmean(row.losses)
            points.setdefault(row.tokens, []).append((row.parameters, mean))
            run = f"{row.parameters:,}", f"{row.tokens:,}", f"{row.passes:.2f}", f"{mean:.4f}"
            rows.append(
                (row.size, *run, f"{max(row.losses) - min(row.losses):.4f}", f"{fit:.4f}", f"{mean - fit:+.4f}")
            )
        xs = np.geomspace(self.rows[0].parameters, self.rows[-1].parameters, CURVE_POINTS).tolist()
        lines: dict[str, list[Line]] = {}
        for tokens, found in points.items():
            law = Line([(x, self.law.at(x, tokens)) for x in xs], "held-out")
            lines[f"{tokens:,} tokens"] = [law, dots(found, f"{tokens:,} tokens", "dots")]
        drawing = chart(lines, x="parameters", y=LOSS, log_x=True)
        return [Section(title=f"{LOSS}, over size and tokens", notes=self.notes(), rows=rows, chart=drawing)]


def run_scale(tokens: str, out: str, settings: TrainSettings, scale: ScaleSettings, run: Run) -> Scale:
    """Train every size with every budget in `out`, and fit the law; write the result and its page there.

    ConfigError for fewer than three sizes or budgets; InputError for tokens without a validation split.
    """
    sources = held_out_sources(tokens)
    vocab_size = sources[0].train.vocab_size
    sizes, budgets = family(settings, scale, vocab_size), sorted(set(scale.tokens))
    if len(budgets) < FEWEST:
        raise ConfigError(f"{len(budgets)} budgets of tokens determine no law", "e.g. --tokens 1e6,2e6,4e6")
    rows: list[Measured] = []
    trials: list[Trial] = []
    for size, n in itertools.product(sizes, budgets):
        ours = run_settings(size, n, scale)
        config, n_tokens = ours.config(vocab_size), total_tokens(ours)
        name = f"{config.n_layer}x{config.n_embd}"
        rows.append(Measured(name, config.n_parameters, n_tokens, source_uses(sources, ours, n_tokens)[0].passes, ()))
        place = Path(out) / f"runs/{name}-tokens-{n_tokens}"
        trials += seeded(f"{name}, {n_tokens:,} tokens", [tokens], ours, scale.seeds, place)
        run.console.say(
            f"scale: {name}: {config.n_parameters:,} parameters, {ours.steps:,} steps, {n_tokens:,} tokens, "
            f"{rows[-1].passes:.2f} passes{'; repeated text teaches less' if rows[-1].passes > 1 else ''}"
        )
    plan = {"eval_windows": settings.monitor.eval_windows}
    with experiment("scale", out, trials, plan, run, side_by_side=scale.side_by_side):
        run_trials(trials, run, label="scale", side_by_side=scale.side_by_side)
        losses = (trial.loss() for trial in trials)
        found = judge([replace(row, losses=list(itertools.islice(losses, scale.seeds))) for row in rows])
        publish(out, "scale", found.to_json(), "Scaling law", found.sections())
    return found


def judge(rows: Sequence[Measured]) -> Scale:
    """Fit the law to the rows' losses, each seed's."""
    runs = [(row.parameters, row.tokens, loss) for row in rows for loss in row.losses]
    return Scale(rows, fit_law(*zip(*runs, strict=True)))


def family(settings: TrainSettings, scale: ScaleSettings, vocab_size: int) -> list[TrainSettings]:
    """Return settings of the sizes, from the smallest up. ConfigError for fewer than three sizes, and for equal ones."""
    sizes = {}
    for text in scale.sizes:
        found = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,5})", text.strip())
        if not found:
            raise ConfigError(f"size '{text}' is not LAYERSxWIDTH", "e.g. 4x128")
        n_layer, n_embd = int(found[1]), int(found[2])
        if n_embd % scale.head_size:
            raise ConfigError(
                f"size {text} has no heads of {scale.head_size}", "choose a width that --head-size divides"
            )
        size = changed(settings, n_layer=n_layer, n_embd=n_embd, n_head=n_embd // scale.head_size)
        sizes[size.config(vocab_size).n_parameters] = size
    if len(sizes) < max(FEWEST, len(scale.sizes)):
        raise ConfigError(f"sizes {', '.join(scale.sizes)} determine no law", f"give at least {FEWEST}, all different")
    return [sizes[n_parameters] for n_parameters in sorted(sizes)]


def run_settings(size: TrainSettings, tokens: float, scale: ScaleSettings) -> TrainSettings:
    """Return the settings of a run of `tokens`, rounded up to whole steps."""
    run = with_tokens(replace(size, warmup_steps=0), tokens)
    return replace(run, warmup_steps=min(run.steps - 1, math.ceil(run.steps * scale.warmup_ratio)))
