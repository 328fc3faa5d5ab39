"""Random texts that exercise every rule of every pattern, generated from one seed."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint32]

MAX_CHARACTERS = 120

_LETTERS = "aZséßſKǅʰª中のЁж한हא𝒳"
_NUMBERS = "0٣१9Ⅷ²①〇𝟗"
_BLANKS = " \t\n\r\v\f\x85\xa0\u1680\u2003\u2028\u2029\u3000"
_OTHERS = "_.'’!/\u0301\u0903\u180e\x00\x1c\u200b\u200d\ufeff\u20dd😀\ud7ff\ue000\U0010ffff"
_ALPHABETS = (
    _LETTERS + _NUMBERS + _BLANKS * 2 + _OTHERS,
    "'''''sStTmMdDlLeEvVrRſ \n",  # contractions, complete and incomplete
    "  \n\t\r\u3000ab1!/",  # blanks before everything
    "abcXYZéЖ中\u0301ʰǅ 's",  # upper and lower case, marks
    "the of and in 0123456789 .,;:-()[]{}\n",  # plain text
    "".join(map(chr, range(32, 127))),
)
_SCALARS = np.concatenate([np.arange(0xD800), np.arange(0xE000, 0x110000)]).astype(np.uint32)


def random_texts(n_texts: int, seed: int) -> list[str]:
    """Return texts of 0 to 120 characters, mostly short: from each alphabet, any scalars, long runs of a character."""
    random = np.random.default_rng(seed)
    n_styles = len(_ALPHABETS) + 2
    texts: list[str] = []
    for style in range(n_styles):
        ends = _ends(n_texts * (style + 1) // n_styles - n_texts * style // n_styles, random)
        codes = random.choice(_codes(_ALPHABETS[style % len(_ALPHABETS)]), ends[-1])
        if style == len(_ALPHABETS):
            codes = _with_runs(codes, random)
        elif style > len(_ALPHABETS):
            codes = np.where(random.random(ends[-1]) < 0.5, codes, random.choice(_SCALARS, ends[-1]))
        text = codes.tobytes().decode("utf-32-le")
        texts += [text[start:end] for start, end in itertools.pairwise(ends)]
    return texts


def random_bytes(n_texts: int, seed: int) -> list[bytes]:
    """Return strings of 0 to 120 bytes, mostly invalid UTF-8: cut characters, wrong start bytes, overlong forms."""
    random = np.random.default_rng(seed)
    ends = _ends(n_texts, random)
    texts = random_texts(n_texts, seed)
    random.shuffle(texts)
    damaged = np.frombuffer("".join(texts).encode(), np.uint8)[: ends[-1]].copy()
    hit = random.random(len(damaged)) < 0.1
    edges = b"\x80\xbf\xc0\xc1\xc2\xdf\xe0\xed\xef\xf0\xf4\xf5\xff\xa0\x9f\x90\x8f a's\n1!"
    damaged[hit] = random.choice(np.frombuffer(edges, np.uint8), int(hit.sum()))
    data = damaged.tobytes()
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def texts_at_batch_edges() -> list[str]:
    """Return runs of each class that end at every position of two 64-byte batches, with various tails."""
    runs = ("a", " ", "1", "!", "\n", "é", "中", "😀", "\u3000", "'", "A")
    tails = ("'s", "'S", "'ll x", "'r", "'", " 's", "  x", " \n", "\u3000y", "é'", "\u0301a", "12", "\n\n b", "!\r\n/")
    return [run * n + tail for run in runs for tail in tails for n in range(132)]


def _ends(n_texts: int, random: np.random.Generator) -> list[int]:
    """Return 0 and the end of each text when all are concatenated."""
    lengths = (random.random(n_texts) ** 3 * (MAX_CHARACTERS + 1)).astype(np.int64)
    return [0, *np.cumsum(lengths).tolist()]


def _with_runs(codes: Codes, random: np.random.Generator) -> Codes:
    """Return the same number of characters, in runs of 1 to 60 equal ones."""
    first = codes[: len(codes) // 30 + 1]
    return np.resize(np.repeat(first, random.integers(1, 61, len(first))), len(codes))


def _codes(alphabet: str) -> Codes:
    return np.array([ord(character) for character in alphabet], np.uint32)
