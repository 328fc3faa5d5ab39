"""The dedup key of a text: its words, normalised so that case, punctuation, layout and Unicode form don't matter.

1. Each character becomes its NFKD form, is case-folded, and becomes NFKD again: `Ｆｉﬀ` -> `fiff`, `É` -> `e` + accent.
2. Letters (L*) and numbers (N*) make words. Marks (M*) stay with the letter before them; one that follows none is
   dropped. Format characters (Cf: soft hyphen, zero-width joiners, BOM) are dropped. Everything else ends a word.
3. In scripts written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each letter, with its marks, is a
   separate unit; `ngrams_of` takes as many units as make up n words (`clean/text/unspaced.py`).
4. Words and units are joined by single spaces.

The rule depends on one character at a time, so it can be stored as a table. The native scan has that table compiled in,
made from this file, its readable twin (`native/make_table.py`). Every build of the package has the same table, because
the Unicode version is fixed (`clean/text/unicode.py`); recipes record it.
"""

from __future__ import annotations

import functools
import unicodedata
from enum import IntEnum

from webtext.clean.text.unicode import category_of
from webtext.clean.text.unspaced import ngrams, script_of, weight_of


class Kind(IntEnum):
    """What a folded character does to the current word."""

    BREAK = 0  # ends the word
    WORD = 1  # continues the word or starts one
    SINGLE = 2  # is a separate unit
    MARK = 3  # continues the word; never starts one


def dedup_key(text: str) -> str:
    """Return the words of `text`, joined by single spaces; empty if it has none.

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


def ngrams_of(text: str, n: int) -> list[str]:
    """Return the n-grams of the text's words, in text order, each joined by single spaces.

    >>> ngrams_of("To be, or NOT to be?", 4), ngrams_of("日本語とGPT2", 2)
    (['to be or not', 'be or not to', 'or not to be'], ['日 本 語 と', '本 語 と gpt2', '語 と gpt2'])
    """
    words = dedup_key(text).split()
    return [" ".join(words[start:end]) for start, end in ngrams([weight_of(word) for word in words], n)]


@functools.lru_cache(maxsize=1 << 16)
def fold(character: str) -> str:
    """Fold one character to letters, numbers and marks, with a space for each unit that ends a word."""
    if category_of(character) == "Cn":
        return " "
    decomposed = unicodedata.normalize("NFKD", character).casefold()
    units = unicodedata.normalize("NFKD", decomposed)
    return "".join(unit if _is_of_words(unit) else " " for unit in units if category_of(unit) != "Cf")


@functools.lru_cache(maxsize=1 << 16)
def kind_of(unit: str) -> Kind:
    """Return the kind of a folded character."""
    category = category_of(unit)
    if category[0] == "M":
        return Kind.MARK
    if category[0] not in "LN":
        return Kind.BREAK
    return Kind.WORD if script_of(unit) is None else Kind.SINGLE


def _is_of_words(unit: str) -> bool:
    return category_of(unit)[0] in "LNM"
