"""The n-gram table and the Bloom filter: the readable twins of `clean/native/ngrams/`.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section 4, search for 8-grams of
lower-cased alphanumeric words with a single space as delimiter. To cover any script, we take the words of the dedup key
(`clean/dedup/key.py`): Unicode letters and numbers, NFKD, case-folded; everything else ends a word.
"""

from __future__ import annotations

from reference.words import ngrams_of

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1


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


class Bloom:
    """A Bloom filter over 64-bit hashes; `has` is true for every added hash, and for a few others."""

    def __init__(self, n_bits: int, probes: int) -> None:
        self._bits: set[int] = set()
        self._n_bits = n_bits
        self._probes = probes

    def add(self, hashed: int) -> None:
        """Set the bits of a hash."""
        self._bits.update(self._places(hashed))

    def has(self, hashed: int) -> bool:
        """Whether all bits of a hash are set."""
        return self._bits.issuperset(self._places(hashed))

    def _places(self, hashed: int) -> list[int]:
        """Return `probes` bit positions, from SplitMix64 (Steele et al. 2014) seeded with the hash."""
        places = []
        for n in range(1, self._probes + 1):
            mixed = hashed + n * _GOLDEN & _MASK
            mixed = (mixed ^ mixed >> 30) * _FIRST & _MASK
            mixed = (mixed ^ mixed >> 27) * _SECOND & _MASK
            places.append((mixed ^ mixed >> 31) * self._n_bits >> 64)
        return places
