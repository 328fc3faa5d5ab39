"""The dedup key of a text: its words, normalised so that case, punctuation, layout and Unicode form don't matter.

1. Each character becomes its NFKD form, is case-folded, and becomes NFKD again: `Ｆｉﬀ` -> `fiff`, `É` -> `e` + accent.
2. Letters (L*) and numbers (N*) make words. Marks (M*) stay with the letter before them; one that follows none is
   dropped. Format characters (Cf: soft hyphen, zero-width joiners, BOM) are dropped. Everything else ends a word.
3. In scripts written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each letter, with its marks, is a
   separate unit; an n-gram takes as many units as make up n words (`clean/text/unspaced.py`).
4. Words and units are joined by single spaces.

The rule depends on one character at a time, so it can be stored as a table. The native scan has that table compiled in,
made from this file (`native/make_table.py`). Every build of the package has the same table, because
the Unicode version is fixed (`clean/text/unicode.py`); recipes record it.
"""

from __future__ import annotations

import functools
import unicodedata
from enum import IntEnum

from webtext.clean.text.unicode import category_of
from webtext.clean.text.unspaced import script_of


class Kind(IntEnum):
    """Effects of a folded character on the current word."""

    BREAK = 0  # ends the word
    WORD = 1  # continues the word or starts one
    SINGLE = 2  # is a separate unit
    MARK = 3  # continues the word; never starts one


@functools.lru_cache(maxsize=1 << 16)
def fold(character: str) -> str:
    """Fold one character to letters, numbers and marks, with a space for each unit that ends a word."""
    if category_of(character) == "Cn":
        return " "
    decomposed = unicodedata.normalize("NFKD", character).casefold()
    units = unicodedata.normalize("NFKD", decomposed)
    return "".join(unit if category_of(unit)[0] in "LNM" else " " for unit in units if category_of(unit) != "Cf")


@functools.lru_cache(maxsize=1 << 16)
def kind_of(unit: str) -> Kind:
    """Return the kind of a folded character."""
    category = category_of(unit)
    if category[0] == "M":
        return Kind.MARK
    if category[0] not in "LN":
        return Kind.BREAK
    return Kind.WORD if script_of(unit) is None else Kind.SINGLE
