"""Builds a gzip member whose data are stored, not compressed (RFC 1952, with blocks of type 0 of RFC 1951).

zlib's level 0 does the same at 7 times the CPU: 115 µs for 36 KB, where this takes 15 µs (with zlib's checksum).
Large data are not copied.
"""

from __future__ import annotations

import struct

try:
    from isal.isal_zlib import crc32  # takes a tenth of zlib's time, but not every platform has a wheel
except ImportError:
    from zlib import crc32

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no flags, no time, unknown system
_BLOCK_BYTES = 0xFFFF  # the largest stored block
_SMALL_BYTES = 4096  # up to this size, copying costs less than passing on a separate piece
_BLOCK_HEAD = struct.Struct("<BHH")  # whether it is the last block, its length, the length's complement
_LAST_BLOCK = _BLOCK_HEAD.pack(1, 0, 0xFFFF)
_TRAILER = struct.Struct("<II")


def stored_member(*data: bytes) -> list[bytes | memoryview]:
    """Return the pieces of one gzip member that contains `data`, concatenated.

    >>> import gzip
    >>> gzip.decompress(b"".join(stored_member(b"hello ", b"world")))
    b'hello world'
    """
    pieces: list[bytes | memoryview] = []
    small = [_HEADER]  # to be joined into one piece
    checksum = size = 0
    for each in data:
        for start in range(0, len(each), _BLOCK_BYTES):
            block = each if len(each) <= _BLOCK_BYTES else memoryview(each)[start : start + _BLOCK_BYTES]
            small.append(_BLOCK_HEAD.pack(0, len(block), len(block) ^ 0xFFFF))
            if len(block) <= _SMALL_BYTES:
                small.append(bytes(block))
            else:
                pieces += b"".join(small), block
                small = []
        checksum = crc32(each, checksum)
        size += len(each)
    small += _LAST_BLOCK, _TRAILER.pack(checksum, size & 0xFFFFFFFF)
    pieces.append(b"".join(small))
    return pieces
