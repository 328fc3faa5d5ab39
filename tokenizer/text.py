"""What may be encoded: str and bytes, and text that is not well-formed (lone surrogates, invalid UTF-8)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer.arguments import shown

Text = str | bytes
"""A str, or bytes that should be UTF-8; a byte that is not counts as one character, neither letter nor number."""

AnyText = str | bytes | bytearray | memoryview
"""A text as callers may hand it in: any buffer of bytes is read as bytes."""

TextsT = TypeVar("TextsT", bound=Iterable[AnyText])

STRINGS = (str, bytes, bytearray, memoryview)
_TEXTS = (str, bytes)  # a union would be made anew by every call

SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


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


def as_text(text: AnyText, place: str = "the text") -> Text:
    """The text as str or bytes, a buffer of bytes copied; InputError when it is none."""
    if isinstance(text, _TEXTS):
        return text
    try:
        view = memoryview(text)
    except TypeError:
        view = None
    if view is None or view.itemsize != 1:
        raise InputError(f"{place} is {shown(text)}", "expected str or bytes")
    return view.tobytes()


def as_texts(texts: Iterable[AnyText]) -> list[Text]:
    """Many texts, of any iterable; InputError names the first that is none."""
    if isinstance(texts, STRINGS):
        raise ConfigError("texts is one string", "give a list of texts, or use encode_numpy")
    return [as_text(text, f"text {index}") for index, text in enumerate(checked_texts(texts))]


def checked_texts(texts: TextsT) -> TextsT:
    """What was passed, if it can be iterated; InputError if not. What it holds is looked at one by one."""
    if not isinstance(texts, Iterable) and not hasattr(texts, "__getitem__"):
        raise InputError(f"texts is {shown(texts)}", "expected a list of str or bytes")
    return texts


def readable(text: Text) -> str:
    """The text as a str in which every invalid byte is a lone surrogate, to be undone by `bytes_of_piece`."""
    text = encodable(text)
    return text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")


def bytes_of_piece(piece: str) -> bytes:
    """The bytes of a part of a `readable` text."""
    return piece.encode("utf-8", "surrogateescape")
