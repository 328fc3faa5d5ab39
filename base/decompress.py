"""Decompress xz, bzip2, Zstandard and gzip files, whose frames may be concatenated.

`decompress` detects the format from the first bytes, `decompressed` from the name's suffix. Everything streams: at most
64 KiB of compressed input are in memory, and the bytes that they inflate to (128 MB at worst, for a Zstandard bomb).
Zstandard windows of up to 2^31 bytes are accepted, since Reddit's dumps use them.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from webtext.base.errors import missing_extra

MAX_ZSTD_WINDOW_BYTES = 1 << 31
CHUNK_BYTES = 1 << 20
BUFFER_BYTES = 128 << 10
PIECE_BYTES = 32 << 10
"""The most that is decoded at a time, if the decoder supports a limit. The standard library's decoders begin with an
output block of 32 KiB. Longer output is gathered and copied, in memory that is allocated and freed each time."""


class StreamBroken(Exception):
    """A compressed stream cannot be read further; `reason` is `truncated_stream` or `damaged_stream`."""

    def __init__(self, reason: str, cause: str) -> None:
        self.reason = reason
        self.cause = cause
        super().__init__(f"{reason}: {cause}")


class Codec(NamedTuple):
    """One format: its suffix, its magic bytes and its decoder."""

    name: str
    suffix: str
    magics: tuple[bytes, ...]
    decoder: Callable[[], Any]
    feed_bytes: int
    padding: bytes = b""  # allowed between two frames


def _zstandard() -> Any:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise missing_extra("zstandard", "build") from None
    return zstandard


XZ = Codec("xz", ".xz", (b"\xfd7zXZ\x00",), lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), 64 << 10, padding=b"\x00")
BZIP2 = Codec("bzip2", ".bz2", (b"BZh",), bz2.BZ2Decompressor, 64 << 10)
GZIP = Codec(
    "gzip", ".gz", (b"\x1f\x8b\x08",), lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), 16 << 10, padding=b"\x00"
)
ZSTANDARD = Codec(
    "Zstandard",
    ".zst",
    (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))),
    lambda: _zstandard().ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES).decompressobj(),
    # Small, since this decoder can't limit its output, and 4 bytes of input may inflate to 128 KiB; larger feeds are
    # hardly faster. `stream_reader` ends silently where a file is cut; `decompressobj` knows that a frame isn't done.
    4 << 10,
)
CODECS = (XZ, BZIP2, ZSTANDARD, GZIP)
SUFFIXES = tuple(codec.suffix for codec in CODECS)
MAGIC_BYTES = 6


def compression_of(head: bytes) -> Codec | None:
    """Return the format of a file that begins with `head`; None for plain bytes."""
    return next((codec for codec in CODECS if head.startswith(codec.magics)), None)


def decompressed(file: BinaryIO, name: str) -> BinaryIO:
    """Return a reader of the decompressed bytes of a file with this name; the file itself if no suffix names a format.

    Reading raises StreamBroken where the stream breaks.
    """
    codec = next((codec for codec in CODECS if name.endswith(codec.suffix)), None)
    if codec is None:
        return file
    return reader_of(piece for piece, _ in _decoded(codec, file, file.read(codec.feed_bytes)))


def reader_of(pieces: Iterator[bytes]) -> BinaryIO:
    """Return a reader of the pieces, joined."""
    return io.BufferedReader(_Reader(pieces), BUFFER_BYTES)


class _Reader(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._ready = memoryview(piece)
        n_bytes = min(len(buffer), len(self._ready))
        buffer[:n_bytes] = self._ready[:n_bytes]
        self._ready = self._ready[n_bytes:]
        return n_bytes


def decompress(file: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed bytes in chunks of about CHUNK_BYTES. Raises StreamBroken where the stream breaks."""
    gathered: list[bytes] = []
    n_bytes = n_final = 0
    try:
        for piece, is_final in pieces_of(file):
            if is_final and not gathered and len(piece) >= CHUNK_BYTES // 4:  # long enough not to be copied
                yield piece
                continue
            gathered.append(piece)
            n_bytes += len(piece)
            if is_final:
                n_final = len(gathered)
                if n_bytes >= CHUNK_BYTES:
                    yield b"".join(gathered)
                    gathered, n_bytes, n_final = [], 0, 0
    except StreamBroken:
        yield b"".join(gathered[:n_final])
        raise
    yield b"".join(gathered)


def pieces_of(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield (piece, is_final): decompressed bytes, possibly empty, and whether all bytes up to there are final.

    If StreamBroken is raised, discard the pieces after the last final one. Damage is noticed only at a wrong
    checksum or an impossible code, so the bytes decoded shortly before may be wrong as well.
    """
    head = file.read(MAGIC_BYTES)
    codec = compression_of(head)
    return _plain(file, head) if codec is None else _decoded(codec, file, head)


def _plain(file: BinaryIO, head: bytes) -> Iterator[tuple[bytes, bool]]:
    yield head, True
    while chunk := file.read(CHUNK_BYTES):
        yield chunk, True


def _decoded(codec: Codec, file: BinaryIO, head: bytes) -> Iterator[tuple[bytes, bool]]:
    decoder, begun, n_read = codec.decoder(), False, 0
    failures: tuple[type[Exception], ...] = (lzma.LZMAError, OSError, EOFError, zlib.error)
    if codec is ZSTANDARD:
        failures += (_zstandard().ZstdError,)
    data = head
    while data:
        n_read += len(data)
        while data:
            if not begun:
                data = data.lstrip(codec.padding) if codec.padding else data
                begun = bool(data)
            try:
                yield from _inflate(decoder, data)
            except failures as error:
                raise StreamBroken("damaged_stream", f"{codec.name}, near byte {n_read:,}: {error}") from None
            data = b""
            if decoder.eof:
                decoder, begun, data = codec.decoder(), False, decoder.unused_data
        data = file.read(codec.feed_bytes)
    if begun:
        raise StreamBroken("truncated_stream", f"{codec.name}, ends at byte {n_read:,} in the middle of a frame")


def _inflate(decoder: Any, data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield what `data` inflates to, in bounded pieces if the decoder supports it; final every CHUNK_BYTES."""
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
        is_final = is_over or n_bytes == CHUNK_BYTES
        yield piece, is_final
        n_bytes = 0 if is_final else n_bytes
