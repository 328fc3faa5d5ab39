"""The n-gram table: the readable twin of `clean/native/ngrams/`.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section 4, search for 8-grams of
lower-cased alphanumeric words with a single space as delimiter. To cover any script, we take the words of the dedup key
(`clean/dedup/key.py`): Unicode letters and numbers, NFKD, case-folded; everything else ends a word.
"""

from __future__ import annotations

from reference.words import ngrams_of


class Table:
    """Distinct n-grams of words, numbered in the order of their first occurrence."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, text: str) -> list[int]:
        """Add the n-grams of a text; return their numbers in text order, with repeats."""
        return [self._numbers.setdefault(ngram, len(self._numbers)) for ngram in ngrams_of(text, self.n)]

    def find(self, text: str) -> list[int]:
        """Return the numbers of a text's n-grams that are in the table, in text order, with repeats."""
        return [self._numbers[ngram] for ngram in ngrams_of(text, self.n) if ngram in self._numbers]
