"""Encoding with a pattern that has no scanner: the `regex` module cuts the text and native code merges. Slower."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from webtext.tokenizer.patterns.named import cut
from webtext.tokenizer.text import AnyText, Text, as_text, as_texts, bytes_of_piece, readable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from webtext.tokenizer import _bpe

    Tokens = NDArray[np.uint16] | NDArray[np.uint32]
    Offsets = NDArray[np.int64]


class RegexEncoder:
    """The encoding methods of `_bpe.Bpe` for any pattern; always uses one thread, whatever `threads` is."""

    def __init__(self, native: _bpe.Bpe, pattern: str, unicode_version: str) -> None:
        self._native = native
        self._pattern = pattern
        self._unicode_version = unicode_version

    def cut(self, text: Text) -> tuple[bytes, list[int]]:
        """Return the bytes of a text, and the end of each of its pieces."""
        pieces = [bytes_of_piece(piece) for piece in cut(self._pattern, readable(text), self._unicode_version)]
        return b"".join(pieces), list(itertools.accumulate(map(len, pieces)))

    def encode(self, text: AnyText) -> list[int]:
        """Return the ids of a text."""
        return self._native.encode_pieces(*self.cut(as_text(text)))

    def count(self, text: AnyText) -> int:
        """Return the number of ids of a text."""
        return len(self.encode(text))

    def encode_array(self, text: AnyText, wide: bool) -> Tokens:
        """Return the ids of a text as an array: uint32 if wide, else uint16."""
        return _array(self.encode(text), wide)

    def encode_lists(self, texts: Iterable[AnyText], threads: int) -> list[list[int]]:
        """Return a list of ids for each text."""
        return [self.encode(text) for text in as_texts(texts)]

    def encode_many(self, texts: Iterable[AnyText], wide: bool, threads: int) -> tuple[Tokens, Offsets]:
        """Return the ids of many texts in one array, and the int64 offsets of the texts in it."""
        import numpy as np

        lists = self.encode_lists(texts, threads)
        tokens = list(itertools.chain.from_iterable(lists))
        return _array(tokens, wide), np.cumsum([0, *map(len, lists)], dtype=np.int64)

    def encode_slices(self, data: Any, offsets: Offsets, wide: bool, threads: int) -> tuple[Tokens, Offsets]:
        """Encode the texts data[offsets[i]:offsets[i + 1]] as `encode_many` does."""
        texts = [data[start:end].tobytes() for start, end in itertools.pairwise(offsets.tolist())]
        return self.encode_many(texts, wide, threads)

    def encode_into(self, data: Any, offsets: Offsets, out: Tokens, threads: int) -> Offsets:
        """Encode into `out` and return the offsets. If `out` is shorter than the last offset, nothing is written."""
        tokens, starts = self.encode_slices(data, offsets, out.dtype.itemsize == 4, threads)
        if len(tokens) <= len(out):
            out[: len(tokens)] = tokens
        return starts


def _array(tokens: Sequence[int], wide: bool) -> Tokens:
    import numpy as np

    return np.array(tokens, np.uint32) if wide else np.array(tokens, np.uint16)
