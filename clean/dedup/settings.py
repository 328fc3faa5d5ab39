"""What counts as a duplicate. Apart from the stage, so that help and config checks load no numpy."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError, did_you_mean

MIN_RECALL = 0.95
MAX_PERMUTATIONS = 4096
WEBTEXT, DATASKETCH = "webtext", "datasketch"


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupSettings:
    """What counts as a duplicate (section [clean.dedup])."""

    threshold: float = setting(0.8, "texts whose shingle sets have at least this Jaccard similarity are duplicates")
    shingle_words: int = setting(5, "consecutive words that make one shingle")
    permutations: int = setting(128, "length of a MinHash signature")
    bands: int = setting(25, "texts are compared when their signatures agree in all rows of one of so many bands")
    rows: int = setting(5, "rows of a band")
    signatures: str = setting(
        WEBTEXT, "how texts are signed: webtext, or datasketch: slower, but its MinHash can be compared with the index"
    )
    index: tuple[str, ...] = setting(
        (),
        "compare with the documents of an earlier build too, which stay: what --keep-index wrote; repeatable",
        in_recipe=False,
    )
    keep_index: str | None = setting(
        None, "folder to write: the index of the corpus, for later builds", in_recipe=False
    )

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"clean.dedup.threshold is {self.threshold}", "it lies above 0 and at most at 1")
        for name in ("shingle_words", "permutations", "bands", "rows"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_PERMUTATIONS:
                raise ConfigError(f"clean.dedup.{name} is {value}", f"it lies between 1 and {MAX_PERMUTATIONS:,}")
        if self.signatures not in (WEBTEXT, DATASKETCH):
            raise ConfigError(
                f"clean.dedup.signatures is '{self.signatures}'", did_you_mean(self.signatures, [WEBTEXT, DATASKETCH])
            )
        if self.keep_index in self.index:
            raise ConfigError(
                f"clean.dedup.keep_index '{self.keep_index}' is an index that is compared with",
                "name another folder: each corpus has an index of its own",
            )
        if self.bands * self.rows > self.permutations:
            raise ConfigError(
                f"clean.dedup: {self.bands} bands of {self.rows} rows need {self.bands * self.rows} permutations, "
                f"there are {self.permutations}",
                "use fewer bands or rows, or more permutations",
            )
        found = recall(self.threshold, self.bands, self.rows)
        if found < MIN_RECALL:
            raise ConfigError(
                f"clean.dedup: {self.bands} bands of {self.rows} rows meet {found:.1%} of the pairs at threshold "
                f"{self.threshold}, less than {MIN_RECALL:.0%}",
                "use more bands or fewer rows",
            )


def recall(similarity: float, bands: int, rows: int) -> float:
    """The chance that two texts of this similarity meet in some band: 1 - (1 - J^rows)^bands.

    >>> f"{recall(0.8, bands=25, rows=5):.5f} {recall(0.3, bands=25, rows=5):.3f}"
    '0.99995 0.059'
    """
    return float(1 - (1 - similarity**rows) ** bands)
