"""Answers compared by their words, as SQuAD's script does (Rajpurkar et al. 2016): without case, punctuation, articles."""

from __future__ import annotations

import re
import string
from collections import Counter

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words_of(answer: str) -> list[str]:
    """Return the words that are compared.

    >>> words_of("The Cat's a-sleep, here!")
    ['cats', 'asleep', 'here']
    """
    return re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION)).split()


def exact_match(answer: str, gold: str) -> float:
    """Return 1 if both have the same words in the same order, else 0."""
    return float(words_of(answer) == words_of(gold))


def f1(answer: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall of the words, each as often as it occurs."""
    ours, theirs = words_of(answer), words_of(gold)
    if not ours or not theirs:
        return float(ours == theirs)
    return 2 * (Counter(ours) & Counter(theirs)).total() / (len(ours) + len(theirs))
