"""Reads a fuzzer's bytes as decisions, so that a changed byte changes one of them."""

from __future__ import annotations


class Choices:
    """Decisions from the start of `data` on; after its end, every number is 0 and every string is empty."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def below(self, n: int) -> int:
        """Return a number from 0 to n-1, of one byte, or of two or more if n needs them."""
        return int.from_bytes(self.take(-(-(n - 1).bit_length() // 8)), "big") % n

    def take(self, n_bytes: int) -> bytes:
        taken = self._data[self._at : self._at + n_bytes]
        self._at += n_bytes
        return taken

    def rest(self) -> bytes:
        return self.take(len(self._data))
