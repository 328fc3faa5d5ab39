"""The n-gram table as one reads it: the twin of `clean/native/ngrams.cpp`, with equal results, for reading and for tests.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section 4, look for 8-grams of lower-cased
alphanumeric words with a single space as delimiter. Such words in any script are those of the dedup key
(`clean/dedup/key.py`): Unicode letters and numbers, NFKD, case-folded; everything else ends a word.
"""

from __future__ import annotations

from webtext.clean.dedup.key import dedup_key


def ngrams(text: str, n: int) -> list[str]:
    """Each n consecutive words, in text order; none of a text with fewer words.

    >>> ngrams("To be, or NOT to be?", 4)
    ['to be or not', 'be or not to', 'or not to be']
    """
    words = dedup_key(text).split()
    return [" ".join(words[first : first + n]) for first in range(len(words) - n + 1)]


class Table:
    """Distinct n-grams of the words of texts, numbered in the order in which they first came."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, text: str) -> list[int]:
        """Add the n-grams of a text; their numbers in text order, repeats included."""
        return [self._numbers.setdefault(ngram, len(self._numbers)) for ngram in ngrams(text, self.n)]

    def find(self, text: str) -> list[int]:
        """The numbers of a text's n-grams that are in the table, in text order, repeats included."""
        return [self._numbers[ngram] for ngram in ngrams(text, self.n) if ngram in self._numbers]
