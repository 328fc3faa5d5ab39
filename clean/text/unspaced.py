"""Words in scripts written without spaces, for shingles, decontamination and quality rules.

No dictionary is used: one for each language would be heavy, and results would change with its releases. Each letter,
with the marks that follow it, is a unit with a fixed weight: 1 / (letters of a mean word). An n-gram starts at each
unit and takes the fewest units that weigh n words: five words are 9 characters of Chinese, 16 letters of Thai, or five
words of a spaced text.

The tables in C++ are made from this file (`native/make_table.py`).
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from operator import itemgetter
from typing import NamedTuple

WORD = 1000
"""The weight of a spaced word. Weights are integers, so their sums are equal on every machine."""


def ranges(text: str) -> tuple[range, ...]:
    """Return the ranges of code points in a string of hex ranges.

    >>> ranges("41-43 7a")
    (range(65, 68), range(122, 123))
    """
    pairs = (entry.partition("-") for entry in text.split())
    return tuple(range(int(first, 16), int(last or first, 16) + 1) for first, _, last in pairs)


class Script(NamedTuple):
    """A script: the mean number of letters per word, without marks, and the code points of its letters."""

    letters_per_word: float
    letters: tuple[range, ...]

    @property
    def weight(self) -> int:
        """The weight of one letter, in thousandths of a word."""
        return round(WORD / self.letters_per_word)


HAN = (
    "3005-3007 3021-3029 3038-303c 3400-4dbf 4e00-9fff f900-fa6d fa70-fad9 16fe3 16ff2-16ff6 20000-2a6df 2a700-2b81e "
    "2b820-2cead 2ceb0-2ebe0 2ebf0-2ee5d 2f800-2fa1d 30000-3134a 31350-33479"
)
HIRAGANA = "3031-3035 3041-3096 309d-309f 1b001-1b11f 1b123 1b132 1b150-1b152"
KATAKANA = (
    "30a1-30fa 30fc-30ff 31f0-31ff ff66-ff9d 1aff0-1aff3 1aff5-1affb 1affd-1affe 1b000 1b120-1b122 1b124-1b128 1b155 "
    "1b164-1b168"
)
THAI = "e01-e30 e32-e33 e40-e46"
LAO = "e81-e82 e84 e86-e8a e8c-ea3 ea5 ea7-eb0 eb2-eb3 ebd ec0-ec4 ec6 edc-edf"
KHMER = "1780-17b3 17d7 17dc"
MYANMAR = (
    "1000-102a 103f 1050-1055 105a-105d 1061 1065-1066 106e-1070 1075-1081 108e a9e0-a9e4 a9e6-a9ef a9fa-a9fe "
    "aa60-aa76 aa7a aa7e-aa7f"
)
_LETTERS_PER_WORD = {HAN: 1.7, HIRAGANA: 1.6, KATAKANA: 4.0, THAI: 3.1, LAO: 3.3, KHMER: 3.2, MYANMAR: 2.2}
SCRIPTS = tuple(Script(n, ranges(letters)) for letters, n in _LETTERS_PER_WORD.items())
"""Letters and letter numbers by the Script property of Unicode 17.0, and prolonged sound, iteration and closing marks,
whose Script is Common."""
_RUNS = sorted((each.start, each.stop, i) for i, script in enumerate(SCRIPTS) for each in script.letters)


@functools.lru_cache(maxsize=1 << 16)
def script_of(character: str) -> int | None:
    """Return the index in SCRIPTS of a letter's script; None for any other character.

    >>> [script_of(character) for character in "語ーก9"]
    [0, 2, 3, None]
    """
    code = ord(character)
    at = bisect_right(_RUNS, code, key=itemgetter(0)) - 1
    return _RUNS[at][2] if at >= 0 and code < _RUNS[at][1] else None
