"""Settings of dedup. They have their own module so that --help and config checks don't load numpy."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError

MIN_RECALL = 0.95
MAX_PERMUTATIONS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupSettings:
    """What counts as a duplicate (section [clean.dedup])."""

    threshold: float = setting(0.8, "texts whose shingle sets have at least this Jaccard similarity are duplicates")
    shingle_words: int = setting(5, "number of consecutive words in a shingle")
    permutations: int = setting(128, "length of a MinHash signature")
    # 25 x 5: .99995 of the pairs at J = .8 share a bucket and 6 % at J = .3; with 32 x 4 it would be 23 % at J = .3.
    bands: int = setting(25, "number of LSH bands; texts are compared if their signatures agree on all rows of a band")
    rows: int = setting(5, "signature values per band")
    alarm_ratio: float = setting(
        0.9, "warn of domains and sources that lose more than this share of their documents", in_recipe=False
    )
    alarm_documents: int = setting(
        1000, "number of documents below which a domain or source raises no such warning", in_recipe=False
    )
    index: tuple[str, ...] = setting(
        (),
        "index written by --keep-index in an earlier build; its documents are compared too and always kept; repeatable",
        in_recipe=False,
    )
    keep_index: str | None = setting(
        None, "folder to write an index of the corpus to, for later builds", in_recipe=False
    )

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"clean.dedup.threshold is {self.threshold}", "it must be above 0 and at most 1")
        if not 0 < self.alarm_ratio <= 1:
            raise ConfigError(
                f"clean.dedup.alarm_ratio is {self.alarm_ratio}",
                "it must be above 0 and at most 1, which is never exceeded",
            )
        for name in ("shingle_words", "permutations", "bands", "rows"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_PERMUTATIONS:
                raise ConfigError(f"clean.dedup.{name} is {value}", f"it must be between 1 and {MAX_PERMUTATIONS:,}")
        if self.keep_index in self.index:
            raise ConfigError(
                f"clean.dedup.keep_index '{self.keep_index}' is also given as an --index to compare with",
                "choose another folder: every corpus needs its own index",
            )
        if self.bands * self.rows > self.permutations:
            raise ConfigError(
                f"clean.dedup: {self.bands} bands of {self.rows} rows need {self.bands * self.rows} permutations, "
                f"but permutations is {self.permutations}",
                "use fewer bands or rows, or more permutations",
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
