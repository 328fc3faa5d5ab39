"""Measures for comparing tokenizers on the same texts, all computed exactly.

bytes per token     compression; also in characters per token
tokens per word     "fertility"; words are separated by white space (Unicode's White_Space)
whole words         share of words inside which no token ends
Rényi efficiency    Zouhar et al. 2023 (arXiv:2306.16842), eq. 4 and section 4.3: H_alpha / log |V|, alpha = 2.5, where
                    |V| is the number of ids that text can produce (without special tokens and unused ids)
vocabulary use      share of those ids that occur; ids that never occur; ids that occur seldom, which a model trained
                    on such text hardly sees (Land & Bartolo 2024, arXiv:2405.05417, find them in models' embeddings)
parity              tokens per character and per byte of a language, divided by those of a reference language; for
                    parallel texts the ratio of tokens is the premium of Petrov et al. 2023 (arXiv:2305.15425), sec. 3

Texts are read once, a few megabytes at a time; counts have 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from webtext.base.errors import InputError
from webtext.tokenizer.text import Text, utf8

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from webtext.tokenizer.tokenizer import Tokenizer

ALPHA = 2.5  # Zouhar et al. 2023, section 4.3: the value that correlates best with translation quality
SELDOM = 10  # occurrences; an id with fewer looks under-trained
_BATCH_BYTES = 4 << 20


@dataclass(slots=True)
class Totals:
    """Counts over some texts; `n_tokens` and `n_whole_words` depend on the tokenizer."""

    n_bytes: int = 0
    n_characters: int = 0
    n_words: int = 0
    n_tokens: int = 0
    n_whole_words: int = 0

    @property
    def bytes_per_token(self) -> float:
        """Average number of bytes per token."""
        return _ratio(self.n_bytes, self.n_tokens)

    @property
    def characters_per_token(self) -> float:
        """Average number of characters per token."""
        return _ratio(self.n_characters, self.n_tokens)

    @property
    def tokens_per_word(self) -> float:
        """Number of tokens, including those of white space, divided by the number of words."""
        return _ratio(self.n_tokens, self.n_words)

    @property
    def whole_word_ratio(self) -> float:
        """Share of words inside which no token ends."""
        return _ratio(self.n_whole_words, self.n_words)

    def to_json(self) -> dict[str, Any]:
        """Return counts and ratios as plain values; a ratio with a zero denominator is null."""
        ratios = ("bytes_per_token", "characters_per_token", "tokens_per_word", "whole_word_ratio")
        return asdict(self) | {name: _json(getattr(self, name)) for name in ratios}

    def add(self, other: Totals) -> None:
        """Add the counts of other texts."""
        for name, n in asdict(other).items():
            setattr(self, name, getattr(self, name) + n)


@dataclass(slots=True)
class Score:
    """One tokenizer's results on the texts; `counts[id]` is the number of occurrences of an id (int64)."""

    tokenizer: Tokenizer
    counts: NDArray[np.int64]
    all: Totals = field(default_factory=Totals)
    languages: dict[str, Totals] = field(default_factory=dict)

    def text_ids(self) -> NDArray[np.int64]:
        """Return the ids that text can produce: neither special nor unused."""
        import numpy as np

        tokens = self.tokenizer._vocabulary.tokens
        return np.array([id_ for id_, token in enumerate(tokens) if token], np.int64)

    @property
    def renyi_efficiency(self) -> float:
        """H_alpha of the token distribution, divided by its maximum; in [0, 1]."""
        return _ratio(renyi_entropy(self.counts), math.log(len(self.text_ids())))

    def vocabulary(self, seldom: int = SELDOM) -> dict[str, Any]:
        """Return `used_ratio`, and the ids that occur never, or fewer than `seldom` times, in ascending order."""
        ids = self.text_ids()
        counts = self.counts[ids]
        return {
            "n_ids": len(ids),
            "used_ratio": _json(_ratio(int((counts > 0).sum()), len(ids))),
            "never": ids[counts == 0].tolist(),
            "seldom": ids[(counts > 0) & (counts < seldom)].tolist(),
        }

    def parity(self, reference: str) -> dict[str, dict[str, float | None]]:
        """Return each language's tokens per character and per byte, divided by the reference language's."""
        base = self.languages[reference]
        return {
            language: {
                "per_character": _json(_ratio(base.characters_per_token, totals.characters_per_token)),
                "per_byte": _json(_ratio(base.bytes_per_token, totals.bytes_per_token)),
            }
            for language, totals in self.languages.items()
        }


