"""Decoding token by token without ever showing half a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence


class DecodeStream:
    r"""Turns ids into text as they come; bytes of an unfinished character wait for the next ids.

    What `push` and `finish` return, joined, is what `decode` gives for all ids at once.
    """

    def __init__(self, decode_bytes: Callable[[Sequence[int]], bytes], errors: str = "replace") -> None:
        self._decode_bytes = decode_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, ids: int | Sequence[int]) -> str:
        """Add one id or several; returns the characters they complete."""
        return self._decoder.decode(self._decode_bytes([ids] if isinstance(ids, int) else ids))

    def finish(self) -> str:
        """The end of the text: what was left of a character, as U+FFFD or by the chosen error handler."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
