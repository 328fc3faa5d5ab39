"""Escaping untrusted text for display: one line, every character visible, no terminal control sequences."""

from __future__ import annotations

import os
import sys
import unicodedata

BLANK = "␣"
"""Shown instead of a space where spaces must be visible; U+2423 itself is shown as an escape."""

_UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}  # controls, bidi overrides, zero width, unassigned, blanks


def shown_bytes(data: bytes) -> str:
    r"""Return a token's bytes as visible text: invalid UTF-8 as \x.., invisible characters as escapes.

    Different bytes always look different, so a backslash is doubled.

    >>> print(shown_bytes("é \n\u202e\x1b[31m".encode() + b"\xff\\"))
    é␣\n\u202e\x1b[31m\xff\\
    """
    return "".join(map(_shown, data.decode("utf-8", "surrogateescape")))


def wants_colour() -> bool:
    """Return whether standard output is a terminal that may show colours (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def _shown(character: str) -> str:
    if character == " ":
        return BLANK
    if character == "\\":
        return r"\\"
    if "\udc80" <= character <= "\udcff":  # a byte that isn't valid UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    if "\x80" <= character <= "\xff" and unicodedata.category(character) in _UNSEEN:
        return f"\\u{ord(character):04x}"  # because \\x80 and above denotes a byte
    if character == BLANK or unicodedata.category(character) in _UNSEEN:
        return character.encode("unicode_escape").decode("ascii")
    return character
