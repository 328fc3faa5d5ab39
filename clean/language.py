"""Language identification with py3langid's naive Bayes model (140 languages), with a probability.

Only the model is py3langid's. The automaton and the sum are native code in double precision, and the probability is
rounded, because py3langid's single-precision product uses BLAS and its last digits differ between processors.
`tests/reference/language.py` is the readable twin.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webtext.base.config import setting
from webtext.base.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from webtext.clean._language import Model

MAX_CHARACTERS = 10_000
"""Only the start of a longer text is read: the cost grows with the length, and the answer is settled long before."""
SCORE_DIGITS = 4
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageSettings:
    """Which languages are kept. The default is English, as in WebText, at FineWeb's threshold."""

    language: tuple[str, ...] = setting(("en",), "languages to keep (ISO 639-1), or all; repeatable")
    min_language_score: float = setting(0.65, "minimum probability of a document's language", flag=False)

    def __post_init__(self) -> None:
        if not 0 <= self.min_language_score <= 1:
            raise ConfigError(f"min_language_score is {self.min_language_score}", "expected a probability from 0 to 1")
        for code in set(self.language) - {"en", ALL}:  # loads the model, so not for the default
            if code not in known_languages():
                raise ConfigError(f"unknown language '{code}'", did_you_mean(code, known_languages()))


def detect_language(text: str) -> tuple[str, float] | None:
    """Return the ISO 639-1 code of the language of `text` and its probability; None if the text has no known feature.

    >>> detect_language("The quick brown fox jumps over the lazy dog.")[0]
    'en'
    """
    model, languages = _model()
    number, probability = model.detect(encoded(text))
    return (languages[number], round(min(1.0, probability), SCORE_DIGITS)) if number >= 0 else None


def encoded(text: str) -> bytes:
    """Return the bytes that the model reads: the start of the text in NFC, lower-cased if it is all capitals."""
    data: bytes = _langid().LanguageIdentifier._encode(text[:MAX_CHARACTERS])
    return data


def identifier() -> Any:
    """Return a py3langid identifier that computes probabilities."""
    langid = _langid()
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


@functools.cache
def known_languages() -> tuple[str, ...]:
    """Return the language codes of the model, sorted."""
    return tuple(sorted(_model()[1]))


@functools.cache
def _langid() -> Any:
    from py3langid import langid

    return langid


@functools.cache
def _model() -> tuple[Model, list[str]]:
    """Return the model and its languages by number; a language may have one class for each of its scripts."""
    import numpy as np

    from webtext.clean._language import Model

    given = identifier()
    languages: list[str] = given.labels
    number = {language: i for i, language in enumerate(languages)}
    model = Model(
        moves=np.asarray(given.tk_nextmove, np.uint32),
        rows=np.array(given._rowbase, np.uint32),
        outputs=np.array(given.tk_output, np.int32),
        weights=np.asarray(given.nb_ptc, np.float32),
        priors=np.asarray(given.nb_pc, np.float64),
        languages=np.array([number[label] for label in given.nb_classes], np.int32),
    )
    return model, languages
