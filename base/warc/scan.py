"""A scan of a WARC file: its records, and the damage between them.

fastwarc stops at the first damage; this module resumes at the next record.
"""

from __future__ import annotations

import gzip
import io
import itertools
import re
import uuid
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from webtext.base.warc.member import LZ4_START, Frame, Member, has_unusual_length, records_in_any_case
from webtext.base.warc.response import LENGTH_IS_WRONG, Response, read_record

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord

GZIP_START = b"\x1f\x8b\x08"
START_BYTES = 512  # enough of a gzip member to decompress its first bytes
_PLAIN_START = b"WARC/"
_STARTS = (GZIP_START, b"\x28\xb5\x2f\xfd", LZ4_START, _PLAIN_START)  # gzip, zstd, lz4, not compressed
MAX_MORE_DAMAGED = 10_000  # resuming takes 20 µs to 10 ms, and a hostile file can ask for it every six bytes
_SEARCH_BYTES = 1 << 20  # blocks overlap by START_BYTES, so that a start at a seam is complete in one of them

# The start of a gzip member as every WARC writer makes it: no flags, any time, a usual level and a usual system. These
# 45 bits are tested at one place per record; that they occur there by chance is too rare to be checked further.
_USUAL_MEMBER = re.compile(rb"\x1f\x8b\x08\x00....[\x00\x02\x04][\x00\x03\xff]", re.DOTALL)

_END_ID = uuid.uuid4().urn  # new in each process, so that no archive can contain it
_END = f"WARC/1.1\r\nWARC-Record-ID: {_END_ID}\r\nContent-Length: 0\r\n\r\n\r\n\r\n".encode()
_END_MEMBERS = {
    GZIP_START: gzip.compress(_END, mtime=0),
    # an LZ4 frame: flags, block size, header checksum, one block that is stored, end mark
    LZ4_START: LZ4_START + b"\x60\x40\x82" + (len(_END) | 1 << 31).to_bytes(4, "little") + _END + bytes(4),
}


@dataclass(slots=True)
class Scanned:
    """A record of any type (`response` is None if it isn't an HTTP response), or damage between two records."""

    start: int
    starts_member: bool
    response: Response | None
    is_record: bool = True


def scan_records(file: BinaryIO) -> Iterator[Scanned]:
    """Yield all records and damaged stretches of a file; fastwarc is restarted at the next record after each damage.

    When they exceed the good records by MAX_MORE_DAMAGED, the rest of the file is part of the last one.
    """
    file.seek(0)
    kind = file.read(START_BYTES)
    start: int | None = 0
    unreported: int | None = None  # there is damage at or after this offset
    n_more_damaged = 0
    while start is not None and n_more_damaged < MAX_MORE_DAMAGED:
        file.seek(start)
        tail = Tail(file)
        reached = start
        n_read = n_in_member = 0
        try:
            for record in records_of(tail):
                is_next = not n_read or record.stream_pos > reached  # records of one member may have one position
                starts_member = is_next and tail.shows_start(record.stream_pos)
                before = reached, n_in_member + 1
                reached = record.stream_pos if starts_member else reached
                scanned = Scanned(reached, starts_member, response_of(record, reached, tail))
                if unreported is not None:
                    yield _damage(unreported, before=start)
                    unreported = None
                n_read, n_in_member = n_read + 1, 0 if starts_member else n_in_member + 1
                if has_unusual_length(record):
                    reached = yield from _in_any_case(file, record, (reached, n_in_member), before, tail)
                    break
                yield scanned
                if scanned.response and scanned.response.damage in LENGTH_IS_WRONG:
                    n_read -= 1
                    break  # it may have consumed the records after it
            else:
                return
        except OSError:
            if tail.failure:  # an error of the disk or the network says nothing about the data
                raise tail.failure from None
            if n_read:
                unreported = reached
            else:  # nothing was read, so the damage is right here
                yield _damage(start, before=start)
                unreported = None
        n_more_damaged += 1 - n_read
        start = next_start(file, reached + 1, kind)
    if unreported is not None:
        yield _damage(unreported, before=file.seek(0, io.SEEK_END))


