"""Offsets of tokens in their text, in bytes or in characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from webtext.base.errors import ConfigError
from webtext.tokenizer.text import SURROGATE_PAIR, Text, encodable, utf8

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Unit = Literal["characters", "bytes"]


def token_offsets(text: Text, n_bytes: NDArray[Any], unit: Unit) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return start and end of each token of `text` (two int64 arrays), given `n_bytes` of each token.

    Takes linear time and creates no Python object per token. Tokens that share a character have the same offsets for
    it, as in HF tokenizers. Characters of a str are counted as in `text[start:end]`, characters of bytes as in
    `text.decode("utf-8", "surrogateescape")`, so an invalid byte counts as one. Bytes of a str are counted in its
    UTF-8.
    """
    import numpy as np

    if unit not in ("characters", "bytes"):
        raise ConfigError(f"unit is {unit!r}", "expected 'characters' or 'bytes'")
    ends = np.cumsum(n_bytes, dtype=np.int64)
    starts = ends - n_bytes
    if unit == "bytes" or text.isascii():
        return starts, ends
    well = encodable(text)
    begun = np.cumsum(_begins_character(utf8(text)), dtype=np.int64)
    starts, ends = begun[starts] - 1, begun[ends - 1]
    if isinstance(text, str) and isinstance(well, str) and len(well) != len(text):
        pairs = np.array([match.start() for match in SURROGATE_PAIR.finditer(text)]) - np.arange(len(text) - len(well))
        starts, ends = (places + np.searchsorted(pairs, places) for places in (starts, ends))
    return starts, ends


def _begins_character(data: bytes) -> NDArray[np.bool_]:
    """Return for each byte whether a character begins there."""
    import numpy as np

    try:
        data.decode()
    except UnicodeDecodeError:
        characters = data.decode("utf-8", "surrogateescape")
        codes = np.frombuffer(characters.encode("utf-32-le", "surrogatepass"), np.uint32)
        n_bytes = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
        n_bytes[(codes >= 0xDC80) & (codes <= 0xDCFF)] = 1  # an invalid byte
        begins = np.zeros(len(data), np.bool_)
        begins[np.cumsum(n_bytes) - n_bytes] = True
        return begins
    return np.asarray((np.frombuffer(data, np.uint8) & 0xC0) != 0x80)
