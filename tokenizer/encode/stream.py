"""Streaming: encoding text that arrives in chunks and decoding ids that arrive one by one. Returned output is final."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from webtext.base.errors import ConfigError
from webtext.tokenizer.encode.special import Finder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LOOK_BACK = 8  # bytes before new text that a cut in it can depend on: a blank between two characters


class EncodeStream:
    """Encodes bytes in chunks; the joined results of `push` and `finish` equal `encode` of the complete text.

    Chunks may be cut anywhere, even inside a character. Returned ids are final. Bytes are held back until a position
    where every pattern cuts, such as a letter followed by a blank. With a regular expression as pattern, NFC or
    add_prefix_space, no such position is known, so all text between special tokens waits for `finish`.
    """

    def __init__(
        self,
        encode: Callable[[bytes], NDArray[Any]],
        last_cut: Callable[[bytearray, int, int, int], int] | None,
        specials: Finder | None = None,
    ) -> None:
        self._encode = encode
        self._last_cut = last_cut
        self._specials = specials if specials is not None and specials.longest else None
        self._buffer = bytearray()
        self._seen = 0  # the buffer has no cut before this position, and no special token begins there

    def push(self, text: bytes) -> NDArray[Any]:
        """Add text; return the ids that no later text can change."""
        self._buffer += text
        cut = self._final()
        final = bytes(memoryview(self._buffer)[:cut])
        del self._buffer[:cut]
        self._seen -= cut
        return self._encode(final)

    def finish(self) -> NDArray[Any]:
        """Return the ids of the text that was held back, and reset the stream."""
        rest, self._buffer, self._seen = bytes(self._buffer), bytearray(), 0
        return self._encode(rest)

    def _final(self) -> int:
        """Return how many bytes of the buffer can be encoded now, because later text can't change their ids."""
        begin, end = 0, len(self._buffer)
        if self._specials and self._specials.in_bytes:
            # A position is decided once the longest name would fit there. Names are found from left to right.
            decided = max(end - self._specials.longest + 1, 0)
            for match in self._specials.in_bytes.finditer(self._buffer, self._seen):
                if match.start() >= decided:
                    break
                begin = match.end()
            end = max(begin, decided)
        cut = begin
        if self._last_cut and end > begin:
            cut = self._last_cut(self._buffer, begin, max(begin, self._seen - _LOOK_BACK), end)
        self._seen = end
        return cut


class DecodeStream:
    r"""Decodes ids as they arrive; the bytes of an incomplete character wait for the next ids.

    The joined results of `push` and `finish` equal `decode` of all ids.
    """

    def __init__(self, decode_bytes: Callable[[Any], bytes], errors: str = "replace") -> None:
        try:
            codecs.lookup_error(errors)
        except (LookupError, TypeError):
            raise unknown_handler(errors) from None
        self._decode_bytes = decode_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, ids: int | Sequence[int] | NDArray[np.integer[Any]]) -> str:
        """Add one id, or several in a list or an array; return the characters that they complete."""
        return self._decoder.decode(self._decode_bytes(ids if hasattr(ids, "__len__") else [ids]))

    def finish(self) -> str:
        """Return the end of the text: an incomplete character as U+FFFD, or as the chosen error handler replaces it."""
        try:
            return self._decoder.decode(b"", final=True)
        finally:
            self._decoder.reset()


def unknown_handler(errors: str) -> ConfigError:
    """Return the error for an error handler that `bytes.decode` doesn't know."""
    return ConfigError(f"errors is {errors!r}", "expected 'replace', 'ignore' or 'strict'")
