"""Test whether corpora differ by more than chance: by more than other seeds and other held-out documents would move them.

The variance of a difference is that of a bootstrap over documents x seeds, computed instead of drawn:

- Documents are drawn with replacement, the same ones for all corpora, so differences are paired by document.
- Seeds are drawn from the deviations of all corpora's seeds from their corpus's mean (pooled variance), because few
  seeds of one corpus hardly show its spread. They aren't paired: an equal seed makes only the initial weights equal.

How a seed's deviation differs between documents would be counted twice (Owen 2007, "The pigeonhole bootstrap"), so the
seeds' variance is reduced by it. Interval and test are Student's t with the degrees of freedom of Satterthwaite (1946).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

ALPHA, POWER = 0.05, 0.8
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean minus the first one, `difference`; `margin` is half of its 95 % interval, `p` of the two-sided test.

    `smallest` is the smallest true difference that `POWER` of such experiments find; `by_seeds` and `by_documents` are
    the standard errors that each makes. All are None without a test: one seed, one document, or no spread at all.
    """

    difference: float
    margin: float | None = None
    p: float | None = None
    smallest: float | None = None
    by_seeds: float | None = None
    by_documents: float | None = None


def differences(bits: Floats, n_bytes: Floats) -> list[Difference]:
    """Return each corpus's difference from the first in bits per byte, given bits [corpora, seeds, documents]."""
    total = n_bytes.sum()
    runs = bits.sum(-1) / total
    # each document's part of a run's mean: the sum of their squares is the documents' variance
    influence = (bits - runs[..., None] * n_bytes) / total
    known = float(total**2 / (n_bytes**2).sum()) - 1  # as many equally long ones beyond the first (Kish 1965)
    means = runs.mean(1, keepdims=True)
    freedom = len(runs) * (runs.shape[1] - 1)
    if not freedom or round(known, 6) < 1:  # hardly more than one document decides, so the effect of another is unknown
        return [Difference(mean) for mean in (means - means[0])[1:, 0].tolist()]
    influence = influence * math.sqrt(1 + 1 / known)  # unbiased, also for few documents
    of_corpora = influence.mean(1, keepdims=True)
    of_seeds = 2 / runs.shape[1] * float(((runs - means) ** 2).sum()) / freedom
    of_both = 2 / runs.shape[1] * float(((influence - of_corpora) ** 2).sum()) / freedom
    of_documents = ((of_corpora - of_corpora[0]) ** 2).sum((1, 2))
    found = []
    for mean, each in zip((means - means[0])[1:, 0].tolist(), of_documents[1:].tolist(), strict=True):
        error = math.sqrt(each + max(0.0, of_seeds - of_both))
        if error == 0:
            found.append(Difference(mean))
            continue
        student = stats.t(error**4 / (of_seeds**2 / freedom + each**2 / known))
        t, p = student.ppf(1 - ALPHA / 2), 2 * student.sf(abs(mean) / error)
        smallest = (t + student.ppf(POWER)) * error
        numbers = (float(number) for number in (t * error, p, smallest, math.sqrt(of_seeds), math.sqrt(each)))
        found.append(Difference(mean, *numbers))
    return found


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p values that are judged together (Holm 1979): each can be compared with ALPHA. None stays None.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    highest = 0.0
    for rank, (p, i) in enumerate(known):
        adjusted[i] = highest = max(highest, min(1.0, p * (len(known) - rank)))
    return adjusted
