"""Text that comes from strangers, made safe to print: on one line, every character visible, none that steers a terminal."""

from __future__ import annotations

import unicodedata

_UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}  # controls, bidi overrides, zero width, unassigned, line ends


def shown_bytes(data: bytes) -> str:
    r"""Bytes of a token as text; bytes that are no character as \x.., what cannot be seen as an escape.

    >>> print(shown_bytes("é \n\u202e\x1b[31m".encode() + b"\xff\\"))
    é \n\u202e\x1b[31m\xff\\
    """
    return "".join(map(_shown, data.decode("utf-8", "surrogateescape")))


def _shown(character: str) -> str:
    if character == "\\":
        return r"\\"
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    if unicodedata.category(character) in _UNSEEN or (character.isspace() and character != " "):
        return character.encode("unicode_escape").decode("ascii")
    return character
