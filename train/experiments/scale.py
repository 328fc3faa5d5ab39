"""`train scale`: held-out loss over the model's size and its training tokens, and the law that fits it.

Every size of a family is trained with every budget of tokens and every seed, at one learning rate. The law
L(N, D) = E + A / N^alpha + B / D^beta of N parameters and D tokens is fitted to all these runs together: approach 3 of
Hoffmann et al. 2022 ("Chinchilla", section 3.3), by least squares of log L instead of the paper's Huber loss, which was less
sure with a dozen runs (docs/tried/train.md). Intervals are Student's t with the standard errors of the linearised fit.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, stats

from webtext.base.config import changed
from webtext.base.errors import ConfigError
from webtext.base.html_pages.charts import Line, chart, dots
from webtext.base.run import Run
from webtext.train.data.sources import source_uses
from webtext.train.experiments.significance import ALPHA
from webtext.train.experiments.trials import LOSS, Result, Row, held_out_sources, run_experiment, seeded, with_tokens
from webtext.train.settings import ScaleSettings, TrainSettings

HEAD_SIZE, WARMUP_RATIO = 32, 0.1
"""Every size has heads of this width, and its rate grows in this share of its steps, because budgets differ."""
COLUMNS = "size", "parameters", "tokens", "passes", "loss", "seeds apart", "fit", "residual"
FEWEST = 3
"""Sizes and budgets, at least: the law has two parameters for each, and E."""
CURVE_POINTS, EVALUATIONS = 40, 200
BOUNDS = [0, -100, -20, -100, -20], [np.inf, 100, 20, 100, 20]
"""Of E, log A, alpha, log B and beta, the runs' middle as the unit: beyond any law, and no exponential overflows."""
LARGEST_LOG = 700.0  # its exponential is still finite


@dataclass(frozen=True, slots=True)
class Law:
    """The fitted law: E, log A, alpha, log B, beta; and its constants as published."""

    parameters: Sequence[float]
    constants: Mapping[str, Sequence[float]]
    """E, A, alpha, B, beta and the exponent of the compute-optimal size, each with its 95 % interval.

    For 6 N D operations the best N grows as their power beta / (alpha + beta) (Hoffmann et al. 2022, equation 4).
    """

    def at(self, n: float, d: float) -> float:
        """Return the loss of a model of `n` parameters after `d` tokens."""
        return float(np.exp(_log_loss(self.parameters, np.log([n, d]))))


def run_scale(tokens: str, out: str, settings: TrainSettings, scale: ScaleSettings, run: Run) -> Result:
    """Train every size with every budget in `out`, and fit the law; write the result and its page there.

    ConfigError for fewer than three sizes or budgets; InputError for tokens without a validation split.
    """
    sources = held_out_sources(tokens)
    vocab_size = sources[0].train.vocab_size
    sizes, budgets = family(settings, scale, vocab_size), sorted(set(scale.tokens))
    if len(budgets) < FEWEST:
        raise ConfigError(f"{len(budgets)} budgets of tokens determine no law", "e.g. --tokens 1e6,2e6,4e6")
    n_seeds = scale.seeds or 1
    rows: list[Row] = []
    for size, n in itertools.product(sizes, budgets):
        ours = with_tokens(replace(size, warmup_steps=0), n)
        ours = replace(ours, warmup_steps=min(ours.steps - 1, math.ceil(ours.steps * WARMUP_RATIO)))
        config, n_tokens = ours.config(vocab_size), ours.total_tokens
        name, passes = f"{config.n_layer}x{config.n_embd}", source_uses(sources, ours)[0].passes
        facts = {"size": name, "parameters": config.n_parameters, "tokens": n_tokens, "passes": passes}
        place = Path(out) / f"runs/{name}-tokens-{n_tokens}"
        rows.append((facts, seeded(f"{name}, {n_tokens:,} tokens", [tokens], ours, n_seeds, place)))
        run.console.say(
            f"scale: {name}: {config.n_parameters:,} parameters, {ours.steps:,} steps, {n_tokens:,} tokens, "
            f"{passes:.2f} passes{'; repeated text teaches less' if passes > 1 else ''}"
        )
    return run_experiment("scale", out, rows, {"eval_windows": settings.monitor.eval_windows}, run, scaled)


