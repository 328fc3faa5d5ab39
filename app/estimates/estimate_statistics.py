"""Scale counts from a sample of links to all links: shares, means and duplicates, each as a range.

Each link is sampled independently, so shares and means are survey sampling: 95 % intervals that narrow as the sample grows.
Duplicates are different: a document's copy is in the sample only if its own link is, so the duplicate ratio grows with the
sample and is modelled here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

Z = 1.96  # 95 % of a normal distribution is within this many standard deviations


@dataclass(frozen=True, slots=True)
class Range:
    """The most likely value and its interval."""

    low: float
    value: float
    high: float

    def __mul__(self, other: Range | float) -> Range:
        """Multiply positive ranges end by end."""
        if isinstance(other, Range):
            return Range(self.low * other.low, self.value * other.value, self.high * other.high)
        return Range(self.low * other, self.value * other, self.high * other)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.value + other.value, self.high + other.high)

    def rounded(self) -> Range:
        return Range(math.floor(self.low), round(self.value), math.ceil(self.high))

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def total_of_share(n_yes: int, n: int, total: int) -> Range:
    """Estimate how many of `total` are positive when `n_yes` of `n` sampled ones are: Wilson's interval, finite population.

    >>> total_of_share(30, 100, 100)
    Range(low=30.0, value=30.0, high=30.0)
    >>> total_of_share(0, 10, 1000).high > 200
    True
    """
    if n >= total:
        return Range(float(n_yes), float(n_yes), float(n_yes))
    ratio, effective = n_yes / n, n / (1 - n / total)
    spread = Z * Z / effective
    centre = (ratio + spread / 2) / (1 + spread)
    half = Z * math.sqrt(ratio * (1 - ratio) / effective + spread / (4 * effective)) / (1 + spread)
    low, high = (centre - half) * total, (centre + half) * total
    return Range(max(low, n_yes), ratio * total, min(high, total - (n - n_yes)))  # at least what was seen


def mean(n: int, total: float, squares: float, sampled_ratio: float) -> Range:
    """Estimate a mean from n, the sum and the sum of squares: Student's interval, finite population.

    The quantile is Fisher's expansion of the normal one. A single value gives the range from 0 to twice the value.
    """
    value = total / n
    if n < 2:
        return Range(0.0, value, 2 * value)
    deviation = math.sqrt(max(squares - n * value * value, 0.0) / (n - 1))
    quantile = Z + (Z**3 + Z) / (4 * (n - 1))
    half = quantile * deviation / math.sqrt(n) * math.sqrt(max(1 - sampled_ratio, 0.0))
    return Range(max(value - half, 0.0), value, value + half)


def duplicate_ratio(cluster_sizes: Iterable[int], n_documents: int, sampled_ratio: float) -> Range:
    """Estimate the duplicate ratio among all documents from the clusters of a sample's `n_documents`.

    Low: the sample's ratio, since the ratio never falls as the sample grows. High: each pair represents 1/ratio^2 pairs, because
    both links are sampled with probability ratio^2; a larger cluster, found several times, represents one larger by 1/ratio.
    Value: half the sample would have c/2 - 1 + 2^-c duplicates per cluster of c members; a saturating hyperbola through both
    ratios (Michaelis-Menten, as in species counting) is extrapolated. Poisson limits widen both ends.
    """
    sizes = list(cluster_sizes)
    n_pairs = sizes.count(2)
    n_duplicates = sum(sizes) - len(sizes)
    growth = 1 / sampled_ratio
    n_whole = n_documents * growth
    low = _limit(n_duplicates, -1, sampled_ratio) * growth
    larger = sum(size for size in sizes if size > 2)
    high = _limit(n_pairs, 1, sampled_ratio) * growth**2 + _limit(larger, 1, sampled_ratio) * growth
    high -= len(sizes) - n_pairs  # one document per cluster is kept
    in_half = sum(size / 2 - 1 + 0.5**size for size in sizes)
    ratio = 2 * in_half / n_duplicates if n_duplicates else 0.5  # half the sample's ratio over the sample's: 1/2 to 1
    levelling = 0.5 * (1 - ratio) / (ratio - 0.5) if ratio > 0.5 else math.inf
    factor = growth if math.isinf(levelling) else growth * (1 + levelling) / (growth + levelling)
    most = 1 - 1 / max(n_whole, 1)
    shares = (low / n_whole, min(n_duplicates * growth * factor, high) / n_whole, high / n_whole)
    return Range(*(min(share, most) for share in shares))


def _limit(n: int, side: int, sampled_ratio: float) -> float:
    """Return the upper (1) or lower (-1) 95 % limit of the expectation given n seen; closer to n for a larger sample."""
    limit = _poisson_limits(n)[side > 0]
    return n + (limit - n) * math.sqrt(max(1 - sampled_ratio, 0.0))


def _poisson_limits(n: int) -> tuple[float, float]:
    """Return 95 % limits of a Poisson mean given n seen: Byar's approximation."""
    low = n * (1 - 1 / (9 * n) - Z / (3 * math.sqrt(n))) ** 3 if n else 0.0
    more = n + 1
    return max(low, 0.0), more * (1 - 1 / (9 * more) + Z / (3 * math.sqrt(more))) ** 3
