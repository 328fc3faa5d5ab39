"""Test whether corpora differ by more than chance: by more than other seeds and other held-out documents would move them.

A run's bits per byte depend on its seed (initial weights, order of the windows) and on the documents that measure it.
The variance of a difference is that of a bootstrap over documents x seeds, computed instead of drawn:

- Documents are drawn with replacement, the same ones for all corpora, so differences are paired by document.
- Seeds are drawn from the deviations of all corpora's seeds from their corpus's mean (pooled variance), because few
  seeds of one corpus hardly show its spread. They aren't paired: an equal seed makes only the initial weights equal.

How a seed's deviation differs between documents would be counted twice (Owen 2007, "The pigeonhole bootstrap"), so the
seeds' variance is reduced by it. Interval and test are Student's t with the degrees of freedom of Satterthwaite (1946).
If several differences are judged together, Holm's correction (1979) keeps the chance of any wrong verdict at `ALPHA`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

ALPHA, POWER = 0.05, 0.8

Floats = npt.NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean minus the first one; `margin` is half of its 95 % interval, `p` of the two-sided test.

    `smallest` is the smallest true difference that `POWER` of such experiments find; `seeds` and `documents` are the
    standard errors that each makes. All are None without a test: one seed, one document, or no spread at all.
    """

    mean: float
    margin: float | None = None
    p: float | None = None
    smallest: float | None = None
    seeds: float | None = None
    documents: float | None = None


@dataclass(frozen=True, slots=True)
class Influence:
    """What documents add to each run's mean [corpora, seeds, documents]: their squares' sum is the documents' variance.

    `freedom` is one less than the number of equally long documents that tell as much (Kish 1965).
    """

    values: Floats
    freedom: float


def influence(bits: Floats, n_bytes: Floats) -> Influence:
    """Return the influence on bits per byte, given bits [corpora, seeds, documents] and bytes [documents]."""
    total = n_bytes.sum()
    freedom = float(total**2 / (n_bytes**2).sum()) - 1
    if round(freedom, 6) < 1:  # hardly more than one document decides, and nobody knows what another would do
        return Influence(np.zeros_like(bits), 0)
    values = (bits - bits.sum(-1, keepdims=True) / total * n_bytes) / total
    return Influence(values * math.sqrt(1 + 1 / freedom), freedom)  # unbiased, also for few documents


def differences(runs: Any, documents: Influence | None = None) -> list[Difference]:
    """Return each corpus's difference from the first, given the runs' values [corpora, seeds].

    Without `documents`, only the seeds make noise: the answer is about these documents.

    >>> [found] = differences([[30.02, 29.99, 30.11, 29.97, 30.01, 29.99], [29.89, 29.93, 29.72, 29.98, 30.02, 29.98]])
    >>> round(found.mean, 3), round(found.p, 4)
    (-0.095, 0.0786)
    """
    runs = np.asarray(runs, np.float64)
    n_corpora, n_seeds = runs.shape
    means = runs.mean(1, keepdims=True)
    documents = documents or Influence(np.zeros((n_corpora, n_seeds, 1)), math.inf)
    of_corpora = documents.values.mean(1, keepdims=True)
    freedom = n_corpora * (n_seeds - 1)
    if not freedom or not documents.freedom:
        return [Difference(float(mean)) for mean in (means - means[0])[1:, 0]]
    of_seeds = 2 / n_seeds * float(((runs - means) ** 2).sum()) / freedom
    of_both = 2 / n_seeds * float(((documents.values - of_corpora) ** 2).sum()) / freedom
    of_documents = ((of_corpora - of_corpora[0]) ** 2).sum((1, 2))
    found = []
    for mean, each in zip((means - means[0])[1:, 0].tolist(), of_documents[1:].tolist(), strict=True):
        error = math.sqrt(each + max(0.0, of_seeds - of_both))
        if error == 0:
            found.append(Difference(mean))
            continue
        together = error**4 / (of_seeds**2 / freedom + each**2 / documents.freedom)
        t = quantile(1 - ALPHA / 2, together)
        smallest = (t + quantile(POWER, together)) * error
        p = 2 * tail(abs(mean) / error, together)
        found.append(Difference(mean, t * error, p, smallest, math.sqrt(of_seeds), math.sqrt(each)))
    return found


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p values that are judged together, so that each can be compared with ALPHA; None stays None.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    highest = 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = highest
    return adjusted


def tail(t: float, freedom: float) -> float:
    """Return P(T > t) for Student's t distribution and t >= 0, by quadrature over the angle arctan(t / sqrt(freedom)).

    >>> round(tail(4.302653, 2), 6), round(tail(2.228139, 10), 6)
    (0.025, 0.025)
    """
    low = math.atan(t / math.sqrt(freedom))
    half = min(math.pi / 2 - low, 40 / math.sqrt(freedom)) / 2  # beyond that hardly anything is left
    area = half * float(_WEIGHTS @ np.cos(low + half * (1 + _NODES)) ** (freedom - 1))
    return area * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)


def quantile(p: float, freedom: float) -> float:
    """Return the t with P(T <= t) = p for Student's t distribution and p >= 0.5.

    >>> round(quantile(0.975, 4), 4), round(quantile(0.975, 1), 3)
    (2.7764, 12.706)
    """
    low, high = 0.0, 1.0
    while tail(high, freedom) > 1 - p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > 1 - p else (low, middle)
    return (low + high) / 2