def scaled(runs: Sequence[Mapping[str, Any]]) -> Result:
    """Fit the law to all losses (nats per token) of the sizes and budgets; `parameters` has the shared embedding once."""
    measured = [(row["parameters"], row["tokens"], loss) for row in runs for loss in row["losses"]]
    found = fit_law(*zip(*measured, strict=True))
    rows = []
    for row in runs:
        loss, fit = statistics.fmean(row["losses"]), found.at(row["parameters"], row["tokens"])
        apart = max(row["losses"]) - min(row["losses"])
        rows.append({**row, "loss": loss, "seeds apart": apart, "fit": fit, "residual": loss - fit})
    law = {name: f"{of[0]:.4g} ({of[1]:.4g} to {of[2]:.4g})" for name, of in found.constants.items()}
    exponent = law.pop("compute_exponent")
    notes = [
        f"L = E + A / N^alpha + B / D^beta of all parameters N and tokens D (Hoffmann et al. 2022, approach 3), least "
        f"squares of log L over {len(measured)} runs, 95 % intervals of Student's t: "
        f"{', '.join(f'{name} {value}' for name, value in law.items())}.",
        f"The compute-optimal size grows as operations to the power {exponent}.",
    ]
    if len(runs[0]["losses"]) == 1:
        notes.append("One seed: the residuals contain chance, which can't be separated from errors of the law.")
    sizes = np.geomspace(rows[0]["parameters"], rows[-1]["parameters"], CURVE_POINTS).tolist()
    lines = {}
    for tokens in dict.fromkeys(row["tokens"] for row in rows):
        points = [(row["parameters"], row["loss"]) for row in rows if row["tokens"] == tokens]
        name, curve = f"{tokens:,} tokens", Line([(n, found.at(n, tokens)) for n in sizes], "held-out")
        lines[name] = [curve, dots(points, name, "dots")]
    drawing = chart(lines, x="parameters", y=LOSS, log_x=True)
    title, facts = f"{LOSS}, over size and tokens", {"law": found.constants}
    return Result(title=title, notes=notes, columns=COLUMNS, rows=rows, facts=facts, chart=drawing)


def family(settings: TrainSettings, scale: ScaleSettings, vocab_size: int) -> list[TrainSettings]:
    """Return settings of the sizes, from the smallest up. ConfigError for fewer than three sizes, and for equal ones."""
    sizes = {}
    for text in scale.sizes:
        found = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,5})", text.strip())
        if not found:
            raise ConfigError(f"size '{text}' is not LAYERSxWIDTH", "e.g. 4x128")
        n_layer, n_embd = int(found[1]), int(found[2])
        if n_embd % HEAD_SIZE:
            raise ConfigError(f"size {text} has no heads of {HEAD_SIZE}", "choose a width that it divides")
        size = changed(settings, n_layer=n_layer, n_embd=n_embd, n_head=n_embd // HEAD_SIZE)
        sizes[size.config(vocab_size).n_parameters] = size
    if len(sizes) < max(FEWEST, len(scale.sizes)):
        raise ConfigError(f"sizes {', '.join(scale.sizes)} determine no law", f"give at least {FEWEST}, all different")
    return [sizes[n_parameters] for n_parameters in sorted(sizes)]


def fit_law(parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float]) -> Law:
    """Fit the law to runs of these sizes, tokens and losses, from 27 starts: the squares have several minima."""
    logs, found = np.log([parameters, tokens]), np.log(losses)
    centre, lowest = logs.mean(1), min(losses)  # centred, because then the parameters hardly depend on each other
    centred = logs - centre[:, None]
    shares, slopes = (0.2, 0.5, 0.9), (0.1, 0.4, 1.0)
    fits = [
        optimize.least_squares(
            lambda of: _log_loss(of, centred) - found, [share * lowest, rest, alpha, rest, beta],
            bounds=BOUNDS, max_nfev=EVALUATIONS,
        )
        for share, alpha, beta in itertools.product(shares, slopes, slopes)
        for rest in [math.log((1 - share) / 2 * lowest)]
    ]  # fmt: skip
    best = min(fits, key=lambda fit: fit.cost)
    back = np.eye(5)
    back[1, 2], back[3, 4] = centre
    freedom = len(found) - 5
    covariance = back @ np.linalg.pinv(best.jac.T @ best.jac) @ back.T * 2 * best.cost / freedom
    _, _, alpha, _, beta = law = back @ best.x
    both = alpha + beta
    slope = np.array([0, 0, -beta, 0, alpha]) / both**2  # of beta / both, by each parameter
    errors = np.sqrt([*np.diag(covariance), slope @ covariance @ slope]) * stats.t.ppf(1 - ALPHA / 2, freedom)
    constants = np.array([*law, beta / both])[:, None] + np.outer(errors, [0, -1, 1])
    constants[0] = constants[0].clip(0)
    constants[[1, 3]] = np.exp(constants[[1, 3]].clip(max=LARGEST_LOG))
    names = ("E", "A", "alpha", "B", "beta", "compute_exponent")
    return Law(law.tolist(), dict(zip(names, constants.tolist(), strict=True)))


def _log_loss(law: Any, logs: Any) -> Any:
    """Return log L of E, log A, alpha, log B and beta for log N and log D."""
    e, a, alpha, b, beta = law
    return np.log(e + np.exp(a - alpha * logs[0]) + np.exp(b - beta * logs[1]))
