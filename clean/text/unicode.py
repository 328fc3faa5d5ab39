"""The general category of characters in Unicode 14.0, whichever version the running Python has.

Later versions assign more characters. They don't change what the rules here ask of the others: the major category,
whether it is Cf, and by Unicode's stability policy the decomposition and case folding.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from pathlib import Path

UNICODE_VERSION = "14.0.0"
_EDGES = [int(code, 16) for code in Path(__file__).with_name("unicode_14.txt").read_text(encoding="ascii").split()]
"""Code points where runs begin, in turn of assigned characters and of unassigned ones; the first is assigned."""


def category_of(character: str) -> str:
    """Return the category of a character; 'Cn' if it isn't assigned in this version.

    >>> category_of("é"), category_of("\\u0cf3")  # the latter is of Unicode 15.0
    ('Ll', 'Cn')
    """
    return unicodedata.category(character) if bisect_right(_EDGES, ord(character)) % 2 else "Cn"
