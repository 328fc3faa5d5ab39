"""Compressed files: xz, bzip2, Zstandard, gzip or plain, told apart by their first bytes and never by name.

Everything streams: at most 64 KiB of compressed input are held, and what they inflate to (128 MB at the very worst, for a
Zstandard bomb). Zstandard windows reach 2^31 bytes, as Reddit's dumps use them.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import zstandard

MAX_ZSTD_WINDOW_BYTES = 1 << 31
CHUNK_BYTES = 1 << 20


class StreamBroken(Exception):
    """A compressed stream cannot be read further; `reason` is `truncated_stream` or `damaged_stream`."""

    def __init__(self, reason: str, cause: str) -> None:
        self.reason = reason
        self.cause = cause
        super().__init__(f"{reason}: {cause}")


@dataclass(frozen=True, slots=True)
class Codec:
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
    n_bytes = 0
    try:
        for piece in pieces_of(file):
            if not gathered and len(piece) >= CHUNK_BYTES // 4:  # long enough not to be copied
                yield piece
                continue
            gathered.append(piece)
            n_bytes += len(piece)
            if n_bytes >= CHUNK_BYTES:
                yield b"".join(gathered)
                gathered, n_bytes = [], 0
    except StreamBroken:
        yield b"".join(gathered)
        raise
    yield b"".join(gathered)


def pieces_of(file: BinaryIO) -> Iterator[bytes]:
    """What `decompress` gives, in pieces as the library makes them: some of them empty."""
    head = file.read(MAGIC_BYTES)
    codec = codec_of(head)
    return _plain(file, head) if codec is None else _decoded(codec, file, head)


def _plain(file: BinaryIO, head: bytes) -> Iterator[bytes]:
    yield head
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _decoded(codec: Codec, file: BinaryIO, head: bytes) -> Iterator[bytes]:
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


def _inflate(decoder: Any, data: bytes) -> Iterator[bytes]:
    """All that `data` inflates to; in bounded pieces where the decoder can bound them."""
    if not data:
        return
    if not hasattr(decoder, "needs_input"):
        yield decoder.decompress(data)
        return
    yield decoder.decompress(data, CHUNK_BYTES)
    while not decoder.eof and not decoder.needs_input:
        yield decoder.decompress(b"", CHUNK_BYTES)
