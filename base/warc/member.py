"""Members, frames and uncompressed files as streams of text, and WARC records whose field names fastwarc can't read."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from fastwarc.warc import WarcRecord

LZ4_START = b"\x04\x22\x4d\x18"
MAX_FRAME_BYTES = 256 << 20  # compressed; what follows in a larger frame counts as damaged
_LENGTH = b"Content-Length"  # fastwarc finds it in this case only; ISO 28500 §4 allows any
_MAX_LINE_BYTES = _READ_BYTES = 64 << 10


def has_unusual_length(record: WarcRecord) -> bool:
    """Whether fastwarc read a record as empty because its length's name is in another case."""
    names = [name.strip() for name, _ in record.headers.items()]
    return record.content_length == 0 and _LENGTH.decode() not in names and "content-length" in map(str.lower, names)


def records_in_any_case(member: Member | Frame) -> Iterator[WarcRecord]:
    """Yield the records of a member with field names in any case; raises OSError or zlib.error at damage."""
    from fastwarc.warc import ArchiveIterator

    file = _UsualLengths(io.BufferedReader(member, _READ_BYTES))
    yield from ArchiveIterator(cast(BinaryIO, file), parse_http=False)  # it calls only these two methods


class _UsualLengths:
    """A file for fastwarc in which each record's length has its usual name; all bytes keep their places."""

    def __init__(self, text: io.BufferedReader) -> None:
        self._text = text
        self._in_head = False
        self._length = 0  # of the current block, as far as it isn't read yet
        self._ready = b""
        self._at = 0

    def tell(self) -> int:
        return self._at

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; empty at the end."""
        data = self._ready or self._next()
        self._ready, data = data[size:], data[:size]
        self._at += len(data)
        return data

    def _next(self) -> bytes:
        """Return a line of a head or some bytes of a block."""
        if not self._in_head and self._length:
            block = self._text.read(min(self._length, _READ_BYTES))
            self._length = self._length - len(block) if block else 0
            return block
        line = self._text.readline(_MAX_LINE_BYTES)
        if not self._in_head:
            self._in_head = line.startswith(b"WARC/")
            return line
        self._in_head = bool(line.strip())
        name, _, value = line.partition(b":")
        if name.strip().lower() != _LENGTH.lower():
            return line
        self._length = int(value) if value.strip().isdigit() and len(value) < 20 else 0
        return _LENGTH + line[len(_LENGTH) :]


class Member(io.RawIOBase):
    """One gzip member of a file, decompressed; or the whole file if it isn't compressed."""

    def __init__(self, file: BinaryIO, start: int, is_gzip: bool) -> None:
        file.seek(start)
        self._file, self._read_to, self.is_gzip = file, start, is_gzip
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS) if is_gzip else None

    @property
    def ended(self) -> bool:
        """Whether the member was read to its end, so that neither damage nor the end of the file cut it short."""
        return self._inflate is None or self._inflate.eof

    @property
    def end(self) -> int:
        """Offset in the file at which the next member starts; valid once this one has ended."""
        return self._read_to - (len(self._inflate.unused_data) if self._inflate else 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into `buffer` and return the number of bytes, 0 at the end; raises zlib.error at damage."""
        room = memoryview(buffer)
        text = b""
        while not text and not (self._inflate and self._inflate.eof):
            data = self._inflate.unconsumed_tail if self._inflate else b""
            if not data:
                data = self._file.read(len(room))
                self._read_to += len(data)
            if not data:
                break
            text = self._inflate.decompress(data, len(room)) if self._inflate else data
        room[: len(text)] = text
        return len(text)


class Frame(io.RawIOBase):
    """One Zstandard or LZ4 frame of a file, decompressed; its compressed bytes are in memory."""

    ended = True

    def __init__(self, file: BinaryIO, start: int, end: int) -> None:
        from fastwarc.stream_io import Lz4Reader, ZstdReader

        file.seek(start)
        data = file.read(min(end - start, MAX_FRAME_BYTES))
        self._text = (Lz4Reader if data.startswith(LZ4_START) else ZstdReader)(io.BytesIO(data))
        self.end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into `buffer` and return the number of bytes, 0 at the end; raises OSError at damage."""
        room = memoryview(buffer)
        text: bytes = self._text.read(len(room))
        room[: len(text)] = text
        return len(text)
