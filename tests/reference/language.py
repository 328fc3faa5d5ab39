"""Language identification: the readable twin of `native/language/`, which adds equal numbers in equal order."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from webtext.clean.language import SCORE_DIGITS, encoded, identifier


def detect_language(text: str) -> tuple[str, float] | None:
    """Return the same as `clean.language.detect_language`."""
    from py3langid.langid import visit_counts

    given, weights = _model()
    data = encoded(text)
    visits = visit_counts(given.tk_nextmove, given._rowbase, given.tk_output, data)
    if not visits:
        return None
    counts = np.log1p(np.fromiter(visits.values(), np.float64, len(visits)))
    rows = np.fromiter(visits.keys(), np.intp, len(visits))
    scores = (counts[:, None] * weights[rows]).sum(axis=0) + np.asarray(given.nb_pc, np.float64)
    # the temperature sqrt(bytes) keeps the probability calibrated across lengths (py3langid, norm_probs=True)
    likelihoods = np.exp((scores - scores.max()) / math.sqrt(len(data)))
    probabilities: dict[str, float] = {}
    for language, likelihood in zip(given.nb_classes, likelihoods / likelihoods.sum(), strict=True):
        probabilities[language] = probabilities.get(language, 0.0) + float(likelihood)
    best = max(probabilities, key=probabilities.__getitem__)
    return best, round(min(1.0, probabilities[best]), SCORE_DIGITS)


@functools.cache
def _model() -> tuple[Any, Any]:
    given = identifier()
    return given, np.asarray(given.nb_ptc, np.float64)
