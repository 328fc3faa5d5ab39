"""Settings of decontamination. They have their own module so that --help doesn't load numpy."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError

MAX_NGRAM_WORDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DecontaminationSettings:
    """Which evaluation sets to compare the corpus with, and how (section [clean.decontaminate])."""

    against: tuple[str, ...] = setting(
        (), "evaluation set: text, JSONL or Parquet, as FILE or FILE#FIELD (text); repeatable", in_recipe=False
    )
    overlap_words: int = setting(8, "length in words of the n-grams whose overlap is reported; GPT-2 used 8")
    shared_words: int = setting(13, "length in words of the n-grams that mark a copy of an example; GPT-3 used 13")
    drop: bool = setting(False, "drop documents that share an n-gram with an example, instead of only listing them")
    min_shared: int = setting(1, "minimum number of such n-grams, counted with repeats, for a document to be dropped")

    def __post_init__(self) -> None:
        for name in ("overlap_words", "shared_words"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_NGRAM_WORDS:
                raise ConfigError(
                    f"clean.decontaminate.{name} is {value}", f"it must be between 1 and {MAX_NGRAM_WORDS:,}"
                )
        if self.min_shared < 1:
            raise ConfigError(f"clean.decontaminate.min_shared is {self.min_shared}", "it must be at least 1")
