"""BPE-dropout when encoding: the same text gives other tokens with every seed, so that a model sees many spellings.

Provilkov et al. 2020 (arXiv:1910.13267, section 4, algorithm 1): in every step each possible merge is dropped with
probability p, and the first of the rest is done. p = 0 is plain encoding, p = 1 gives bytes; decoding gives the text
back in any case. The random numbers of a text come from the seed and the text's place in its batch alone, so any number
of threads gives the same ids. No piece is remembered, for the same piece is to fall apart in other ways next time; and a
vocabulary that takes whole pieces as they are (`whole_pieces`) merges here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

from webtext.base.errors import ConfigError
from webtext.tokenizer import _bpe
from webtext.tokenizer.arguments import checked_int, shown
from webtext.tokenizer.text import Text, encodable

Cut = Callable[[Text], tuple[bytes, list[int]]]
"""A text's bytes and where each of its pieces ends."""


def checked(dropout: float, seed: int) -> bool:
    """Whether anything is to be dropped; ConfigError for a probability or a seed out of range."""
    if not isinstance(dropout, SupportsFloat) or not 0 <= float(dropout) <= 1:
        raise ConfigError(f"dropout is {shown(dropout)}", "expected a probability, 0 to 1")
    checked_int("seed", seed, 0, 2**64 - 1, "0 to 2**64 - 1")
    return dropout > 0


def encode(
    native: _bpe.Bpe,
    texts: Sequence[Text],
    cut: Cut | None,
    dropout: float,
    seed: int,
    *,
    indices: Sequence[int] | None = None,
    wide: bool = True,
    threads: int = 1,
) -> tuple[Any, Any]:
    """Tokens of all texts in one array (uint32 if wide, else uint16) and the int64 offset where each begins.

    Text i takes the random numbers of index `indices[i]`, by default i. `cut` is for patterns that the native scanner
    does not know.
    """
    order = range(len(texts)) if indices is None else indices
    if cut is None:
        data: Sequence[Text] = [encodable(text) for text in texts]
        return _bpe.encode_with_dropout(native, data, order, None, dropout, seed, wide, threads)
    pieces = [cut(text) for text in texts]
    ends = [ends for _, ends in pieces]
    return _bpe.encode_with_dropout(native, [data for data, _ in pieces], order, ends, dropout, seed, wide, threads)
