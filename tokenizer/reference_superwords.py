"""Superwords in a page of Python: the readable twin of `superwords.py` and native/superwords.cpp.

All runs are counted as they are, in one pass; what the fast way leaves out of them can be in no superword. Encoding needs
no twin of its own: it is `reference.encode` with the pattern "gpt2-superwords".
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator, Sequence

from webtext.tokenizer import reference
from webtext.tokenizer.patterns import GPT2, SUPERWORDS, cut
from webtext.tokenizer.text import Text, bytes_of_piece, readable
from webtext.tokenizer.training import tokens_of
from webtext.tokenizer.vocabulary import Vocabulary

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def train(texts: Sequence[Text], n_tokens: int, superwords: int, min_frequency: int = 1) -> Vocabulary:
    """Ordinary merges until there are n_tokens - superwords tokens, then merges of runs."""
    merges = reference.train_merges(texts, n_tokens - superwords, min_frequency=min_frequency)
    base = Vocabulary(tokens=tokens_of(merges), merges=merges)
    encode = functools.cache(functools.partial(reference.encode, base))
    counts = collections.Counter(run for text in texts for run in runs(encode, text))
    words = [list(run) for run in counts]
    merges += reference.merge_words(
        words, list(counts.values()), list(base.tokens), len(base.tokens) + superwords, min_frequency
    )
    return Vocabulary(tokens=tokens_of(merges), merges=merges, pattern=SUPERWORDS)


def runs(encode: Callable[[bytes], list[int]], text: Text) -> Iterator[tuple[int, ...]]:
    """Words in a row that are one token each, two or more. A word without a blank before it begins a run."""
    run: list[int] = []
    for piece in cut(GPT2, readable(text)):
        ids = encode(bytes_of_piece(piece)) if is_word(piece) else []
        if len(ids) != 1 or not piece.startswith((" ", "'")):
            yield from [tuple(run)] if len(run) > 1 else []
            run = []
        if len(ids) == 1:
            run += ids
    yield from [tuple(run)] if len(run) > 1 else []


def is_word(piece: str) -> bool:
    """Whether a piece is letters, with at most one blank before them, or a contraction."""
    letters = piece.removeprefix(" ")
    return piece in CONTRACTIONS or (letters != "" and len(list(cut(GPT2, "a" + letters))) == 1)
