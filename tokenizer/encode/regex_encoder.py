"""Encoding with a pattern that has no scanner: the `regex` module cuts texts and native code merges. Slower."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from webtext.tokenizer.patterns.named import cut
from webtext.tokenizer.text import Text, bytes_of_piece, readable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from webtext.tokenizer import _bpe

    Tokens = NDArray[np.uint16] | NDArray[np.uint32]
    Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RegexEncoder:
    """Encodes with any pattern, in one thread."""

    _native: _bpe.Bpe
    _pattern: str
    _unicode_version: str

    def encode_many(self, texts: Iterable[Text], wide: bool, threads: int = 1) -> tuple[Tokens, Offsets]:
        """Return the ids of many texts in one array, and the int64 offsets of the texts in it."""
        import numpy as np

        lists = []
        for text in texts:
            pieces = list(map(bytes_of_piece, cut(self._pattern, readable(text), self._unicode_version)))
            lists.append(self._native.encode_pieces(b"".join(pieces), list(itertools.accumulate(map(len, pieces)))))
        tokens = list(itertools.chain.from_iterable(lists))
        offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        return np.array(tokens, np.uint32) if wide else np.array(tokens, np.uint16), offsets
