"""Lines of a compressed file, split as bytes before decoding, so that a character across two chunks stays intact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from webtext.base.decompress import CHUNK_BYTES, StreamBroken, decompress

MAX_LINE_BYTES = 16 << 20
LOOK_BYTES = 16 << 10  # copied at a time to find a newline
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that could not be read: `reason` is the counted key, `cause` the explanation for people."""

    reason: str
    cause: str


Batch = tuple[int, bytes | memoryview | Unreadable]
"""The byte position of the first line in the decompressed file, and complete lines, without the last newline."""


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | Unreadable]]:
    """Yield (byte position in the decompressed stream, line) for each line that is not blank, without its newline.

    A line longer than MAX_LINE_BYTES becomes Unreadable (`line_too_long`) and is never in memory as a whole. A broken
    stream yields all lines before the break, then one Unreadable for the line that was cut and everything after it.
    """
    for batch in read_batches(decompress(file)):
        yield from lines_of(batch)


def lines_of(batch: Batch) -> Iterator[tuple[int, bytes | Unreadable]]:
    """Yield the lines of a batch that are not blank; a blank line is not a record."""
    position, lines = batch
    if isinstance(lines, Unreadable):
        yield position, lines
        return
    text = bytes(lines)
    for line in () if text.isspace() else text.split(b"\n"):  # a small file may have gigabytes of line ends
        if len(line) > MAX_LINE_BYTES:
            yield position, _too_long(len(line))
        elif line and not line.isspace():
            yield position, line
        position += len(line) + 1


def read_batches(chunks: Iterable[bytes | memoryview]) -> Iterator[Batch]:
    """Yield the lines of `read_lines`, many at a time.

    A batch has at most two CHUNK_BYTES, or one line. Lines within one chunk are not copied, so they are valid only as
    long as the chunk.
    """
    start = 0
    begun = _Line()  # the line that continues in the next chunk
    try:
        for chunk in _in_pieces(chunks):
            first, end = 0, _last_newline(chunk)
            if begun.n_bytes and end >= 0:
                first = _first_newline(chunk) + 1
                begun.add(bytes(chunk[: first - 1]))
                yield begun.batch(start)
                start += begun.n_bytes + 1
                begun = _Line()
            if first <= end:
                yield _unmarked(start, chunk[first:end])
                start += end - first + 1
            begun.add(bytes(chunk[end + 1 :]))
        if begun.n_bytes:
            yield begun.batch(start)
    except StreamBroken as broken:
        yield start, Unreadable(broken.reason, broken.cause)


def _in_pieces(chunks: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Yield chunks of at most two CHUNK_BYTES; one chunk from a Zstandard bomb can be 128 MiB."""
    for chunk in (memoryview(each) for each in chunks):
        if len(chunk) <= 2 * CHUNK_BYTES:
            yield chunk
        else:
            yield from (chunk[at : at + CHUNK_BYTES] for at in range(0, len(chunk), CHUNK_BYTES))


def _first_newline(chunk: memoryview) -> int:
    """Return the position of the first newline; -1 if there is none."""
    for at in range(0, len(chunk), LOOK_BYTES):
        if (found := bytes(chunk[at : at + LOOK_BYTES]).find(b"\n")) >= 0:
            return at + found
    return -1


def _last_newline(chunk: memoryview) -> int:
    """Return the position of the last newline; -1 if there is none."""
    for end in range(len(chunk), 0, -LOOK_BYTES):
        at = max(0, end - LOOK_BYTES)
        if (found := bytes(chunk[at:end]).rfind(b"\n")) >= 0:
            return at + found
    return -1


def _unmarked(start: int, lines: bytes | memoryview) -> Batch:
    """Return the batch without the byte order mark that some editors write before the first line."""
    has_mark = start == 0 and lines[: len(BYTE_ORDER_MARK)] == BYTE_ORDER_MARK
    return (len(BYTE_ORDER_MARK), lines[len(BYTE_ORDER_MARK) :]) if has_mark else (start, lines)


class _Line:
    """A line that arrives in pieces; beyond MAX_LINE_BYTES only its length is kept."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self.n_bytes += len(piece)
        if self.n_bytes <= MAX_LINE_BYTES:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def batch(self, start: int) -> Batch:
        """Return a batch of this one line, which begins at `start`."""
        is_long = self.n_bytes > MAX_LINE_BYTES
        return (start, _too_long(self.n_bytes)) if is_long else _unmarked(start, b"".join(self._pieces))


def _too_long(n_bytes: int) -> Unreadable:
    return Unreadable("line_too_long", f"{n_bytes:,} bytes, more than {MAX_LINE_BYTES:,}")
