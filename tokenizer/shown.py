"""Text that comes from strangers, made safe to print: on one line, every character visible, none that steers a terminal."""

from __future__ import annotations

import os
import sys
import unicodedata

BLANK = "␣"
"""Stands for a space where spaces must be seen; U+2423 itself is shown as an escape."""

_UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}  # controls, bidi overrides, zero width, unassigned, blanks


def shown_bytes(data: bytes) -> str:
    r"""Bytes of a token as text; bytes that are no character as \x.., what cannot be seen as an escape.

    Different bytes look different: a backslash is shown twice.

    >>> print(shown_bytes("é \n\u202e\x1b[31m".encode() + b"\xff\\"))
    é␣\n\u202e\x1b[31m\xff\\
    """
    return "".join(map(_shown, data.decode("utf-8", "surrogateescape")))


def wants_colour() -> bool:
    """Whether standard output is a terminal that may be coloured (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def _shown(character: str) -> str:
    if character == " ":
        return BLANK
    if character == "\\":
        return r"\\"
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    if "\x80" <= character <= "\xff" and unicodedata.category(character) in _UNSEEN:
        return f"\\u{ord(character):04x}"  # \\x.. from 80 on is a byte
    if character == BLANK or unicodedata.category(character) in _UNSEEN:
        return character.encode("unicode_escape").decode("ascii")
    return character
