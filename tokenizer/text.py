"""Text that is not well-formed: lone surrogates in a str, invalid UTF-8 in bytes."""

from __future__ import annotations

Text = str | bytes
"""A str, or bytes that should be UTF-8; a byte that is not counts as one character, neither letter nor number."""


def encodable(text: Text) -> Text:
    r"""The text as it can be UTF-8: surrogate pairs joined, lone surrogates as U+FFFD, as tiktoken does.

    >>> encodable("\ud83d\ude00 \ud83d")
    '😀 \ufffd'
    """
    if isinstance(text, bytes):
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def readable(text: Text) -> str:
    """The text as a str in which every invalid byte is a lone surrogate, to be undone by `bytes_of_piece`."""
    text = encodable(text)
    return text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")


def bytes_of_piece(piece: str) -> bytes:
    """The bytes of a part of a `readable` text."""
    return piece.encode("utf-8", "surrogateescape")
