"""The dedup key of a text: its words, without case, accents' encoding, punctuation and layout.

1. Each character becomes its NFKD form, is case-folded, and becomes NFKD again: `Ｆｉﬀ` -> `fiff`, `É` -> `e` + accent.
2. Letters (L*) and numbers (N*) make words. Marks (M*) stay with the letter before them; one that follows none is
   dropped. Format characters (Cf: soft hyphen, zero-width joiners, BOM) are dropped. Everything else ends a word.
3. Scripts written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) have no words to be seen: there each
   letter, with its marks, is a word.
4. Words are joined by one blank.

The rule looks at one character at a time, so it is a table. The native scan has that table built in; it is made from
this file when the package is built, by the building Python's `unicodedata`, whose version every recipe that uses keys
names (`UNICODE_VERSION`). This file is the readable twin.
"""

from __future__ import annotations

import functools
import unicodedata
from enum import IntEnum

UNICODE_VERSION = unicodedata.unidata_version

UNSPACED_SCRIPTS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK radicals
    (0x3005, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # CJK ideographs, extension A
    (0x4E00, 0x9FFF),  # CJK ideographs
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAA7F),  # Myanmar extended A
    (0xF900, 0xFAFF),  # CJK compatibility ideographs
    (0x1AFF0, 0x1B16F),  # Kana extensions
    (0x20000, 0x3FFFF),  # CJK ideographs, extensions B and later
)
"""Blocks whose letters are words by themselves."""


class Kind(IntEnum):
    """What a folded character does to the word before it."""

    BREAK = 0  # ends it
    WORD = 1  # goes on with it
    SINGLE = 2  # is a word of its own
    MARK = 3  # goes on with it, and starts none


def dedup_key(text: str) -> str:
    """The words of `text`, joined by single blanks; empty when it has none.

    >>> dedup_key("  The “CAFÉ”,\\n\\nre\\u00adopened: Ⅳ") == "the cafe\\u0301 reopened iv"
    True
    >>> dedup_key("猫が好き GPT2です")
    '猫 か\u3099 好 き gpt2 て\u3099 す'
    """
    folded: list[str] = []
    previous = Kind.BREAK
    for character in text:
        for unit in fold(character):
            kind = kind_of(unit)
            if kind is Kind.MARK:
                if previous is not Kind.BREAK:
                    folded.append(unit)
                continue
            if Kind.SINGLE in (kind, previous):
                folded.append(" ")
            folded.append(unit)
            previous = kind
    return " ".join("".join(folded).split())


@functools.lru_cache(maxsize=1 << 16)
def fold(character: str) -> str:
    """What one character becomes: letters, numbers, marks, and a blank for whatever ends a word."""
    decomposed = unicodedata.normalize("NFKD", character).casefold()
    units = unicodedata.normalize("NFKD", decomposed)
    return "".join(unit if _is_of_words(unit) else " " for unit in units if unicodedata.category(unit) != "Cf")


@functools.lru_cache(maxsize=1 << 16)
def kind_of(unit: str) -> Kind:
    """The kind of one folded character."""
    category = unicodedata.category(unit)
    if category[0] == "M":
        return Kind.MARK
    if category[0] not in "LN":
        return Kind.BREAK
    unspaced = category[0] == "L" and any(first <= ord(unit) <= last for first, last in UNSPACED_SCRIPTS)
    return Kind.SINGLE if unspaced else Kind.WORD


def _is_of_words(unit: str) -> bool:
    return unicodedata.category(unit)[0] in "LNM"
