"""How many characters of each block of a page are of a class, such as digits: all blocks at once, by a table of Unicode."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import regex  # type: ignore[import-untyped]

from webtext.clean.text.unspaced import SCRIPTS

Array = npt.NDArray[Any]

SPACE, LINE, PUNCTUATION, SIGN, DIGIT, UPPER, CAPITAL, UNSPACED = (1 << i for i in range(8))
_LISTED = (" ", "\n", ".,;:!?。！？，、；：…", r"|©®™•›»→·/\{}[]<>=_#@$€£¥₹", "0123456789")
_END_OF_CASES = 0x20000  # no letter from there on has a case


class Characters:
    """The characters of texts, none of which is empty."""

    def __init__(self, texts: Sequence[str]) -> None:
        lengths = [len(text) for text in texts]
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
        self._starts, self._lengths = np.cumsum([0, *lengths[:-1]]), lengths
        self._classes = _classes()[codes]

    def count(self, classes: int) -> Array:
        """Return how many characters of each text are of a class, float [n_texts].

        >>> Characters(["One, two.", "3"]).count(PUNCTUATION).tolist()
        [2.0, 0.0]
        """
        return self._sums(self._classes & classes > 0)

    def capitals(self, n_words: int) -> Array:
        """Return how many of each text's first words have a capital, float [n_texts]; words end at blanks."""
        is_space = self._classes & SPACE > 0
        spaces: Array = np.cumsum(is_space) - is_space
        n_before = spaces - np.repeat(spaces[self._starts], self._lengths)
        begins = np.concatenate([[True], is_space[:-1]])
        begins[self._starts] = True
        return self._sums(begins & (n_before < n_words) & (self._classes & CAPITAL > 0))

    def _sums(self, values: Array) -> Array:
        return np.add.reduceat(values, self._starts, dtype=float)


@cache
def _classes() -> Array:
    """Return the classes of each code point, as bits."""
    classes = np.zeros(sys.maxunicode + 1, np.uint8)
    letters = "".join(map(chr, range(_END_OF_CASES)))
    for bit, characters in enumerate([*_LISTED, regex.findall(r"\p{Lu}", letters), filter(str.isupper, letters)]):
        classes[list(map(ord, characters))] |= 1 << bit
    for script in SCRIPTS:
        for codes in script.letters:
            classes[codes.start : codes.stop] |= UNSPACED
    return classes
