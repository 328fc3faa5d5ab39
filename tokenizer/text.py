"""Checks and conversions for texts to encode: str, bytes, and ill-formed text (lone surrogates, invalid UTF-8)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import _bpe
from webtext.tokenizer.arguments import shown

Text = str | bytes
"""A str, or bytes that should be UTF-8; an invalid byte counts as one character, neither letter nor number."""

AnyText = str | bytes | bytearray | memoryview
"""A text as callers may pass it: any buffer of bytes is read as bytes."""

Texts = Iterable[AnyText]
"""Many texts: an iterable, or a column of strings or bytes of any library that exports Arrow's PyCapsules."""

TextsT = TypeVar("TextsT", bound=Texts)

STRINGS = (str, bytes, bytearray, memoryview)
_TEXTS = (str, bytes)  # a tuple, because `str | bytes` would be evaluated again by every call

SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def encodable(text: Text) -> Text:
    r"""Return a text that UTF-8 can encode: surrogate pairs joined, lone surrogates as U+FFFD, as in tiktoken.

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


def utf8(text: Text) -> bytes:
    """Return the UTF-8 of a text, with surrogates as in `encodable`."""
    try:
        return text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError:
        return utf8(encodable(text))


def as_text(text: AnyText, place: str = "the text") -> Text:
    """Return the text as str or bytes (a copy of any other buffer). Raises InputError if it isn't a text."""
    if isinstance(text, _TEXTS):
        return text
    try:
        view = memoryview(text)
    except TypeError:
        view = None
    if view is None or view.itemsize != 1:
        raise InputError(f"{place} is {shown(text)}", "expected str or bytes")
    return view.tobytes()


def as_texts(texts: Texts) -> list[Text]:
    """Return the texts of any iterable as a list. InputError names the first item that isn't a text."""
    if isinstance(texts, STRINGS):
        raise ConfigError("texts is one string", "pass a list of texts, or use encode_numpy")
    return [as_text(text, f"text {index}") for index, text in enumerate(checked_texts(in_place(texts)))]


def in_place(texts: Any) -> Any:
    """Return a column of Arrow as texts in its producer's memory, and anything else unchanged."""
    if isinstance(texts, list) or not any(hasattr(texts, f"__arrow_c_{kind}__") for kind in ("array", "stream")):
        return texts
    try:
        return _bpe.TextColumn(texts)
    except (TypeError, ValueError) as error:
        raise InputError(str(error), "expected a column of strings or bytes without nulls") from None


def checked_texts(texts: TextsT) -> TextsT:
    """Return the argument if it is iterable, else raise InputError. Its items are checked one by one later."""
    if not isinstance(texts, Iterable) and not hasattr(texts, "__getitem__"):
        raise InputError(f"texts is {shown(texts)}", "expected a list of str or bytes")
    return texts


def readable(text: Text) -> str:
    """Return the text as a str in which invalid bytes are lone surrogates; `bytes_of_piece` reverses this."""
    text = encodable(text)
    return text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")


def bytes_of_piece(piece: str) -> bytes:
    """Return the bytes of a part of a `readable` text."""
    return piece.encode("utf-8", "surrogateescape")
