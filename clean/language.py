"""Which language a text is in, by py3langid's naive Bayes model (140 languages), with a probability.

The model is py3langid's; the sum is done here in double precision and rounded, because its own single-precision product
goes through the machine's BLAS and differs in the last digits from one processor to the next: a score must not.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webtext.base.config import setting
from webtext.base.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

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
    import numpy as np
    from py3langid.langid import visit_counts

    identifier = _identifier()
    data = identifier._encode(text[:MAX_CHARACTERS])
    visits = visit_counts(identifier.tk_nextmove, identifier._rowbase, identifier.tk_output, data)
    if not visits:
        return None
    weights, priors, columns, languages = _model()
    counts = np.log1p(np.fromiter(visits.values(), np.float64, len(visits)))
    rows = np.fromiter(visits.keys(), np.intp, len(visits))
    scores = (counts[:, None] * weights[rows]).sum(axis=0) + priors
    # the temperature sqrt(bytes) keeps the probability calibrated across lengths (py3langid, norm_probs=True)
    likelihoods = np.exp((scores - scores.max()) / math.sqrt(len(data)))
    probabilities = np.bincount(columns, likelihoods / likelihoods.sum())
    best = int(probabilities.argmax())
    return languages[best], round(min(1.0, float(probabilities[best])), SCORE_DIGITS)


@functools.cache
def known_languages() -> tuple[str, ...]:
    """The codes that the model knows, sorted."""
    return tuple(sorted(_model()[3]))


@functools.cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@functools.cache
def _model() -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Feature weights, priors, each column's language (some languages have one per script), and the languages."""
    import numpy as np

    identifier = _identifier()
    languages: list[str] = identifier.labels
    columns = np.array([languages.index(label) for label in identifier.nb_classes])
    return np.asarray(identifier.nb_ptc, np.float64), np.asarray(identifier.nb_pc, np.float64), columns, languages
