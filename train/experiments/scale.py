"""`train scale`: held-out loss over the model's size and its training tokens, and the law that fits it.

Every size of a family is trained with every budget of tokens and every seed, at one learning rate. The law
L(N, D) = E + A / N^alpha + B / D^beta of N parameters and D tokens is fitted to all these runs together: approach 3 of
Hoffmann et al. 2022 ("Chinchilla", section 3.3). The logarithm of a prediction is a log-sum-exp of e, a - alpha log N and
b - beta log D, whose five parameters minimise the squared errors of log L over all runs. The paper takes a Huber loss
with delta = 1e-3 instead, since its 400 runs have outliers; with a dozen runs whose noise is larger than delta, that is a
fit of absolute errors, and less sure.

Intervals are of a bootstrap: the residuals, stretched for the five parameters that were fitted to them, are drawn again
and added to the fitted law, and every such set of runs is fitted like the first. The design (which sizes, which budgets)
stays as it is, because a set of runs that lacks a size by chance determines no law.
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

from webtext.base.charts import Line
from webtext.base.config import changed
from webtext.base.errors import ConfigError
from webtext.base.run import Run
from webtext.train.data.sources import source_uses
from webtext.train.evaluate.page import Section, chart, dots
from webtext.train.experiments.engine import experiment, publish, run_trials
from webtext.train.experiments.settings import ScaleSettings
from webtext.train.experiments.significance import Floats, quantile
from webtext.train.experiments.trials import LOSS, Trial, held_out_sources, seeded, with_tokens
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

CURVE_POINTS = 40
FEWEST = 3
"""Sizes and budgets, at least: the law has two parameters for each and one that they share."""
DRAWS, STEPS = 1000, 200
INTERVAL = (0.025, 0.975)
LARGEST_LOG = 700.0  # its exponential is still finite
_STARTS = [(share, alpha, beta) for share in (0.2, 0.5, 0.9) for alpha in (0.1, 0.4, 1.0) for beta in (0.1, 0.4, 1.0)]


@dataclass(frozen=True, slots=True)
class Law:
    """The fitted law. Rows of `fits` are e, a, alpha, b, beta: first those of the runs, then those of the bootstrap."""

    fits: Floats
    residuals: Floats
    """Errors of log L, in the order of the runs."""

    def at(self, n: float, d: float) -> float:
        """Return the loss of a model of `n` parameters after `d` tokens."""
        return float(np.exp(_log_loss(self.fits[0], np.log([[n, d]]))[0]))

    def constants(self) -> dict[str, list[float]]:
        """Return E, A, alpha, B, beta and the exponent of the compute-optimal size, each with its 95 % interval.

        For 6 N D operations the best N grows as their power beta / (alpha + beta) (Hoffmann et al. 2022, equation 4).
        """
        e, a, alpha, b, beta = self.fits.T
        big_e, big_a, big_b = np.exp(np.clip([e, a, b], -LARGEST_LOG, LARGEST_LOG))
        found = {"E": big_e, "A": big_a, "alpha": alpha, "B": big_b, "beta": beta}
        found["compute_exponent"] = beta / (alpha + beta)
        return {name: [float(of[0]), *np.quantile(of[1:], INTERVAL).tolist()] for name, of in found.items()}


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
    with experiment("scale", out, trials, {"eval_windows": settings.monitor.eval_windows}, run, scale.side_by_side):
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


def fit_law(parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float]) -> Law:
    """Fit the law to runs of these sizes, tokens and losses.

    The same runs give the same law: starts are fixed, and the bootstrap's draws are seeded.
    """
    logs, found = np.log(np.stack([parameters, tokens], -1)), np.log(np.array(losses, np.float64))
    centre = logs.mean(0)
    share, alpha, beta = np.array(_STARTS).T
    rest = np.log((1 - share) / 2) + found.min()
    start = np.stack([np.log(share) + found.min(), rest, alpha, rest, beta], -1)
    every = _minimised(start, logs - centre, np.broadcast_to(found, (len(start), len(found))))
    errors = ((_log_loss(every, logs - centre) - found) ** 2).sum(-1)
    best = every[int(errors.argmin())]
    residuals = found - _log_loss(best, logs - centre)
    # Stretched, so that draws have the normal's 95 % interval of Student's t with the degrees of freedom left.
    freedom = len(found) - 5
    stretch = quantile(INTERVAL[1], freedom) / statistics.NormalDist().inv_cdf(INTERVAL[1])
    stretched = (residuals - residuals.mean()) * math.sqrt(len(residuals) / freedom) * stretch
    drawn = _log_loss(best, logs - centre) + np.random.default_rng(0).choice(stretched, (DRAWS, len(found)))
    fits = np.vstack([best, _minimised(np.repeat(best[None], DRAWS, 0), logs - centre, drawn)])
    fits[:, 1] += fits[:, 2] * centre[0]
    fits[:, 3] += fits[:, 4] * centre[1]
    return Law(fits, residuals)


def _log_loss(parameters: Floats, logs: Floats) -> Floats:
    """Return log L of each row of parameters [..., 5] for each run's log N and log D [runs, 2]."""
    e, a, alpha, b, beta = (column[..., None] for column in np.moveaxis(parameters, -1, 0))
    terms = np.broadcast_arrays(e, a - alpha * logs[:, 0], b - beta * logs[:, 1])
    return np.asarray(np.logaddexp.reduce(terms, axis=0))


def _minimised(parameters: Floats, logs: Floats, found: Floats) -> Floats:
    """Return the rows of parameters after steps of Levenberg and Marquardt towards the log losses `found`, row by row."""
    damping = np.full((len(parameters), 1, 1), 1e-2)
    for _ in range(STEPS):
        predicted = _log_loss(parameters, logs)
        e, a, alpha, b, beta = (column[..., None] for column in np.moveaxis(parameters, -1, 0))
        of_n = np.exp(a - alpha * logs[:, 0] - predicted)
        of_d = np.exp(b - beta * logs[:, 1] - predicted)
        slopes = [np.exp(e - predicted), of_n, -of_n * logs[:, 0], of_d, -of_d * logs[:, 1]]
        jacobian = np.stack(slopes, -1)
        error = found - predicted
        square = np.swapaxes(jacobian, -1, -2) @ jacobian
        step = np.linalg.solve(square + damping * np.eye(5), np.swapaxes(jacobian, -1, -2) @ error[..., None])[..., 0]
        tried = parameters + np.clip(step, -1, 1)
        better = ((found - _log_loss(tried, logs)) ** 2).sum(-1) <= (error**2).sum(-1)
        parameters = np.where(better[:, None], tried, parameters)
        damping = np.clip(np.where(better[:, None, None], damping / 4, damping * 4), 1e-12, 1e6)
    return parameters
