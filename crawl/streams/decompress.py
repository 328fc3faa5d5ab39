"""Compressed files: xz, bzip2, Zstandard, gzip or plain, told apart by their first bytes and never by name.

Everything streams: at most 64 KiB of compressed input are held, and what they inflate to (128 MB at the very worst, for a
Zstandard bomb). Zstandard windows reach 2^31 bytes, as Reddit's dumps use them.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import zstandard

MAX_ZSTD_WINDOW_BYTES = 1 << 31
CHUNK_BYTES = 1 << 20
PIECE_BYTES = 32 << 10
"""At most so much is decoded at a time, where the decoder can be told. The standard library's decoders begin their output with
a block of 32 KiB; what is longer they gather and copy, in memory that is asked of the system and given back each time."""


class StreamBroken(Exception):
    """A compressed stream cannot be read further; `reason` is `truncated_stream` or `damaged_stream`."""

    def __init__(self, reason: str, cause: str) -> None:
        self.reason = reason
        self.cause = cause
        super().__init__(f"{reason}: {cause}")


class Codec(NamedTuple):
    """One format: how its files begin, and what decodes them."""

    name: str
    magics: tuple[bytes, ...]
    decoder: Callable[[], Any]
    feed_bytes: int
    padding: bytes = b""  # what may stand between two frames


XZ = Codec("xz", (b"\xfd7zXZ\x00",), lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), 64 << 10, padding=b"\x00")
BZIP2 = Codec("bzip2", (b"BZh",), bz2.BZ2Decompressor, 64 << 10)
GZIP = Codec("gzip", (b"\x1f\x8b\x08",), lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), 16 << 10, padding=b"\x00")
ZSTANDARD = Codec(
    "Zstandard",
    (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))),
    lambda: zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES).decompressobj(),
    # Small feeds: this decoder cannot be told how much to give out, and 4 bytes of input may inflate to 128 KiB.
    4 << 10,
)
MAGIC_BYTES = 6


def codec_of(head: bytes) -> Codec | None:
    """The format of a file that begins so; None for plain bytes."""
    return next((codec for codec in (XZ, BZIP2, ZSTANDARD, GZIP) if head.startswith(codec.magics)), None)


def decompress(file: BinaryIO) -> Iterator[bytes]:
    """The decompressed bytes in chunks of about CHUNK_BYTES, frame after frame. Raises StreamBroken where the stream ends."""
    gathered: list[bytes] = []
    n_bytes = n_standing = 0
    try:
        for piece, stands in pieces_of(file):
            if stands and not gathered and len(piece) >= CHUNK_BYTES // 4:  # long enough not to be copied
                yield piece
                continue
            gathered.append(piece)
            n_bytes += len(piece)
            if stands:
                n_standing = len(gathered)
                if n_bytes >= CHUNK_BYTES:
                    yield b"".join(gathered)
                    gathered, n_bytes, n_standing = [], 0, 0
    except StreamBroken:
        yield b"".join(gathered[:n_standing])
        raise
    yield b"".join(gathered)


def pieces_of(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """What `decompress` gives, in pieces as the library makes them, some of them empty; and whether all stands up to there.

    What came after the last piece that stood must not be used when StreamBroken comes: the break is found where checksums
    are wrong, or codes that cannot be, and what was decoded shortly before may be wrong as well.
    """
    head = file.read(MAGIC_BYTES)
    codec = codec_of(head)
    return _plain(file, head) if codec is None else _decoded(codec, file, head)


def _plain(file: BinaryIO, head: bytes) -> Iterator[tuple[bytes, bool]]:
    yield head, True
    while chunk := file.read(CHUNK_BYTES):
        yield chunk, True


def _decoded(codec: Codec, file: BinaryIO, head: bytes) -> Iterator[tuple[bytes, bool]]:
    decoder, begun, n_read = codec.decoder(), False, 0
    data = head
    while data:
        n_read += len(data)
        while data:
            if not begun:
                data = data.lstrip(codec.padding) if codec.padding else data
                begun = bool(data)
            try:
                yield from _inflate(decoder, data)
            except (lzma.LZMAError, OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
                raise StreamBroken("damaged_stream", f"{codec.name}, near byte {n_read:,}: {error}") from None
            data = b""
            if decoder.eof:
                decoder, begun, data = codec.decoder(), False, decoder.unused_data
        data = file.read(codec.feed_bytes)
    if begun:
        raise StreamBroken("truncated_stream", f"{codec.name}, ends at byte {n_read:,} in the middle of a frame")


def _inflate(decoder: Any, data: bytes) -> Iterator[tuple[bytes, bool]]:
    """All that `data` inflates to; in bounded pieces where the decoder can bound them, which stand by CHUNK_BYTES."""
    if not data:
        return
    if not hasattr(decoder, "needs_input"):
        yield decoder.decompress(data), True
        return
    n_bytes, is_over = 0, False
    while not is_over:
        piece = decoder.decompress(data, min(PIECE_BYTES, CHUNK_BYTES - n_bytes))
        data, n_bytes = b"", n_bytes + len(piece)
        is_over = decoder.eof or decoder.needs_input
        stands = is_over or n_bytes == CHUNK_BYTES
        yield piece, stands
        n_bytes = 0 if stands else n_bytes
