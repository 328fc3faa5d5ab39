"""The rules by name, and the profiles: named sets of thresholds, most of them published.

webtext   the default: a minimum length, and nearly half of the text in lines of prose. Chosen so that articles and forum
          threads stay, and symbol indexes, member lists and tables of contents don't (docs/measurements/clean.md)
minimal   only a minimum length, as usual in GPT-2's time. OpenWebText dropped documents under 128 GPT-2 tokens; a word
          of prose is a little over one token.
gopher    quality and repetition rules of Rae et al. 2021, Tables A1 and A2
c4        document rules of Raffel et al. 2020, §2.2, with the numbers of its first version and of FineWeb: 5 sentences
          in lines of 3 words (the journal's version and the code that made C4 use 3 sentences in lines of 5 words)
fineweb   FineWeb's recipe (Penedo et al. 2024): Gopher's rules, C4's without the terminal punctuation, and its own
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from webtext.base.config import setting
from webtext.base.errors import ConfigError, did_you_mean

Bound = Literal["min", "max"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Drops documents whose `column` is below the threshold (min) or above it (max); `reason` is the rule's name."""

    reason: str
    column: str
    bound: Bound


RULES = {
    rule.reason: rule
    for rule in (
        Rule("too_few_words", "n_words", "min"),
        Rule("too_many_words", "n_words", "max"),
        Rule("words_too_short", "mean_word_length", "min"),
        Rule("words_too_long", "mean_word_length", "max"),
        Rule("too_many_hashes", "hash_word_ratio", "max"),
        Rule("too_many_ellipses", "ellipsis_word_ratio", "max"),
        Rule("too_few_alphabetic_words", "alphabetic_word_ratio", "min"),
        Rule("too_few_stop_words", "n_stop_words", "min"),
        Rule("too_many_bullet_lines", "bullet_line_ratio", "max"),
        Rule("too_many_ellipsis_lines", "ellipsis_line_ratio", "max"),
        Rule("too_many_duplicate_lines", "duplicate_line_ratio", "max"),
        Rule("too_many_duplicate_line_characters", "duplicate_line_character_ratio", "max"),
        Rule("too_many_duplicate_paragraphs", "duplicate_paragraph_ratio", "max"),
        Rule("too_many_duplicate_paragraph_characters", "duplicate_paragraph_character_ratio", "max"),
        *(Rule(f"top_{n}gram_too_frequent", f"top_{n}gram_character_ratio", "max") for n in (2, 3, 4)),
        *(Rule(f"too_many_duplicate_{n}grams", f"duplicate_{n}gram_character_ratio", "max") for n in range(5, 11)),
        Rule("has_lorem_ipsum", "n_lorem_ipsum_lines", "max"),
        Rule("has_curly_brace", "n_curly_brace_lines", "max"),
        Rule("too_few_sentences", "n_sentences", "min"),
        Rule("has_punctuated_lorem_ipsum", "n_punctuated_lorem_ipsum_lines", "max"),
        Rule("has_punctuated_curly_brace", "n_punctuated_curly_brace_lines", "max"),
        Rule("too_few_punctuated_sentences", "n_punctuated_sentences", "min"),
        Rule("too_few_punctuated_lines", "punctuated_line_ratio", "min"),
        Rule("too_many_short_lines", "short_line_ratio", "max"),
        Rule("too_many_duplicate_characters", "duplicate_character_ratio", "max"),
        Rule("too_many_newlines", "newline_word_ratio", "max"),
        Rule("too_little_prose", "prose_character_ratio", "min"),
        Rule("extractors_disagree", "extractor_agreement", "min"),
        Rule("vote_score_too_low", "vote_score", "min"),
    )
}
"""Reason -> rule, in the order of application: the first rule that drops a document is its reason."""

_GOPHER = {
    "too_few_words": 50,
    "too_many_words": 100_000,
    "words_too_short": 3,
    "words_too_long": 10,
    "too_many_hashes": 0.1,
    "too_many_ellipses": 0.1,
    "too_few_alphabetic_words": 0.8,
    "too_few_stop_words": 2,
    "too_many_bullet_lines": 0.9,
    "too_many_ellipsis_lines": 0.3,
    "too_many_duplicate_lines": 0.3,
    "too_many_duplicate_line_characters": 0.2,
    "too_many_duplicate_paragraphs": 0.3,
    "too_many_duplicate_paragraph_characters": 0.2,
    "top_2gram_too_frequent": 0.20,
    "top_3gram_too_frequent": 0.18,
    "top_4gram_too_frequent": 0.16,
    "too_many_duplicate_5grams": 0.15,
    "too_many_duplicate_6grams": 0.14,
    "too_many_duplicate_7grams": 0.13,
    "too_many_duplicate_8grams": 0.12,
    "too_many_duplicate_9grams": 0.11,
    "too_many_duplicate_10grams": 0.10,
}
_C4 = {"has_punctuated_lorem_ipsum": 0, "has_punctuated_curly_brace": 0, "too_few_punctuated_sentences": 5}
_FINEWEB = {
    "has_lorem_ipsum": 0,
    "has_curly_brace": 0,
    "too_few_sentences": 5,
    "too_few_punctuated_lines": 0.12,
    "too_many_short_lines": 0.67,
    "too_many_duplicate_characters": 0.01,
    "too_many_newlines": 0.3,
}
PROFILES: Mapping[str, Mapping[str, float]] = {
    "webtext": {"too_few_words": 100, "too_little_prose": 0.45},
    "minimal": {"too_few_words": 100},
    "gopher": _GOPHER,
    "c4": _C4,
    "fineweb": _GOPHER | _FINEWEB,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings:
    """Which quality rules apply: the section [clean.rules]."""

    profile: str = setting("webtext", f"rules: {', '.join(PROFILES)}")
    rule: tuple[str, ...] = setting((), "rule to set, e.g. too_few_words=50 or too_few_words=none; repeatable")
    score_model: str | None = setting(None, "model of `clean score train`, for vote_score", in_recipe=False)

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ConfigError(
                f"unknown profile '{self.profile}' in [clean.rules]", did_you_mean(self.profile, PROFILES)
            )
        self.thresholds()

    def thresholds(self) -> dict[str, float]:
        """Return reason -> threshold of each rule that applies, in the order of RULES."""
        values: dict[str, float] = dict(PROFILES[self.profile])
        for change in self.rule:
            reason, separator, value = (part.strip() for part in change.partition("="))
            if reason not in RULES:
                raise ConfigError(f"unknown rule '{reason}' in [clean.rules]", did_you_mean(reason, RULES))
            if value == "none":
                values.pop(reason, None)
                continue
            try:
                values[reason] = float(value)
                if math.isnan(values[reason]):  # nothing is above or below it
                    raise ValueError
            except ValueError:
                raise ConfigError(f"{change!r} in [clean.rules] is neither rule=number nor rule=none") from None
        return {reason: values[reason] for reason in RULES if reason in values}
