"""The one rule that makes a document's text: what `Document.text` may hold, whatever it came from.

Valid UTF-8 without NUL, surrogates and C0 controls save `\\n` and `\\t`; every line ends in `\\n`; at most two `\\n` in a
row; no blanks at a line's end and no empty lines around the text. Nothing else is touched: the text is not
Unicode-normalised (only the keys of deduplication are) and indentation stays.
"""

from __future__ import annotations

import re

MAX_TEXT_BYTES = 10_000_000
_LINE_ENDS = tuple(end.encode() for end in ("\r\n", "\x85", "\u2028", "\u2029"))
_TO_LINE_END = bytes.maketrans(b"\r\x0b\x0c", b"\n\n\n")
_CONTROLS = bytes({*range(0x20)} - {*b"\t\n\r\x0b\x0c"})
_SURROGATES = re.compile("[\ud800-\udfff]")
_EMPTY_LINES = re.compile(r"\n{3,}")


def is_longer(text: str, max_bytes: int) -> bool:
    """Whether a text has more than max_bytes bytes in UTF-8."""
    return len(text) > max_bytes or (4 * len(text) > max_bytes and len(text.encode("utf-8", "replace")) > max_bytes)


def clean_text(text: str) -> str:
    """The text as a document holds it; idempotent, linear in the length of `text`.

    Surrogates that make a pair become their character, lone ones U+FFFD.

    >>> clean_text("def f():\\r\\n    return 1  \\r\\n\\r\\n\\r\\n\\x00end\\n")
    'def f():\\n    return 1\\n\\nend'
    """
    if has_surrogates(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    data = text.encode()  # as bytes: a regex of the same takes ten times as long
    for end in _LINE_ENDS:
        data = data.replace(end, b"\n")
    text = data.translate(_TO_LINE_END, _CONTROLS).decode()
    # Not one regex for the blanks: `[^\S\n]+$` takes quadratic time on a long run of blanks inside a line.
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    return (_EMPTY_LINES.sub("\n\n", text) if "\n\n\n" in text else text).strip("\n")


def has_surrogates(text: str) -> bool:
    """Whether the text holds code points that no UTF-8 can."""
    return _SURROGATES.search(text) is not None
