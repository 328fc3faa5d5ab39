"""`train scale`: held-out loss over the model's size and its training tokens, the law that fits it, and a prediction.

Every size of a family is trained with every budget of tokens, every learning rate and every seed. Of each size and budget
the rate of lowest loss counts (GPT-2's rates were tuned for each size: Radford et al. 2019, section 2.3), and the law
L = E + A / N^alpha + B / D^beta is fitted to all these runs together (`fit.py`). A larger size, the check, is predicted
with the largest budget, then trained.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.config import changed
from webtext.base.errors import ConfigError, RunFailed
from webtext.base.line_chart import Line
from webtext.base.run import Run
from webtext.train.data.sources import open_sources, source_uses
from webtext.train.evaluate.page import Section, chart, dots
from webtext.train.experiments.experiment import experiment, need_held_out, publish
from webtext.train.experiments.fit import FEWEST, Law, fit_law
from webtext.train.experiments.grid import edge_note
from webtext.train.experiments.halving import Losses, mean_loss
from webtext.train.experiments.processes import held_out_losses
from webtext.train.experiments.settings import ScaleSettings
from webtext.train.experiments.trials import LOSS, Trial, seeded, with_tokens
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

CURVE_POINTS = 40


@dataclass(frozen=True, slots=True)
class Measured:
    """One size with one budget: the losses of its seeds for each learning rate, in nats per token; None if one failed.

    `parameters` counts all, the shared embedding once.
    """

    size: str
    parameters: int
    tokens: int
    passes: float
    tried: Mapping[float, Losses]

    @property
    def rate(self) -> float:
        """The rate of lowest mean. RunFailed if a run of each rate has failed."""
        best = min(self.tried, key=lambda rate: mean_loss(self.tried[rate]))
        if mean_loss(self.tried[best]) == math.inf:
            raise RunFailed(f"{self.size}, {self.tokens:,} tokens: all rates failed", "give a lower --learning-rate")
        return best

    @property
    def losses(self) -> list[float]:
        """The losses of that rate."""
        return [loss for loss in self.tried[self.rate] if loss is not None]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.losses)


@dataclass(frozen=True, slots=True)
class Scale:
    """The measured sizes and budgets, from the smallest up; the law that fits them; the check, which it predicts."""

    rows: Sequence[Measured]
    law: Law
    check: Measured | None

    @property
    def every(self) -> list[Measured]:
        """The rows and the check."""
        return [*self.rows, *([self.check] if self.check else [])]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, for scale.json; intervals are of 95 %, losses nats per token."""
        runs = [
            {
                **asdict(row),
                "learning_rate": row.rate,
                "losses": row.losses,
                "fit": self.law.at(row.parameters, row.tokens),
                "interval": self._interval(row),
                "is_check": row is self.check,
            }
            for row in self.every
        ]
        return {"runs": runs, "law": self.law.constants(), "notes": self.notes()}

    def notes(self) -> list[str]:
        """Return sentences on the law, the prediction, and rates at the edge."""
        law = {
            name: f"{value:.4g} ({low:.4g} to {high:.4g})" for name, (value, low, high) in self.law.constants().items()
        }
        found = [
            f"L = E + A / N^alpha + B / D^beta of all parameters N and tokens D (Hoffmann et al. 2022, approach 3), least "
            f"squares of log L over {len(self.law.residuals)} runs, 95 % intervals of a bootstrap of the residuals: "
            f"{', '.join(f'{name} {law[name]}' for name in ('E', 'A', 'alpha', 'B', 'beta'))}.",
            f"The compute-optimal size grows as operations to the power {law['compute_exponent']}.",
        ]
        if row := self.check:
            low, high = self._interval(row)
            verdict = "inside" if low <= row.mean <= high else "outside"
            found.append(
                f"Check {row.size}, {row.tokens:,} tokens: predicted {self.law.at(row.parameters, row.tokens):.4f} "
                f"({low:.4f} to {high:.4f}); measured {row.mean:.4f}, {verdict} the interval."
            )
        for row in self.every:
            found += edge_note(f"the rate of {row.size}, {row.tokens:,} tokens,", row.rate, row.tried)
        if len(self.rows[0].losses) == 1:
            found.append("One seed: the residuals contain chance, which can't be separated from what the law misses.")
        return found

    def sections(self) -> list[Section]:
        """Return the law with a table and a chart of all sizes and budgets."""
        rows = [("size", "parameters", "tokens", "passes", "rate", "loss", "seeds apart", "fit", "residual")]
        for row in self.every:
            fit, apart = self.law.at(row.parameters, row.tokens), max(row.losses) - min(row.losses)
            run = f"{row.parameters:,}", f"{row.tokens:,}", f"{row.passes:.2f}", f"{row.rate:.3g}"
            losses = f"{row.mean:.4f}", f"{apart:.4f}", f"{fit:.4f}", f"{row.mean - fit:+.4f}"
            rows.append((f"{row.size}{', predicted' if row is self.check else ''}", *run, *losses))
        sizes = [row.parameters for row in self.every]
        xs = np.geomspace(min(sizes), max(sizes), CURVE_POINTS).tolist()
        lines: dict[str, list[Line]] = {}
        for tokens in dict.fromkeys(row.tokens for row in self.rows):
            points = [(row.parameters, row.mean) for row in self.rows if row.tokens == tokens]
            law = Line([(x, self.law.at(x, tokens)) for x in xs], "held-out")
            lines[f"{tokens:,} tokens"] = [law, dots(points, f"{tokens:,} tokens", "dots")]
        if self.check:
            x = self.check.parameters
            bar = Line([(x, loss) for loss in self._interval(self.check)], "interval")
            lines["predicted, then measured"] = [bar, dots([(x, self.check.mean)], self.check.size, "dots")]
        drawing = chart(lines, x="parameters", y=LOSS, log_x=True)
        return [Section(title=f"{LOSS}, over size and tokens", notes=self.notes(), rows=rows, chart=drawing)]

    def _interval(self, row: Measured) -> tuple[float, float]:
        return self.law.interval(row.parameters, row.tokens, len(row.losses))


