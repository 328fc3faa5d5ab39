"""Texts of at most n tokens each that joined are the text again.

Encoding is not prefix-closed: what a text's beginning encodes to may change with what follows, so the first n tokens of a
text are no proof that the text up to there has n tokens when it stands alone. Every cut is therefore encoded again before
it counts. Cuts are looked for at the ends of pieces first, then at tokens inside a long piece that end a character.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, AnyStr, Protocol, cast

from webtext.base.errors import ConfigError
from webtext.tokenizer.text import SURROGATE_PAIR, as_text, encodable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TRIES = 8
"""Ends that are encoded again, of each kind; in English text the first is right except in one chunk of thousands."""

_BYTES_PER_TOKEN = 6  # of the window that is looked at for n tokens; it doubles until it has them
_CHARACTER = re.compile(f"{SURROGATE_PAIR.pattern}|.", re.DOTALL)


class Encoder(Protocol):
    """What splitting asks of a tokenizer."""

    def count(self, text: bytes) -> int:
        """How many tokens a text has."""

    def token_ends(self, text: bytes) -> NDArray[np.int64]:
        """The byte after each token of a text."""

    def piece_ends(self, text: bytes) -> NDArray[np.int64]:
        """The byte after each piece of a text."""


def split(encoder: Encoder, text: AnyStr, n: int) -> Iterator[AnyStr]:
    """Consecutive parts of at most `n` tokens each; none for an empty text.

    ConfigError when a character alone has more than `n` tokens.
    """
    if not hasattr(n, "__index__") or n < 1:
        raise ConfigError(f"n is {n!r}", "expected 1 token or more")
    given = as_text(text)
    well = encodable(given)
    data = well if isinstance(well, bytes) else well.encode()
    parts = (data[start:end] for start, end in itertools.pairwise(itertools.chain([0], _ends(encoder, data, n))))
    return cast("Iterator[AnyStr]", parts if isinstance(given, bytes) else _slices(given, parts))


def _slices(text: str, parts: Iterable[bytes]) -> Iterator[str]:
    """The text itself cut as its UTF-8 was, which holds U+FFFD for a lone surrogate and one character for a pair."""
    characters = _CHARACTER.findall(text) if SURROGATE_PAIR.search(text) else text
    at = 0
    for part in parts:
        n_characters = len(part.decode())
        yield "".join(characters[at : at + n_characters])
        at += n_characters


def _ends(encoder: Encoder, data: bytes, n: int) -> Iterator[int]:
    start = 0
    while start < len(data):
        start = _end(encoder, data, start, n)
        yield start


def _end(encoder: Encoder, data: bytes, start: int, n: int) -> int:
    """Where the part that begins at `start` ends."""
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
    # Bytes have at most as many tokens as there are of them.
    for end in range(start + n, start, -1):
        if _ends_character(data, start, end):
            return end
    end = next(end for end in range(start + 1, len(data) + 1) if _ends_character(data, start, end))
    if (n_tokens := encoder.count(data[start:end])) <= n:
        return end
    raise ConfigError(
        f"n is {n}, but the character at byte {start:,} has {n_tokens} tokens", "give room for every character: n=4"
    )


def _ends_character(data: bytes, start: int, end: int) -> bool:
    """Whether no character of the text stands on both sides of byte `end`."""
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