def score(
    tokenizers: Sequence[Tokenizer], texts: Iterable[tuple[str | None, Text]], threads: int | None = None
) -> list[Score]:
    """Measure each tokenizer on pairs (language or None, text). The result doesn't depend on the number of threads.

    >>> from webtext.tokenizer import Tokenizer
    >>> (result,) = score([Tokenizer.train(["low low"], vocab_size=260)], [("en", "low lower")])
    >>> result.all.tokens_per_word, result.all.whole_word_ratio
    (2.0, 0.5)
    """
    import numpy as np

    scores = [Score(tokenizer, np.zeros(tokenizer.vocab_size, np.int64)) for tokenizer in tokenizers]
    lengths = [tokenizer.token_sizes for tokenizer in tokenizers]
    for language, batch in _batches(texts):
        data = np.frombuffer(b"".join(batch), np.uint8)
        offsets = np.cumsum([0, *map(len, batch)], dtype=np.int64)
        starts, ends = words(data, offsets)
        for found, bytes_of in zip(scores, lengths, strict=True):
            ids, _ = found.tokenizer.encode_buffer(data, offsets, threads=threads)
            found.counts += np.bincount(ids, minlength=len(found.counts))
            token_ends = np.cumsum(bytes_of[ids])
            if int(bytes_of[ids].sum()) != len(data):
                changes = found.tokenizer._vocabulary.preparation
                raise InputError(f"a tokenizer changes these texts by {changes}", "score it on texts that it keeps")
            totals = Totals(
                n_bytes=len(data),
                n_characters=int(np.count_nonzero((data & 0xC0) != 0x80)),
                n_words=len(starts),
                n_tokens=len(ids),
                n_whole_words=int((token_ends[np.searchsorted(token_ends, starts, "right")] >= ends).sum()),
            )
            found.all.add(totals)
            if language is not None:
                found.languages.setdefault(language, Totals()).add(totals)
    return scores


def renyi_entropy(counts: NDArray[np.int64], alpha: float = ALPHA) -> float:
    """Return Rényi's entropy in nats: log(sum of p^alpha) / (1 - alpha); NaN if all counts are 0.

    >>> import numpy
    >>> round(math.exp(renyi_entropy(numpy.array([7, 0, 7, 7]))), 9)
    3.0
    """
    import numpy as np

    shares = counts[counts > 0] / max(int(counts.sum()), 1)
    return float(np.log((shares**alpha).sum()) / (1 - alpha)) if len(shares) else math.nan


def words(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the byte offsets where the words of the texts data[offsets[i]:offsets[i+1]] begin and end.

    A white-space character has up to three bytes in UTF-8; each byte is compared at all positions at once.
    """
    import numpy as np

    second, third = np.zeros_like(data), np.zeros_like(data)
    second[:-1], third[:-2] = data[1:], data[2:]
    two = (data == 0xC2) & ((second == 0x85) | (second == 0xA0))
    of_2000 = (third <= 0x8A) | (third == 0xA8) | (third == 0xA9) | (third == 0xAF)
    three = (data == 0xE2) & (((second == 0x80) & (third >= 0x80) & of_2000) | ((second == 0x81) & (third == 0x9F)))
    three |= ((data == 0xE1) & (second == 0x9A) & (third == 0x80)) | (
        (data == 0xE3) & (second == 0x80) & (third == 0x80)
    )
    blank = (data == 0x20) | ((data >= 0x09) & (data <= 0x0D)) | two | three
    blank[1:] |= (two | three)[:-1]
    blank[2:] |= three[:-2]
    bounds = np.zeros(len(data) + 1, bool)
    bounds[offsets] = True
    before = np.concatenate(([True], blank))
    after = np.concatenate((blank, [True]))
    starts = np.flatnonzero(~after & (before | bounds))
    ends = np.flatnonzero(~before & (after | bounds))
    return starts, ends


def _batches(texts: Iterable[tuple[str | None, Text]]) -> Iterator[tuple[str | None, list[bytes]]]:
    """Group texts by language into batches; all batches yielded together have a few megabytes."""
    waiting: dict[str | None, list[bytes]] = {}
    n_bytes = 0
    for language, text in texts:
        data = utf8(text)
        waiting.setdefault(language, []).append(data)
        n_bytes += len(data)
        if n_bytes >= _BATCH_BYTES:
            yield from waiting.items()
            waiting, n_bytes = {}, 0
    yield from waiting.items()


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _json(number: float) -> float | None:
    return None if math.isnan(number) else number
