"""Which evaluation sets the corpus is held against, and how. Apart from the stage, so that help loads no numpy."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError

MAX_NGRAM_WORDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DecontaminationSettings:
    """Which evaluation sets the corpus is held against, and how: the section [clean.decontaminate]."""

    against: tuple[str, ...] = setting(
        (), "evaluation set: text, JSONL or Parquet, as FILE or FILE#FIELD (text); repeatable", in_recipe=False
    )
    overlap_words: int = setting(8, "words of the n-grams whose share in the documents is reported; GPT-2's are 8")
    shared_words: int = setting(13, "words of the n-grams that make a document a copy of an example; GPT-3's are 13")
    drop: bool = setting(False, "drop documents that share an n-gram with an example, instead of listing them only")
    min_shared: int = setting(1, "drop documents that hold at least so many such n-grams, repeats counted")

    def __post_init__(self) -> None:
        for name in ("overlap_words", "shared_words"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_NGRAM_WORDS:
                raise ConfigError(
                    f"clean.decontaminate.{name} is {value}", f"it lies between 1 and {MAX_NGRAM_WORDS:,}"
                )
        if self.min_shared < 1:
            raise ConfigError(f"clean.decontaminate.min_shared is {self.min_shared}", "it is at least 1")
