"""xz by blocks: a stream's index, at its end, tells where each block lies and how much it holds.

Format: tukaani.org/xz/xz-file-format.txt. Streams are walked from the end of the file to its beginning; each block then
gets a stream of its own, so that liblzma checks it as ever. Files of one block (plain `xz` makes them) gain nothing here.
"""

from __future__ import annotations

import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, NamedTuple

MAX_BLOCK_BYTES = 64 << 20  # decompressed; those of `xz -9 -T2` are three times as large and go the plain way
MAX_COMPRESSED_BYTES = MAX_BLOCK_BYTES + (1 << 20)
MAX_INDEX_BYTES = 1 << 20
HEADER_BYTES = FOOTER_BYTES = 12
_HEADER_MAGIC, _FOOTER_MAGIC = b"\xfd7zXZ\x00", b"YZ"


class _Place(NamedTuple):
    """Where a block lies: the sizes are those of the index."""

    offset: int
    unpadded_size: int
    size: int
    flags: bytes  # of its stream


def xz_blocks(file: BinaryIO) -> Iterator[Callable[[], bytes]]:
    """For each block of a seekable file a function that gives its bytes.

    Raises ValueError when there are fewer than two, or blocks are large or not as they should be; so do the functions, or
    LZMAError. When none of them has, the file was whole and all its checksums were right.
    """
    places = _places(file)
    if len(places) < 2 or any(_is_large(place) for place in places):
        raise ValueError("one block, or a large one")
    for place in places:
        yield partial(_decode, place, file)


def _is_large(place: _Place) -> bool:
    return place.size > MAX_BLOCK_BYTES or place.unpadded_size > MAX_COMPRESSED_BYTES


def _decode(place: _Place, file: BinaryIO) -> bytes:
    block = _read(file, place.offset, _to_four(place.unpadded_size))
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    index = b"\x00\x01" + _packed(place.unpadded_size) + _packed(place.size)
    index += bytes(-len(index) % 4)
    index += _crc(index)
    backward = (len(index) // 4 - 1).to_bytes(4, "little") + place.flags
    header = _HEADER_MAGIC + place.flags + _crc(place.flags)
    stream = header + block + index + _crc(backward) + backward + _FOOTER_MAGIC
    data = decoder.decompress(stream, place.size + 1)
    if not decoder.eof:
        data += decoder.decompress(b"", 1)
    if len(data) != place.size or not decoder.eof:
        raise ValueError("the block holds another number of bytes than its index says")
    return data


def _places(file: BinaryIO) -> list[_Place]:
    """Of all blocks of all streams, in order."""
    places: list[_Place] = []
    end, n_index_bytes = file.seek(0, os.SEEK_END), 0
    while end:
        while end and _read(file, end - 4, 4) == bytes(4):  # padding between streams
            end -= 4
        footer = _read(file, end - FOOTER_BYTES, FOOTER_BYTES)
        index_size = (int.from_bytes(footer[4:8], "little") + 1) * 4
        n_index_bytes += index_size
        if footer[10:] != _FOOTER_MAGIC or _crc(footer[4:10]) != footer[:4] or n_index_bytes > MAX_INDEX_BYTES:
            raise ValueError("no stream ends here")
        index_at = end - FOOTER_BYTES - index_size
        sizes = _sizes(_read(file, index_at, index_size))
        start = at = index_at - sum(_to_four(unpadded) for unpadded, _ in sizes)
        of_stream = []
        for unpadded, size in sizes:
            of_stream.append(_Place(at, unpadded, size, footer[8:10]))
            at += _to_four(unpadded)
        end = start - HEADER_BYTES
        if _read(file, end, HEADER_BYTES) != _HEADER_MAGIC + footer[8:10] + _crc(footer[8:10]):
            raise ValueError("no stream begins here")
        places[:0] = of_stream
    return places


def _sizes(index: bytes) -> list[tuple[int, int]]:
    """(unpadded size, decompressed size) of each block."""
    if index[0] != 0 or _crc(index[:-4]) != index[-4:]:
        raise ValueError("no index")
    n_records, at = _unpacked(index, 1)
    sizes: list[tuple[int, int]] = []
    while len(sizes) < n_records:
        unpadded, at = _unpacked(index, at)
        size, at = _unpacked(index, at)
        sizes.append((unpadded, size))
    return sizes


def _packed(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last byte have the highest bit."""
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def _unpacked(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at byte `at`, and where it ends."""
    number = 0
    for shift in range(0, 63, 7):
        if at + shift // 7 >= len(data):
            break
        byte = data[at + shift // 7]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + shift // 7 + 1
    raise ValueError("no number")


def _read(file: BinaryIO, at: int, n: int) -> bytes:
    if at >= 0:
        file.seek(at)
    data = file.read(n) if at >= 0 else b""
    if len(data) < n:
        raise ValueError("beyond the file")
    return data


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")


def _to_four(n: int) -> int:
    return -(-n // 4) * 4
