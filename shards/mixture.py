"""Several sources mixed by weights: which one gives sample g, and which of its samples that is, computed from g.

The heaviest source has given ⌊(g·w + T/2) / T⌋ of the first g samples, where T is the sum of the weights; the rest went
to the other sources, which share it the same way among them. So after any number of samples each of K sources stands
within (2 + ln K) / 2 samples of its share, and no table is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ConfigError

PARTS = 1 << 20
"""Weights are rounded to this many parts of their sum: exact in 64 bits for more than 10^12 samples."""

Indices = npt.NDArray[np.int64]


class Mixture:
    """The interleave of sources with these weights, of any positive sum.

    >>> Mixture([3, 1]).counts(np.arange(9)).tolist()
    [[0, 1, 2, 2, 3, 4, 5, 5, 6], [0, 0, 0, 1, 1, 1, 1, 2, 2]]
    """

    def __init__(self, weights: Sequence[float]) -> None:
        if not weights or not all(math.isfinite(weight) and weight > 0 for weight in weights):
            raise ConfigError(f"weights {list(weights)}: expected one number above 0 for each source")
        self.parts = [max(1, round(weight / math.fsum(weights) * PARTS)) for weight in weights]

    def counts(self, samples: Indices) -> Indices:
        """How many of the first g samples each source gave: [source, g]."""
        counts = np.empty((len(self.parts), len(samples)), np.int64)
        rest, total = samples.astype(np.int64), sum(self.parts)
        for i in sorted(range(len(self.parts)), key=lambda i: -self.parts[i]):
            counts[i] = (rest * self.parts[i] + total // 2) // total
            rest, total = rest - counts[i], total - self.parts[i]
        return counts
