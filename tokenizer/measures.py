"""How well a tokenizer suits a text: the figures people compare tokenizers by, exact, several tokenizers side by side.

bytes per token     compression; characters per token the same in characters
tokens per word     "fertility"; a word is what lies between white space (Unicode's White_Space)
whole words         share of words inside which no token ends
Rényi efficiency    Zouhar et al. 2023 (arXiv:2306.16842), eq. 4 and section 4.3: H_alpha / log |V|, alpha = 2.5, where |V|
                    counts the ids that text can give (special tokens and unused ids are none)
vocabulary use      share of those ids that occur; ids that never do; ids that occur seldom, which a model trained on such
                    text would hardly have met (what Land & Bartolo 2024, arXiv:2405.05417, find in models' embeddings)
parity              tokens per character and per byte of a language against those of a reference language; for parallel texts
                    the ratio of tokens is the premium of Petrov et al. 2023 (arXiv:2305.15425), section 3

Texts are read once, a few megabytes at a time; counts have 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from webtext.tokenizer.text import Text, encodable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from webtext.tokenizer.tokenizer import Tokenizer

ALPHA = 2.5  # Zouhar et al. 2023, section 4.3: the value that correlates best with translation quality
SELDOM = 10  # occurrences; below, an id looks under-trained
_BATCH_BYTES = 4 << 20


@dataclass(slots=True)
class Totals:
    """What was counted over some texts; `n_tokens` and `n_whole_words` depend on the tokenizer."""

    n_bytes: int = 0
    n_characters: int = 0
    n_words: int = 0
    n_tokens: int = 0
    n_whole_words: int = 0

    @property
    def bytes_per_token(self) -> float:
        """How many bytes of text a token stands for."""
        return _ratio(self.n_bytes, self.n_tokens)

    @property
    def characters_per_token(self) -> float:
        """How many characters of text a token stands for."""
        return _ratio(self.n_characters, self.n_tokens)

    @property
    def tokens_per_word(self) -> float:
        """All tokens, those of white space included, over all words."""
        return _ratio(self.n_tokens, self.n_words)

    @property
    def whole_word_ratio(self) -> float:
        """Share of words inside which no token ends."""
        return _ratio(self.n_whole_words, self.n_words)

    def to_json(self) -> dict[str, Any]:
        """Counts and ratios as plain values; a ratio over nothing is null."""
        ratios = ("bytes_per_token", "characters_per_token", "tokens_per_word", "whole_word_ratio")
        return asdict(self) | {name: _json(getattr(self, name)) for name in ratios}

    def add(self, other: Totals) -> None:
        """Count other texts too."""
        for name, n in asdict(other).items():
            setattr(self, name, getattr(self, name) + n)


@dataclass(slots=True)
class Score:
    """What one tokenizer made of the texts; `counts[id]` are occurrences, int64."""

    tokenizer: Tokenizer
    counts: NDArray[np.int64]
    all: Totals = field(default_factory=Totals)
    languages: dict[str, Totals] = field(default_factory=dict)

    def text_ids(self) -> NDArray[np.int64]:
        """Ids that are tokens of text: neither special nor unused."""
        import numpy as np

        tokens = self.tokenizer._vocabulary.tokens
        return np.array([id_ for id_, token in enumerate(tokens) if token], np.int64)

    @property
    def renyi_efficiency(self) -> float:
        """H_alpha of the distribution of tokens over its maximum, in [0, 1]."""
        return _ratio(renyi_entropy(self.counts), math.log(len(self.text_ids())))

    def vocabulary(self, seldom: int = SELDOM) -> dict[str, Any]:
        """Use of the vocabulary: `used_ratio`, and ids that occur never and fewer than `seldom` times, smallest first."""
        ids = self.text_ids()
        counts = self.counts[ids]
        return {
            "n_ids": len(ids),
            "used_ratio": _json(_ratio(int((counts > 0).sum()), len(ids))),
            "never": ids[counts == 0].tolist(),
            "seldom": ids[(counts > 0) & (counts < seldom)].tolist(),
        }

    def parity(self, reference: str) -> dict[str, dict[str, float | None]]:
        """Tokens per character and per byte of each language, over those of the reference language."""
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
    """The measures of each tokenizer over texts with the name of their language, or None. Threads change nothing.

    >>> from webtext.tokenizer import Tokenizer
    >>> (result,) = score([Tokenizer.train(["low low"], vocab_size=260)], [("en", "low lower")])
    >>> result.all.tokens_per_word, result.all.whole_word_ratio
    (2.0, 0.5)
    """
    import numpy as np

    scores = [Score(tokenizer, np.zeros(tokenizer.vocab_size, np.int64)) for tokenizer in tokenizers]
    lengths = [_token_bytes(tokenizer) for tokenizer in tokenizers]
    for language, batch in _batches(texts):
        data = np.frombuffer(b"".join(batch), np.uint8)
        offsets = np.cumsum([0, *map(len, batch)], dtype=np.int64)
        starts, ends = words(data, offsets)
        for found, bytes_of in zip(scores, lengths, strict=True):
            ids, _ = found.tokenizer.encode_buffer(data, offsets, threads=threads)
            found.counts += np.bincount(ids, minlength=len(found.counts))
            token_ends = np.cumsum(bytes_of[ids])
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
    """Rényi's entropy in nats: log(sum of p^alpha) / (1 - alpha); NaN of no counts.

    >>> import numpy
    >>> round(math.exp(renyi_entropy(numpy.array([7, 0, 7, 7]))), 9)
    3.0
    """
    import numpy as np

    shares = counts[counts > 0] / max(int(counts.sum()), 1)
    return float(np.log((shares**alpha).sum()) / (1 - alpha)) if len(shares) else math.nan


def words(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the words of the texts data[offsets[i]:offsets[i+1]] begin and end, in bytes.

    White space has up to three bytes in UTF-8; each is looked for at every place at once.
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
    """Texts of one language, some megabytes together."""
    waiting: dict[str | None, list[bytes]] = {}
    n_bytes = 0
    for language, text in texts:
        data = text if isinstance(text, bytes) else str(encodable(text)).encode()
        waiting.setdefault(language, []).append(data)
        n_bytes += len(data)
        if n_bytes >= _BATCH_BYTES:
            yield from waiting.items()
            waiting, n_bytes = {}, 0
    yield from waiting.items()


def _token_bytes(tokenizer: Tokenizer) -> NDArray[np.int64]:
    import numpy as np

    lengths = np.zeros(tokenizer.vocab_size, np.int64)
    tokens = tokenizer._vocabulary.tokens
    lengths[: len(tokens)] = list(map(len, tokens))
    return lengths


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _json(number: float) -> float | None:
    return None if math.isnan(number) else number
