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
from webtext.train.experiments.experiment import experiment, need_held_out, publish, refuse_torchrun
from webtext.train.experiments.fit import FEWEST, Law, fit_law
from webtext.train.experiments.grid import edge_note
from webtext.train.experiments.halving import Losses, mean_loss
from webtext.train.experiments.processes import run_trials
from webtext.train.experiments.settings import ScaleSettings
from webtext.train.experiments.trials import LOSS, Trial, seeded, with_tokens
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

CURVE_POINTS = 40


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """A shape and its size; `parameters` counts all, the shared embedding once."""

    parameters: int
    name: str
    n_layer: int
    n_embd: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One size with one budget: the losses of its seeds for each learning rate, in nats per token; None if one failed."""

    size: Size
    tokens: int
    passes: float
    tried: Mapping[float, Losses]

    @property
    def rate(self) -> float:
        """The rate of lowest mean. RunFailed if a run of each rate has failed."""
        best = min(self.tried, key=lambda rate: mean_loss(self.tried[rate]))
        if mean_loss(self.tried[best]) == math.inf:
            raise RunFailed(
                f"{self.size.name}, {self.tokens:,} tokens: all rates failed", "give a lower --learning-rate"
            )
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
                **asdict(row.size),
                "tokens": row.tokens,
                "passes": row.passes,
                "learning_rate": row.rate,
                "losses": row.losses,
                "fit": self.law.at(row.size.parameters, row.tokens),
                "interval": self._interval(row),
                "is_check": row is self.check,
                "tried": {f"{rate:g}": losses for rate, losses in row.tried.items()},
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
                f"Check {row.size.name}, {row.tokens:,} tokens: predicted {self.law.at(row.size.parameters, row.tokens):.4f} "
                f"({low:.4f} to {high:.4f}); measured {row.mean:.4f}, {verdict} the interval."
            )
        for row in self.every:
            found += edge_note(f"the rate of {row.size.name}, {row.tokens:,} tokens,", row.rate, row.tried)
        if len(self.rows[0].losses) == 1:
            found.append("One seed: the residuals contain chance, which can't be separated from what the law misses.")
        return found

    def sections(self) -> list[Section]:
        """Return the law with a table and a chart of all sizes and budgets."""
        rows = [("size", "parameters", "tokens", "passes", "rate", "loss", "seeds apart", "fit", "residual")]
        for row in self.every:
            fit, apart = self.law.at(row.size.parameters, row.tokens), max(row.losses) - min(row.losses)
            run = f"{row.size.parameters:,}", f"{row.tokens:,}", f"{row.passes:.2f}", f"{row.rate:.3g}"
            losses = f"{row.mean:.4f}", f"{apart:.4f}", f"{fit:.4f}", f"{row.mean - fit:+.4f}"
            rows.append((f"{row.size.name}{', predicted' if row is self.check else ''}", *run, *losses))
        sizes = [row.size.parameters for row in self.every]
        xs = np.geomspace(min(sizes), max(sizes), CURVE_POINTS).tolist()
        lines: dict[str, list[Line]] = {}
        for tokens in dict.fromkeys(row.tokens for row in self.rows):
            points = [(row.size.parameters, row.mean) for row in self.rows if row.tokens == tokens]
            law = Line([(x, self.law.at(x, tokens)) for x in xs], "held-out")
            lines[f"{tokens:,} tokens"] = [law, dots(points, f"{tokens:,} tokens", "dots")]
        if self.check:
            x = self.check.size.parameters
            bar = Line([(x, loss) for loss in self._interval(self.check)], "interval")
            lines["predicted, then measured"] = [bar, dots([(x, self.check.mean)], self.check.size.name, "dots")]
        drawing = chart(lines, x="parameters", y=LOSS, log_x=True)
        return [Section(title=f"{LOSS}, over size and tokens", notes=self.notes(), rows=rows, chart=drawing)]

    def _interval(self, row: Measured) -> tuple[float, float]:
        return self.law.interval(row.size.parameters, row.tokens, len(row.losses))


def run_scale(tokens: str, out: str, settings: TrainSettings, scale: ScaleSettings, run: Run) -> Scale:
    """Train every size with every budget in `out`, fit, predict and check; write the result and its page there."""
    refuse_torchrun()
    sources = open_sources(tokens)
    need_held_out(sources)
    sizes, check = family(settings, scale, sources[0].train.vocab_size)
    budgets = sorted(set(scale.tokens))
    if len(budgets) < FEWEST:
        raise ConfigError(f"{len(budgets)} budgets of tokens determine no law", "e.g. --tokens 1e6,2e6,4e6")
    cells = [(size, n) for size in sizes for n in budgets] + ([(check, budgets[-1])] if check else [])
    trials: list[list[Trial]] = []
    rows: list[Measured] = []
    for size, n in cells:
        ours = run_settings(size, n, settings, scale)
        n_tokens = total_tokens(ours)
        passes = source_uses(sources, ours, n_tokens)[0].passes
        rows.append(Measured(size, n_tokens, passes, {}))
        place = Path(out) / "runs" / f"{size.name}-tokens-{n_tokens}"
        trials.append([])
        for rate in scale.learning_rates or (settings.learning_rate,):
            name = f"{size.name}, {n_tokens:,} tokens, rate {rate:g}"
            trials[-1] += seeded(name, [tokens], with_rate(ours, rate), scale.seeds, place / f"rate-{rate:g}")
        run.console.say(
            f"scale: {size.name}: {size.parameters:,} parameters, {ours.steps:,} steps, {n_tokens:,} tokens, "
            f"{passes:.2f} passes{'; repeated text teaches less' if passes > 1 else ''}"
        )
    plan = {"tokens": sources[0].train.hash, "eval_windows": settings.monitor.eval_windows}
    everything = [trial for of_cell in trials for trial in of_cell]
    with experiment("scale", out, everything, plan, run, side_by_side=scale.side_by_side):
        made = iter(run_trials(everything, run, label="scale", side_by_side=scale.side_by_side, may_fail=True))
        for i, of_cell in enumerate(trials):
            tried: dict[float, Losses] = {}
            for trial in of_cell:
                rate = trial.settings.learning_rate
                tried[rate] = (*tried.get(rate, ()), next(made).loss)
            rows[i] = replace(rows[i], tried=tried)
        found = judge(rows[: len(sizes) * len(budgets)], rows[-1] if check else None)
        publish(out, "scale", found.to_json(), "Scaling law", found.sections())
    return found


def judge(rows: Sequence[Measured], check: Measured | None) -> Scale:
    """Fit the rows' losses, each seed's, to the law; the check is not part of the fit."""
    runs = [(row.size.parameters, row.tokens, loss) for row in rows for loss in row.losses]
    return Scale(rows, fit_law(*zip(*runs, strict=True)), check)


def family(settings: TrainSettings, scale: ScaleSettings, vocab_size: int) -> tuple[list[Size], Size | None]:
    """Return the sizes to fit, from the smallest up, and the check, the size to predict and then train.

    ConfigError for fewer than three sizes, for equal ones, and for a check that isn't larger than the others.
    """
    sizes = sorted(_size(text, settings, scale, vocab_size) for text in scale.sizes)
    if len({size.parameters for size in sizes}) < max(FEWEST, len(sizes)):
        raise ConfigError(f"sizes {', '.join(scale.sizes)} determine no law", f"give at least {FEWEST}, all different")
    check = None if scale.check is None else _size(scale.check, settings, scale, vocab_size)
    if check and check <= sizes[-1]:
        raise ConfigError(f"check {check.name} is not larger than {sizes[-1].name}", "--check LAYERSxWIDTH, or none")
    return sizes, check


def run_settings(size: Size, tokens: float, settings: TrainSettings, scale: ScaleSettings) -> TrainSettings:
    """Return the settings of a run of `tokens`, rounded up to whole steps."""
    if settings.schedule.batch_ramp_start is not None:
        raise ConfigError("batch_ramp_start is set", "leave it out: runs of one batch size are compared")
    run = with_tokens(replace(settings, warmup_steps=0), tokens)
    warmup_steps = min(run.steps - 1, math.ceil(run.steps * scale.warmup_ratio))
    n_head = size.n_embd // scale.head_size
    return changed(run, warmup_steps=warmup_steps, n_layer=size.n_layer, n_embd=size.n_embd, n_head=n_head)


def with_rate(settings: TrainSettings, rate: float) -> TrainSettings:
    """Return the settings with another learning rate; Muon's, if it has its own, keeps its ratio to it."""
    muon = settings.optimizer.muon_learning_rate
    own = None if muon is None else muon * rate / settings.learning_rate
    return changed(settings, learning_rate=rate, muon_learning_rate=own)


def _size(text: str, settings: TrainSettings, scale: ScaleSettings, vocab_size: int) -> Size:
    found = re.fullmatch(r"(\d{1,4})x(\d{1,6})", text.strip())
    if not found:
        raise ConfigError(f"size '{text}' is not LAYERSxWIDTH", "e.g. 4x128")
    n_layer, n_embd = int(found[1]), int(found[2])
    if n_layer < 1 or n_embd < 1 or n_embd % scale.head_size:
        raise ConfigError(f"size {text} has no heads of {scale.head_size}", "choose a width that --head-size divides")
    config = changed(settings, n_layer=n_layer, n_embd=n_embd, n_head=n_embd // scale.head_size).config(vocab_size)
    return Size(config.n_parameters, f"{n_layer}x{n_embd}", n_layer, n_embd)
