"""bzip2 by blocks: each can be decoded alone, once it is found.

A stream is `BZh`, a level, blocks, an end mark and a checksum over the blocks' checksums. Nothing tells where a block
begins but its 48-bit mark, at any bit; so both marks are searched for at all eight shifts, and each block is moved to a
byte boundary and given a stream of its own. What looks like a mark may be data, once in 2^48 bits: then a block does not
decode, and the plain decoder must read the file (crawl/streams/decoders.py).
"""

from __future__ import annotations

import bz2
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO

READ_BYTES = 1 << 20
MAX_BLOCK_BYTES = 2 << 20  # compressed; an encoder's worst case is 900,000 bytes and one hundredth
BLOCK_MARK, END_MARK = 0x314159265359, 0x177245385090
MARK_BITS = 48
_MARK_BYTES = MARK_BITS // 8


def bzip2_blocks(file: BinaryIO) -> Iterator[Callable[[], bytes]]:
    """For each block from where `file` stands a function that gives its bytes (at most 46 MB).

    Raises ValueError where blocks are not as they should be; so do the functions, or OSError. When none of them has, the
    file was whole and all its checksums were right.
    """
    bits = _Bits(file)
    while True:
        header = bits.bytes_at(0, 4)
        if not header:
            return
        if len(header) < 4 or header[:3] != b"BZh" or not b"1"[0] <= header[3] <= b"9"[0]:
            raise ValueError("no stream begins here")
        checksum, at = 0, 32
        if bits.next_mark(at) != at:
            raise ValueError("no block begins here")
        while bits.number(at, MARK_BITS) == BLOCK_MARK:
            end = bits.next_mark(at + MARK_BITS)
            block_checksum = bits.number(at + MARK_BITS, 32)
            yield partial(_decode, header, bits.number(at, end - at), end - at, block_checksum)
            checksum = ((checksum << 1 | checksum >> 31) & 0xFFFFFFFF) ^ block_checksum
            at = bits.forget(end)
        if bits.number(at + MARK_BITS, 32) != checksum:
            raise ValueError("the blocks are not those that the checksum was made of")
        bits.forget(-(-(at + MARK_BITS + 32) // 8) * 8)


def _decode(header: bytes, block: int, n_bits: int, checksum: int) -> bytes:
    stream = (block << MARK_BITS | END_MARK) << 32 | checksum
    n_bits += MARK_BITS + 32
    padding = -n_bits % 8
    decoder = bz2.BZ2Decompressor()
    data = decoder.decompress(header + (stream << padding).to_bytes((n_bits + padding) // 8, "big"))
    if not decoder.eof or decoder.unused_data:
        raise ValueError("the block does not end where it should")
    return data


class _Bits:
    """The file's bits, of which the first was not forgotten: positions count from there, or a little before."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._data = b""
        self._marks: list[int] = []
        self._searched = 0  # bytes of _data

    def bytes_at(self, start: int, n: int) -> bytes:
        """n bytes, fewer at the end of the file."""
        while len(self._data) < start + n and self._read():
            pass
        return self._data[start : start + n]

    def number(self, at: int, n_bits: int) -> int:
        """The bits as a number. ValueError when the file ends before."""
        first, last = at // 8, -(-(at + n_bits) // 8)
        data = self.bytes_at(first, last - first)
        if len(data) < last - first:
            raise ValueError("the file ends here")
        return int.from_bytes(data, "big") >> (last * 8 - at - n_bits) & ((1 << n_bits) - 1)

    def next_mark(self, at: int) -> int:
        """Where the next mark at or after bit `at` begins. ValueError when there is none where one must be."""
        while True:
            for mark in self._marks:
                if mark >= at:
                    return mark
            if len(self._data) > MAX_BLOCK_BYTES + READ_BYTES or not self._read():
                raise ValueError("no block ends here")

    def forget(self, at: int) -> int:
        """Let go of what lies before bit `at`; where that bit is now."""
        n = at // 8
        self._data = self._data[n:]
        self._searched = max(0, self._searched - n)
        self._marks = [mark - 8 * n for mark in self._marks if mark >= at]
        return at - 8 * n

    def _read(self) -> bool:
        more = self._file.read(READ_BYTES)
        self._data += more
        found = []
        for shift, pattern in _PATTERNS:
            at = self._data.find(pattern, self._searched)
            while at >= 0:
                mark = at * 8 - shift
                if mark >= 0 and self._is_mark(mark):
                    found.append(mark)
                at = self._data.find(pattern, at + 1)
        known = set(self._marks)
        self._marks += sorted(mark for mark in found if mark not in known)
        self._searched = max(0, len(self._data) - _MARK_BYTES - 1)
        return bool(more)

    def _is_mark(self, at: int) -> bool:
        first = at // 8
        data = self._data[first : first + _MARK_BYTES + 1]
        bits = int.from_bytes(data, "big") >> max(0, len(data) * 8 - at % 8 - MARK_BITS)
        return len(data) * 8 >= at % 8 + MARK_BITS and bits & ((1 << MARK_BITS) - 1) in (BLOCK_MARK, END_MARK)


_PATTERNS = [
    # The whole bytes of a mark whose first bit is `shift` bits before a byte boundary.
    (shift, (mark >> (8 - shift) % 8 & ((1 << whole * 8) - 1)).to_bytes(whole, "big"))
    for mark in (BLOCK_MARK, END_MARK)
    for shift in range(8)
    for whole in [(MARK_BITS - shift) // 8]
]
