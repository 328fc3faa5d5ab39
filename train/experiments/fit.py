"""The law L(N, D) = E + A / N^alpha + B / D^beta, fitted to runs of several sizes and budgets together.

Approach 3 of Hoffmann et al. 2022 ("Chinchilla", section 3.3): N parameters, D training tokens, and all runs at once. The
logarithm of a prediction is a log-sum-exp of e, a - alpha log N and b - beta log D, whose five parameters minimise the
squared errors of log L over all runs. The paper takes a Huber loss with delta = 1e-3 instead, since its 400 runs have
outliers; with a dozen runs whose noise is larger than delta, that is a fit of absolute errors, and less sure.

Intervals are of a bootstrap: the residuals, stretched for the five parameters that were fitted to them, are drawn again
and added to the fitted law, and every such set of runs is fitted like the first. The design (which sizes, which budgets)
stays as it is, because a set of runs that lacks a size by chance determines no law.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ConfigError
from webtext.train.experiments.significance import quantile

Floats = npt.NDArray[np.float64]
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

    def constants(self) -> dict[str, tuple[float, float, float]]:
        """Return E, A, alpha, B, beta and the exponent of the compute-optimal size, each with its 95 % interval.

        For 6 N D operations the best N grows as their power beta / (alpha + beta) (Hoffmann et al. 2022, equation 4).
        """
        e, a, alpha, b, beta = self.fits.T
        big_e, big_a, big_b = np.exp(np.clip([e, a, b], -LARGEST_LOG, LARGEST_LOG))
        named = {"E": big_e, "A": big_a, "alpha": alpha, "B": big_b, "beta": beta}
        found = named | {"compute_exponent": beta / (alpha + beta)}
        intervals = {name: np.quantile(of[1:], INTERVAL) for name, of in found.items()}
        return {
            name: (float(of[0]), float(intervals[name][0]), float(intervals[name][1])) for name, of in found.items()
        }


def fit_law(parameters: Sequence[float], tokens: Sequence[float], losses: Sequence[float]) -> Law:
    """Fit the law to runs of these sizes, tokens and losses. ConfigError for too few sizes or budgets.

    The same runs give the same law: starts are fixed, and the bootstrap's draws are seeded.
    """
    for what, values in (("sizes", parameters), ("budgets of tokens", tokens)):
        if len(set(values)) < FEWEST:
            raise ConfigError(f"{len(set(values))} {what} determine no law", f"give at least {FEWEST} different ones")
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
