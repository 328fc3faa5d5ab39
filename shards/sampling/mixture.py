"""Mixture of several sources by weights: computes from g which source sample g comes from, and its number there.

Of the first g samples, ⌊(g·w + T/2) / T⌋ come from the source with the largest weight w, where T is the sum of the
weights. The other sources divide the rest in the same way. So after any number of samples, each of K sources is within
(2 + ln K) / 2 samples of its share, and no table is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ConfigError

PARTS = 1 << 20
"""Weights are rounded to multiples of 1/PARTS of their sum: exact in 64 bits for more than 10^12 samples."""

Indices = npt.NDArray[np.int64]


class Mixture:
    """Interleaves sources by weights, which may have any positive sum.

    >>> Mixture([3, 1]).counts(np.arange(9)).tolist()
    [[0, 1, 2, 2, 3, 4, 5, 5, 6], [0, 0, 0, 1, 1, 1, 1, 2, 2]]
    """

    def __init__(self, weights: Sequence[float]) -> None:
        if not weights or not all(math.isfinite(weight) and weight > 0 for weight in weights):
            raise ConfigError(f"weights {list(weights)}: expected one number above 0 for each source")
        self.parts = [max(1, round(weight / math.fsum(weights) * PARTS)) for weight in weights]

    def counts(self, samples: Indices) -> Indices:
        """Return how many of the first `samples[i]` samples come from each source: int64 [source, i]."""
        counts = np.empty((len(self.parts), len(samples)), np.int64)
        rest, total = samples.astype(np.int64), sum(self.parts)
        for i in sorted(range(len(self.parts)), key=lambda i: -self.parts[i]):
            counts[i] = (rest * self.parts[i] + total // 2) // total
            rest, total = rest - counts[i], total - self.parts[i]
        return counts
