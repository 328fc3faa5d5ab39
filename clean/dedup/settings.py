"""Settings of dedup. They have their own module so that --help and config checks don't load numpy."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import realpath

from webtext.base.config import setting
from webtext.base.errors import ConfigError

MIN_RECALL = 0.95
SHINGLE_WORDS = 5  # as FineWeb (Penedo et al. 2024, §3.4)
PERMUTATIONS = 128
"""Values of a signature, datasketch's default. The estimate of a similarity is off by at most 0.05 (one deviation)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupSettings:
    """Which documents count as duplicates (section [clean.dedup])."""

    threshold: float = setting(
        0.8, "texts whose shingle sets have at least this Jaccard similarity are duplicates", flag=False
    )
    # 25 x 5: .99995 of the pairs at J = .8 share a bucket and 6 % at J = .3; with 32 x 4 it would be 23 % at J = .3.
    bands: int = setting(25, "number of LSH bands; texts that agree on all rows of a band are compared", flag=False)
    rows: int = setting(5, "signature values per band", flag=False)
    index: tuple[str, ...] = setting((), "index of an earlier build to compare with; repeatable", in_recipe=False)
    keep_index: str | None = setting(None, "folder for an index of the corpus, for later builds", in_recipe=False)

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"clean.dedup.threshold is {self.threshold}", "it must be above 0 and at most 1")
        for name in ("bands", "rows"):
            value = getattr(self, name)
            if not 1 <= value <= PERMUTATIONS:
                raise ConfigError(f"clean.dedup.{name} is {value}", f"it must be between 1 and {PERMUTATIONS}")
        if self.keep_index is not None and realpath(self.keep_index) in map(realpath, self.index):
            raise ConfigError(
                f"clean.dedup.keep_index '{self.keep_index}' is also given as an --index to compare with",
                "choose another folder: every corpus needs its own index",
            )
        if self.bands * self.rows > PERMUTATIONS:
            raise ConfigError(
                f"clean.dedup: {self.bands} bands of {self.rows} rows need {self.bands * self.rows} permutations, "
                f"but a signature has {PERMUTATIONS}",
                "use fewer bands or rows",
            )
        found = recall(self.threshold, self.bands, self.rows)
        if found < MIN_RECALL:
            raise ConfigError(
                f"clean.dedup: {self.bands} bands of {self.rows} rows find only {found:.1%} of the pairs at threshold "
                f"{self.threshold}, expected at least {MIN_RECALL:.0%}",
                "use more bands or fewer rows",
            )


def recall(similarity: float, bands: int, rows: int) -> float:
    """Return the probability that two texts of this similarity share a band: 1 - (1 - J^rows)^bands.

    >>> f"{recall(0.8, bands=25, rows=5):.5f} {recall(0.3, bands=25, rows=5):.3f}"
    '0.99995 0.059'
    """
    return float(1 - (1 - similarity**rows) ** bands)
