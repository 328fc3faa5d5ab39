"""Compressed lines: xz, bzip2, Zstandard or plain, told apart by their first bytes and never by name.

Everything streams: at most 64 KiB of compressed input are held, and what they inflate to (128 MB at the very worst, for a
Zstandard bomb), and one line. Lines are split on the newline byte before anything is decoded, so a character that
straddles two chunks stays whole. Zstandard windows reach 2^31 bytes, as Reddit's dumps use them.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import zstandard

from webtext.crawl.submission import Unreadable

MAX_LINE_BYTES = 16 << 20
MAX_ZSTD_WINDOW_BYTES = 1 << 31
CHUNK_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class StreamBroken(Exception):
    """A compressed stream cannot be read further; `reason` is `truncated_stream` or `damaged_stream`."""

    def __init__(self, reason: str, cause: str) -> None:
        self.reason = reason
        self.cause = cause
        super().__init__(f"{reason}: {cause}")


@dataclass(frozen=True, slots=True)
class _Codec:
    name: str
    magics: tuple[bytes, ...]
    decoder: Callable[[], Any]
    feed_bytes: int
    padding: bytes = b""  # what may stand between two frames


CODECS = (
    _Codec("xz", (b"\xfd7zXZ\x00",), lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), 64 << 10, padding=b"\x00"),
    _Codec("bzip2", (b"BZh",), bz2.BZ2Decompressor, 64 << 10),
    # Small feeds: this decoder cannot be told how much to give out, and 4 bytes of input may inflate to 128 KiB.
    _Codec(
        "Zstandard",
        (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))),
        lambda: zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES).decompressobj(),
        4 << 10,
    ),
)
MAGIC_BYTES = 6


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | Unreadable]]:
    """Each line that is not blank, without its newline, with its byte position in the decompressed stream.

    A line longer than MAX_LINE_BYTES comes as Unreadable (`line_too_long`) and is never held whole. A stream that breaks
    off gives all that came before, then one Unreadable for the line that was cut and whatever followed it.
    """
    start = 0
    gathered = _Line()
    try:
        for chunk in decompress(file):
            first, *others = chunk.split(b"\n")
            gathered.add(first)
            if not others:
                continue
            *whole, last = others
            yield from _unless_blank(start, gathered.content(start))
            start += gathered.n_bytes + 1
            for line in whole:
                yield from _unless_blank(start, line if len(line) <= MAX_LINE_BYTES else _too_long(len(line)))
                start += len(line) + 1
            gathered = _Line()
            gathered.add(last)
        yield from _unless_blank(start, gathered.content(start))
    except StreamBroken as broken:
        yield start, Unreadable(broken.reason, broken.cause)


def decompress(file: BinaryIO) -> Iterator[bytes]:
    """The decompressed bytes in chunks, frame after frame. Raises StreamBroken where the stream ends."""
    head = file.read(MAGIC_BYTES)
    codec = _codec_of(head)
    if codec is None:
        yield head
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
        return
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
            except (lzma.LZMAError, OSError, EOFError, zstandard.ZstdError) as error:
                raise StreamBroken("damaged_stream", f"{codec.name}, near byte {n_read:,}: {error}") from None
            data = b""
            if decoder.eof:
                decoder, begun, data = codec.decoder(), False, decoder.unused_data
        data = file.read(codec.feed_bytes)
    if begun:
        raise StreamBroken("truncated_stream", f"{codec.name}, ends at byte {n_read:,} in the middle of a frame")


def may_need_a_large_window(head: bytes) -> bool:
    """Whether a file that begins so may take up to 2 GiB to decompress: any of its Zstandard frames may."""
    codec = _codec_of(head)
    return codec is not None and codec.name == "Zstandard"


def _codec_of(head: bytes) -> _Codec | None:
    return next((codec for codec in CODECS if head.startswith(codec.magics)), None)


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


class _Line:
    """A line that comes in pieces; beyond MAX_LINE_BYTES only its length is kept."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self.n_bytes += len(piece)
        if self.n_bytes <= MAX_LINE_BYTES:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def content(self, start: int) -> bytes | Unreadable:
        if self.n_bytes > MAX_LINE_BYTES:
            return _too_long(self.n_bytes)
        line = b"".join(self._pieces)
        return line.removeprefix(BYTE_ORDER_MARK) if start == 0 else line


def _too_long(n_bytes: int) -> Unreadable:
    return Unreadable("line_too_long", f"{n_bytes:,} bytes, more than {MAX_LINE_BYTES:,}")


def _unless_blank(start: int, line: bytes | Unreadable) -> Iterator[tuple[int, bytes | Unreadable]]:
    """A blank line holds no record, so it is none that could be lost."""
    if isinstance(line, Unreadable) or (line and not line.isspace()):
        yield start, line
