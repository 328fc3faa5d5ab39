"""Preparation of a text before the pattern cuts it: a tokenizer.json may ask for NFC, and for a space before it.

As in HF tokenizers, both apply to each part between special tokens. Python's `unicodedata` normalizes: its Unicode
version decides about combining marks that are newer than it.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable

from webtext.base.errors import InputError
from webtext.tokenizer.text import Text, bytes_of_piece, readable
from webtext.tokenizer.vocabulary import Vocabulary


def prepared(text: Text, vocabulary: Vocabulary) -> Text:
    """Return the text as the pattern gets it, with invalid bytes unchanged."""
    if vocabulary.normalizer:
        text = nfc(text)
    if not text or not vocabulary.prefix_space:
        return text
    if isinstance(text, str):
        return text if text.startswith(" ") else f" {text}"
    return text if text.startswith(b" ") else b" " + text


def check_unchanged(text: Text, vocabulary: Vocabulary) -> None:
    """Raise InputError if tokens have no place in the text, because preparing it changes it, or could change a part."""
    if vocabulary.prefix_space or prepared(text, vocabulary) is not text:
        raise InputError(
            f"tokens have no place in this text, because {vocabulary.preparation} changes it",
            "count and encode work" if vocabulary.prefix_space else 'pass unicodedata.normalize("NFC", text)',
        )


def check_bytes(texts: Iterable[Text], lacking: bytes) -> None:
    """Raise InputError if a text in bytes has one of the bytes that aren't tokens."""
    for text in texts:
        if not isinstance(text, str) and (found := re.search(b"[" + re.escape(lacking) + b"]", text)):
            raise InputError(
                f"a text has the byte 0x{found[0].hex()} at position {found.start():,}: this isn't UTF-8",
                "the vocabulary has no token for it: decode the text with errors='replace' first",
            )


def nfc(text: Text) -> Text:
    """Return the text in Unicode's normalization form C."""
    if text.isascii():
        return text
    characters = readable(text)
    if unicodedata.is_normalized("NFC", characters):
        return text
    # Marks in order first: for a long run of them in disorder, `normalize` takes quadratic time.
    characters = _runs_of_marks().sub(lambda run: "".join(sorted(run[0], key=unicodedata.combining)), characters)
    return bytes_of_piece(unicodedata.normalize("NFC", characters))


@functools.cache
def _runs_of_marks() -> re.Pattern[str]:
    return re.compile(f"[{''.join(filter(unicodedata.combining, map(chr, range(0x110000))))}]{{16,}}")
