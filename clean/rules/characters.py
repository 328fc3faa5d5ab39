"""Character classes for the rules: blanks, symbols, letters, and punctuation that ends a line.

The native core uses a table made from this file (`native/make_table.py`).
"""

from __future__ import annotations

from webtext.clean.text.unicode import category_of
from webtext.clean.text.unspaced import LAO, THAI, ranges, script_of

_TERMINAL = (
    "21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 166e 1735-1736 "
    "17d4-17d6 17d9-17da 1803 1809 1944-1945 1aa8-1aab 1b5a-1b5b 1b5e-1b5f 1b7d-1b7e 1c3b-1c3c 1c7e-1c7f "
    "203c-203d 2047-2049 2e2e 2e3c 2e53-2e54 3002 a4ff a60e-a60f a6f3 a6f7 a876-a877 a8ce-a8cf a92f a9c8-a9c9 "
    "aa5d-aa5f aaf0-aaf1 abeb fe52 fe56-fe57 ff01 ff0e ff1f ff61 10a56-10a57 10f55-10f59 10f86-10f89 "
    "11047-11048 110be-110c1 11141-11143 111c5-111c6 111cd 111de-111df 11238-11239 1123b-1123c 112a9 "
    "1144b-1144c 115c2-115c3 115c9-115d7 11641-11642 1173c-1173e 11944 11946 11a42-11a43 11a9b-11a9c "
    "11c41-11c42 11ef7-11ef8 11f43-11f44 16a6e-16a6f 16af5 16b37-16b38 16b44 16e98 1bc9f 1da88"
)
"""Code points in hex: Sentence_Terminal of Unicode 15.0 and three Khmer signs, which FineWeb counts as punctuation."""

TERMINAL_PUNCTUATION = frozenset(chr(code) for each in ranges(_TERMINAL) for code in each)
OPEN_SENTENCES = f"{THAI} {LAO} e31 e34-e3a e47-e4e eb1 eb4-ebc ec8-ece"
"""Letters and marks of Thai and Lao, which have no terminal punctuation: a sentence may end in any of them."""
LINE_ENDS = TERMINAL_PUNCTUATION.union(chr(code) for each in ranges(OPEN_SENTENCES) for code in each)

_ASCII_SYMBOLS = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_OTHER_SYMBOLS = frozenset("«´»–—’“”„…∶━►、。〈〉《》「」【】！％（），．１：；？～")
_CONTROLS = frozenset(map(chr, (*range(9), *range(11, 32), *range(127, 160))))
SYMBOLS = _ASCII_SYMBOLS | _OTHER_SYMBOLS | _CONTROLS | TERMINAL_PUNCTUATION
"""A word of symbols alone doesn't count as a word in Gopher's rules; the symbols are those of FineWeb's code."""

BLANK, SYMBOL, LETTER, TERMINAL, UNSPACED = 1, 2, 4, 8, 16
SCRIPT = 32  # for an UNSPACED letter: multiplied by its index in unspaced.SCRIPTS
ATTACHED, PUNCTUATION = 32, 64  # for other characters: part of the unspaced letter before; a symbol near such letters
_HALFWIDTH_VOICE_MARKS = "ﾞﾟ"


def class_of(character: str) -> int:
    """Return the classes of a character as bits; a blank has no other class.

    >>> class_of("\\u3000") == BLANK, class_of(".") & TERMINAL > 0, class_of("é") == LETTER, class_of("7")
    (True, True, True, 0)
    """
    if character.isspace():
        return BLANK
    classes = SYMBOL * (character in SYMBOLS) | TERMINAL * (character in LINE_ENDS)
    script = script_of(character)
    if script is not None:
        return classes | LETTER | UNSPACED | SCRIPT * script
    category = category_of(character)
    is_format = category == "Cf"
    classes |= ATTACHED * (is_format or category[0] == "M" or character in _HALFWIDTH_VOICE_MARKS)
    return classes | PUNCTUATION * (is_format or category[0] in "PS") | LETTER * (category[0] == "L")
