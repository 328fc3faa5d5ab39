"""Cutting a text into parts of at most n tokens each.

Encoding isn't prefix-closed: the tokens of a text's beginning can change with what follows it. So the text of its first
n tokens may have more than n tokens when it is encoded on its own, and every cut is verified by encoding the part
again. Cuts are tried at the ends of pieces first, then at tokens inside a long piece that end a character.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, AnyStr, cast

from webtext.base.errors import ConfigError
from webtext.tokenizer.text import SURROGATE_PAIR, as_text, utf8

TRIES = 8
"""Ends of each kind that are tried; in English text the first is right except in one part out of thousands."""

_BYTES_PER_TOKEN = 6  # of the searched window, which doubles until it has more than n tokens
_CHARACTER = re.compile(f"{SURROGATE_PAIR.pattern}|.", re.DOTALL)


def split(encoder: Any, text: AnyStr, n: int) -> Iterator[AnyStr]:
    """Yield consecutive parts of at most `n` tokens each; nothing for an empty text. `encoder` is a Tokenizer.

    Raises ConfigError if a single character has more than `n` tokens.
    """
    if not hasattr(n, "__index__") or n < 1:
        raise ConfigError(f"n is {n!r}", "expected 1 token or more")
    given = as_text(text)
    data = utf8(given)
    parts = (data[start:end] for start, end in itertools.pairwise(itertools.chain([0], _ends(encoder, data, n))))
    return cast("Iterator[AnyStr]", parts if isinstance(given, bytes) else _slices(given, parts))


def _slices(text: str, parts: Iterable[bytes]) -> Iterator[str]:
    """Cut a str where its UTF-8 was cut, which has U+FFFD for a lone surrogate and one character for a pair."""
    characters = _CHARACTER.findall(text) if SURROGATE_PAIR.search(text) else text
    at = 0
    for part in parts:
        n_characters = len(part.decode())
        yield "".join(characters[at : at + n_characters])
        at += n_characters


def _ends(encoder: Any, data: bytes, n: int) -> Iterator[int]:
    start = 0
    while start < len(data):
        start = _end(encoder, data, start, n)
        yield start


def _end(encoder: Any, data: bytes, start: int, n: int) -> int:
    """Return the end of the part that begins at `start`."""
    size = 64 + _BYTES_PER_TOKEN * n
    while len(ends := encoder.token_ends(window := data[start : start + size])) <= n:
        if start + size >= len(data):
            return len(data)
        size *= 2
    ends = ends[:n]
    pieces = encoder.piece_ends(window)
    ends_piece = pieces[pieces.searchsorted(ends)] == ends
    inside = (end for end in reversed(ends[~ends_piece].tolist()) if _ends_character(data, start, start + end))
    for end in itertools.chain(reversed(ends[ends_piece][-TRIES:].tolist()), itertools.islice(inside, TRIES)):
        if encoder.count(window[:end]) <= n:
            return int(start + end)
    # n bytes have at most n tokens.
    for end in range(start + n, start, -1):
        if _ends_character(data, start, end):
            return end
    end = next(end for end in range(start + 1, len(data) + 1) if _ends_character(data, start, end))
    if (n_tokens := encoder.count(data[start:end])) <= n:
        return end
    raise ConfigError(
        f"n is {n}, but the character at byte {start:,} has {n_tokens} tokens", "n=4 is enough for every character"
    )


def _ends_character(data: bytes, start: int, end: int) -> bool:
    """Return whether `end` is a character boundary of the text."""
    if end >= len(data) or data[end] & 0xC0 != 0x80:
        return True
    for first in range(max(start, end - 3), end):
        n_bytes = 1 + (data[first] >= 0xC2) + (data[first] >= 0xE0) + (data[first] >= 0xF0)
        if first + n_bytes > end:
            try:
                data[first : first + n_bytes].decode()
            except UnicodeDecodeError:
                continue
            return False
    return True