def _in_any_case(
    file: BinaryIO, record: WarcRecord, place: tuple[int, int], before: tuple[int, int], tail: Tail
) -> Generator[Scanned, None, int]:
    """Yield `record` and the records after it in its member; return the last offset that was read.

    A place is a member's offset and the number of records in it that are known. `before` applies if the record isn't
    the first of a member after all: fastwarc had read ahead, to the start of the next one.
    """
    start, n_known = place
    if n_known == 0 and before[0] != start and not _starts_with(record, file, start):
        start, n_known = before
    member = _member_at(file, start)
    is_packed, reached = not isinstance(member, Member) or member.is_gzip, start
    try:
        for number, found in enumerate(records_in_any_case(member)):
            reached = start if is_packed else start + found.stream_pos
            if number >= n_known:
                yield Scanned(reached, not is_packed or number == 0, read_record(found, reached))
        if member.ended:
            return member.end - 1
    except (OSError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno:
            tail.failure = error
            raise
    yield _damage(reached, before=reached)
    return reached


def _member_at(file: BinaryIO, start: int) -> Member | Frame:
    file.seek(start)
    kind = file.read(len(LZ4_START))
    if kind.startswith((GZIP_START, _PLAIN_START[: len(kind)])):
        return Member(file, start, kind.startswith(GZIP_START))
    return Frame(file, start, next_start(file, start + 1, kind) or file.seek(0, io.SEEK_END))


def _starts_with(record: WarcRecord, file: BinaryIO, start: int) -> bool:
    """Whether the member at `start` begins with this record."""
    try:
        first = next(records_in_any_case(_member_at(file, start)), record)
    except (OSError, zlib.error):
        return True  # whatever reads it next reports the damage
    one, other = ({name.lower(): value for name, value in each.headers.items()} for each in (first, record))
    return one == other


def records_of(tail: Tail) -> Iterator[WarcRecord]:
    """Yield the records up to the end of the file; raises OSError at the first damage.

    fastwarc treats a gzip member or LZ4 frame that breaks off before its data as the end of the file. But the file need
    not be truncated: a flipped bit may announce a name or an extra field before the data, and that field consumes
    everything that follows. So one more record is appended after the file's last byte; if it isn't found, something was
    lost.
    """
    from fastwarc.warc import ArchiveIterator

    for record in ArchiveIterator(tail, parse_http=False):
        if record.record_id == _END_ID:
            return
        tail.is_in_record = True  # a body that is cut short at the file's end must stay short
        yield record
        tail.is_in_record = False
    if tail.marks_end:
        raise OSError("damage up to the end of the file")


def response_of(record: WarcRecord, offset: int, tail: Tail) -> Response | None:
    """Return the response in a record of `tail`; None if it is of another kind."""
    response = read_record(record, offset)
    if tail.has_given_end and response:  # its head took bytes of the end's member: it is cut short
        response.damage = "record_cut_short"
    return response


def _damage(offset: int, *, before: int) -> Scanned:
    """Return the damage at or after `offset`; records read before it end at `before` at the latest."""
    response = Response(offset=offset, length=None, damage="damaged_record")
    return Scanned(before, starts_member=True, response=response, is_record=False)


def with_lengths(scan: Iterator[Scanned], file: BinaryIO) -> Iterator[Scanned]:
    """Set offset and length of each response that has a compressed member of its own."""
    end = Scanned(file.seek(0, io.SEEK_END), starts_member=True, response=None)
    for scanned, after in itertools.pairwise(itertools.chain(scan, [end])):
        response = scanned.response
        if response is not None and scanned.is_record:
            if scanned.starts_member and after.starts_member and after.start > scanned.start:
                response.length = after.start - scanned.start
            else:
                response.offset = None
        yield scanned


class Tail:
    """A file for fastwarc that remembers the last bytes that were read.

    The position that fastwarc reports for a record is exact if a member starts with the record; inside a larger member
    it is only how far the file was read. The bytes at that position show which case it is.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._read_to = file.tell()
        self._older = self._newer = b""
        start = file.read(len(_PLAIN_START))
        file.seek(self._read_to)
        self._end_member = next((end for kind, end in _END_MEMBERS.items() if start.startswith(kind)), b"")
        self.marks_end = bool(self._end_member)
        self.is_in_record = False
        self.has_given_end = False
        self.failure: OSError | None = None

    def read(self, size: int = -1, /) -> bytes:
        """Read the next bytes; after the end of the file, return the member that marks its end, once."""
        try:
            data = self._file.read(size)
        except OSError as error:
            self.failure = error
            raise
        if not data and not self.is_in_record:
            data, self._end_member = self._end_member, b""
            self.has_given_end = bool(data) or self.has_given_end
        self._older, self._newer = self._newer, data
        self._read_to += len(data)
        return data

    def tell(self) -> int:
        return self._read_to

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Raise UnsupportedOperation: fastwarc never seeks."""
        raise io.UnsupportedOperation

    def close(self) -> None:
        """Do nothing: the file belongs to the caller."""

    def shows_start(self, position: int) -> bool:
        """Whether the bytes at `position` look like the start of a record."""
        at = position - (self._read_to - len(self._newer))
        if at >= 0:
            return _starts_record(self._newer[at : at + START_BYTES])
        at += len(self._older)
        if at >= 0:
            return _starts_record((self._older[at : at + START_BYTES] + self._newer[:START_BYTES])[:START_BYTES])
        try:  # a large member that is stored uncompressed is read far ahead
            here = self._file.tell()
            self._file.seek(position)
            piece = self._file.read(START_BYTES)
            self._file.seek(here)
        except OSError as error:
            self.failure = error
            raise
        return _starts_record(piece)


def _starts_record(piece: bytes) -> bool:
    if piece.startswith(GZIP_START):
        if _USUAL_MEMBER.match(piece):
            return True
        try:
            first = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(piece, len(_PLAIN_START))
        except zlib.error:
            return False
        return bool(first == _PLAIN_START)
    return piece.startswith(_STARTS)


def next_start(file: BinaryIO, position: int, kind: bytes) -> int | None:
    """Return the offset of the next record at or after `position`, in a file whose first bytes are `kind`."""
    wanted = [start for start in _STARTS if kind.startswith(start)] or list(_STARTS)
    pattern = re.compile(b"|".join(map(re.escape, wanted)))
    while True:
        file.seek(position)
        block = file.read(_SEARCH_BYTES + START_BYTES)
        for match in pattern.finditer(block, 0, _SEARCH_BYTES + START_BYTES):
            at = match.start()
            in_a_line = wanted == [_PLAIN_START] and at > 0 and block[at - 1 : at] != b"\n"
            if not in_a_line and _starts_record(block[at : at + START_BYTES]):
                return position + at
        if len(block) <= _SEARCH_BYTES:
            return None
        position += _SEARCH_BYTES
