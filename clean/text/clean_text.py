"""The one function that produces a document's text (`Document.text`), whatever its source.

The result is valid UTF-8 without NUL, surrogates or C0 controls other than `\\n` and `\\t`. Lines end in `\\n`, with at
most two in a row, without trailing blanks; the text doesn't begin or end with empty lines. Nothing else changes: the
text isn't Unicode-normalised (only dedup keys are), and indentation is kept.
"""

from __future__ import annotations

import re

from webtext.base.inputs.identity import has_surrogates

MAX_TEXT_BYTES = 10_000_000
_LINE_ENDS = tuple(end.encode() for end in ("\r\n", "\x85", "\u2028", "\u2029"))
_TO_LINE_END = bytes.maketrans(b"\r\x0b\x0c", b"\n\n\n")
_CONTROLS = bytes({*range(0x20)} - {*b"\t\n\r\x0b\x0c"})
_EMPTY_LINES = re.compile(r"\n{3,}")


def is_longer(text: str) -> bool:
    """Return whether a text has more than MAX_TEXT_BYTES bytes in UTF-8."""
    most = MAX_TEXT_BYTES
    return len(text) > most or (4 * len(text) > most and len(text.encode("utf-8", "replace")) > most)


def clean_text(text: str) -> str:
    """Return the text as documents store it. Idempotent, in linear time.

    Surrogate pairs become their character, lone surrogates U+FFFD.

    >>> clean_text("def f():\\r\\n    return 1  \\r\\n\\r\\n\\r\\n\\x00end\\n")
    'def f():\\n    return 1\\n\\nend'
    """
    if has_surrogates(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    data = text.encode()  # as bytes: a regex takes ten times as long
    for end in _LINE_ENDS:
        data = data.replace(end, b"\n")
    text = data.translate(_TO_LINE_END, _CONTROLS).decode()
    # Not a regex: `[^\S\n]+$` takes quadratic time on a long run of blanks inside a line.
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    return (_EMPTY_LINES.sub("\n\n", text) if "\n\n\n" in text else text).strip("\n")
