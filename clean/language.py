"""Which language a text is in, by py3langid's naive Bayes model (140 languages), with a probability.

The model is py3langid's; the walk and the sum are native, in double precision, and the probability is rounded: py3langid's
single-precision product goes through the machine's BLAS and differs in the last digits from one processor to the next.
`language_reference.py` is the readable twin.
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
"""Longer texts are judged by their start: the walk over the text is the cost, and the answer is settled long before."""
SCORE_DIGITS = 4
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageSettings:
    """Which languages stay. The default is English as WebText kept it, at FineWeb's threshold."""

    language: tuple[str, ...] = setting(
        ("en",), "keep documents in these languages (ISO 639-1 codes); 'all' keeps every one"
    )
    min_language_score: float = setting(0.65, "keep documents whose language is at least this probable")

    def __post_init__(self) -> None:
        if not 0 <= self.min_language_score <= 1:
            raise ConfigError(f"min_language_score is {self.min_language_score}", "it is a probability: 0 to 1")
        for code in set(self.language) - {"en", ALL}:  # the model is loaded only to judge what is not the default
            if code not in known_languages():
                raise ConfigError(f"unknown language '{code}'", did_you_mean(code, known_languages()))


def detect_language(text: str) -> tuple[str, float] | None:
    """ISO 639-1 code and probability of the language of `text`; None when nothing in it tells.

    >>> detect_language("The quick brown fox jumps over the lazy dog.")[0]
    'en'
    """
    model, languages = _model()
    number, probability = model.detect(encoded(text))
    return (languages[number], round(min(1.0, probability), SCORE_DIGITS)) if number >= 0 else None


def encoded(text: str) -> bytes:
    """The bytes that the model looks at: the start of the text in NFC, not in capitals throughout."""
    data: bytes = _langid().LanguageIdentifier._encode(text[:MAX_CHARACTERS])
    return data


def identifier() -> Any:
    """py3langid's own, which gives probabilities."""
    langid = _langid()
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


@functools.cache
def known_languages() -> tuple[str, ...]:
    """The codes that the model knows, sorted."""
    return tuple(sorted(_model()[1]))


@functools.cache
def _langid() -> Any:
    from py3langid import langid

    return langid


@functools.cache
def _model() -> tuple[Model, list[str]]:
    """The model and its languages by number; a language may have one class for each of its scripts."""
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