def run_scale(tokens: str, out: str, settings: TrainSettings, scale: ScaleSettings, run: Run) -> Scale:
    """Train every size with every budget in `out`, fit, predict and check; write the result and its page there."""
    sources = open_sources(tokens)
    need_held_out(sources)
    vocab_size = sources[0].train.vocab_size
    sizes, check = family(settings, scale, vocab_size)
    budgets = sorted(set(scale.tokens))
    if len(budgets) < FEWEST:
        raise ConfigError(f"{len(budgets)} budgets of tokens determine no law", "e.g. --tokens 1e6,2e6,4e6")
    rows: list[Measured] = []
    trials: list[list[Trial]] = []
    for size, n in [(size, n) for size in sizes for n in budgets] + [(size, budgets[-1]) for size in check]:
        ours = run_settings(size, n, scale)
        config, n_tokens = ours.config(vocab_size), total_tokens(ours)
        name = f"{config.n_layer}x{config.n_embd}"
        passes = source_uses(sources, ours, n_tokens)[0].passes
        rows.append(Measured(name, config.n_parameters, n_tokens, passes, {}))
        place = Path(out) / "runs" / f"{name}-tokens-{n_tokens}"
        trials.append([])
        for rate in scale.learning_rates or (settings.learning_rate,):
            title = f"{name}, {n_tokens:,} tokens, rate {rate:g}"
            trials[-1] += seeded(title, [tokens], with_rate(ours, rate), scale.seeds, place / f"rate-{rate:g}")
        run.console.say(
            f"scale: {name}: {rows[-1].parameters:,} parameters, {ours.steps:,} steps, {n_tokens:,} tokens, "
            f"{passes:.2f} passes{'; repeated text teaches less' if passes > 1 else ''}"
        )
    plan = {"eval_windows": settings.monitor.eval_windows}
    everything = [trial for of_row in trials for trial in of_row]
    with experiment("scale", out, everything, plan, run, side_by_side=scale.side_by_side):
        losses = iter(held_out_losses(everything, run, "scale", scale.side_by_side))
        for i, of_row in enumerate(trials):
            tried: dict[float, Losses] = {}
            for trial in of_row:
                rate = trial.settings.learning_rate
                tried[rate] = (*tried.get(rate, ()), next(losses))
            rows[i] = replace(rows[i], tried=tried)
        found = judge(rows[: len(sizes) * len(budgets)], rows[-1] if check else None)
        publish(out, "scale", found.to_json(), "Scaling law", found.sections())
    return found


def judge(rows: Sequence[Measured], check: Measured | None) -> Scale:
    """Fit the rows' losses, each seed's, to the law; the check is not part of the fit."""
    runs = [(row.parameters, row.tokens, loss) for row in rows for loss in row.losses]
    return Scale(rows, fit_law(*zip(*runs, strict=True)), check)


def family(
    settings: TrainSettings, scale: ScaleSettings, vocab_size: int
) -> tuple[list[TrainSettings], list[TrainSettings]]:
    """Return settings of the sizes to fit, from the smallest up, and of the check, to predict and then train, if any.

    ConfigError for fewer than three sizes, for equal ones, and for a check that isn't larger than the others.
    """

    def parameters(size: TrainSettings) -> int:
        return size.config(vocab_size).n_parameters

    sizes = sorted((_shaped(text, settings, scale.head_size) for text in scale.sizes), key=parameters)
    if len(set(map(parameters, sizes))) < max(FEWEST, len(sizes)):
        raise ConfigError(f"sizes {', '.join(scale.sizes)} determine no law", f"give at least {FEWEST}, all different")
    check = [] if scale.check is None else [_shaped(scale.check, settings, scale.head_size)]
    if check and parameters(check[0]) <= parameters(sizes[-1]):
        raise ConfigError(f"check {scale.check} is not the largest size", "--check LAYERSxWIDTH, or none")
    return sizes, check


def _shaped(text: str, settings: TrainSettings, head_size: int) -> TrainSettings:
    found = re.fullmatch(r"(\d{1,4})x(\d{1,6})", text.strip())
    if not found:
        raise ConfigError(f"size '{text}' is not LAYERSxWIDTH", "e.g. 4x128")
    n_layer, n_embd = int(found[1]), int(found[2])
    if n_layer < 1 or n_embd < 1 or n_embd % head_size:
        raise ConfigError(f"size {text} has no heads of {head_size}", "choose a width that --head-size divides")
    return changed(settings, n_layer=n_layer, n_embd=n_embd, n_head=n_embd // head_size)


def run_settings(size: TrainSettings, tokens: float, scale: ScaleSettings) -> TrainSettings:
    """Return the settings of a run of `tokens`, rounded up to whole steps."""
    if size.schedule.batch_ramp_start is not None:
        raise ConfigError("batch_ramp_start is set", "leave it out: runs of one batch size are compared")
    run = with_tokens(replace(size, warmup_steps=0), tokens)
    return replace(run, warmup_steps=min(run.steps - 1, math.ceil(run.steps * scale.warmup_ratio)))


def with_rate(settings: TrainSettings, rate: float) -> TrainSettings:
    """Return the settings with another learning rate; Muon's, if it has its own, keeps its ratio to it."""
    muon = settings.optimizer.muon_learning_rate
    own = None if muon is None else muon * rate / settings.learning_rate
    return changed(settings, learning_rate=rate, muon_learning_rate=own)
