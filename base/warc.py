"""Reading WARC files (ISO 28500) with fastwarc: every HTTP response, and every stretch that is damaged.

Files with a compressed member per record (.warc.gz, .zst, .lz4), with one member around all records, and plain files are
read. After damage, reading goes on where the next record starts, and the damage itself is yielded as a `Response` whose
`body` raises: whoever counts responses has counted it. A revisit, whose body another record holds, is a response, too.
"""

from __future__ import annotations

import base64
import calendar
import gzip
import hashlib
import io
import re
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from webtext.base.content_coding import BodyError, decode_body
from webtext.base.errors import InputError
from webtext.base.http_head import Headers, split_http
from webtext.base.storage import Folder

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord

MAX_RECORD_BYTES = 64 << 20  # a record above this is 'record_too_large'; Common Crawl cuts a body at a few MiB

_LENGTH_IS_WRONG = ("damaged_record", "record_cut_short")
_GZIP_START = b"\x1f\x8b\x08"
_LZ4_START = b"\x04\x22\x4d\x18"
_PLAIN_START = b"WARC/"
_STARTS = (_GZIP_START, b"\x28\xb5\x2f\xfd", _LZ4_START, _PLAIN_START)  # gzip, zstd, lz4, not compressed
_START_BYTES = 512  # enough of a gzip member to see what it starts with
_SEARCH_BYTES = 1 << 20

_END_ID = uuid.uuid4().urn  # of this process, so that no archive can hold it
_END = f"WARC/1.1\r\nWARC-Record-ID: {_END_ID}\r\nContent-Length: 0\r\n\r\n\r\n\r\n".encode()
_END_MEMBERS = {
    _GZIP_START: gzip.compress(_END, mtime=0),
    # an LZ4 frame: flags, block size, header checksum, one block that is stored, end mark
    _LZ4_START: _LZ4_START + b"\x60\x40\x82" + (len(_END) | 1 << 31).to_bytes(4, "little") + _END + bytes(4),
}


@dataclass(slots=True, kw_only=True)  # not frozen: it is filled step by step, and copies were a tenth of the reading
class Response:
    """An HTTP response as it was archived, or a damaged stretch of the file (`damage` says what, `url` may be empty).

    `offset` and `length` name the part of the file to read for this record alone, None where it shares a compressed
    member with others. `raw` is the body as sent, codings and all; that of a revisit is the body of its original.
    """

    offset: int | None
    length: int | None
    url: str = ""
    date: str = ""
    status: int | None = None
    warc_headers: Headers = field(default_factory=Headers)
    http_headers: Headers = field(default_factory=Headers)
    raw: bytes = b""
    is_revisit: bool = False
    damage: str | None = None

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters; empty when the server gave none."""
        return self.http_headers.get("Content-Type").partition(";")[0].strip().lower()

    @property
    def captured(self) -> int | None:
        """`date` as UTC seconds, None when it is no date."""
        try:
            moment = datetime.fromisoformat(self.date.strip())
        except ValueError:
            return None
        return calendar.timegm(moment.utctimetuple())

    def body(self, max_bytes: int) -> bytes:
        """The body without transfer and content coding; BodyError with a reason when it cannot be had."""
        if self.damage:
            raise BodyError(self.damage)
        headers = self.http_headers
        return decode_body(self.raw, headers.joined("Transfer-Encoding"), headers.joined("Content-Encoding"), max_bytes)


def read_responses(folder: Folder, name: str) -> Iterator[Response]:
    """Yield the responses of the WARC file `name`, in order; InputError when it holds no WARC record at all.

    Requests, metadata and responses of other protocols (DNS) are passed over, and so are revisits that say of one URL
    that it has not changed. A revisit that says that another URL has the same body is a response with that body, or
    'original_not_found' where its original is not in this folder. Memory: two records.
    """
    with folder.open(name) as file:
        if not file.read(1):
            return  # what a writer with nothing to write leaves
        waiting: list[Response] = []  # damage before the first record
        holds_records = False
        for stretch in _with_lengths(_stretches(file), file):
            holds_records |= stretch.is_record
            if stretch.response:
                waiting.append(_with_original(stretch.response, folder, name))
            if holds_records:
                yield from waiting
                waiting.clear()
        if waiting:
            raise _no_warc(folder.location(name), file)


def read_response_at(folder: Folder, name: str, offset: int, length: int) -> Response:
    """The response in the `length` bytes from `offset` of file `name`; InputError when there is none."""
    with folder.open(name) as file:
        file.seek(offset)
        part = file.read(length)
    for stretch in _stretches(io.BytesIO(part)):
        if stretch.response and stretch.is_record:
            stretch.response.offset, stretch.response.length = offset, length
            return _with_original(stretch.response, folder, name)
    raise InputError(f"no response record at offset {offset} of '{folder.location(name)}'", "was the file changed?")


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A record of any type (`response` is None for those passed over), or damage between two records."""

    start: int
    starts_member: bool
    response: Response | None
    is_record: bool = True


def _stretches(file: BinaryIO) -> Iterator[_Stretch]:
    """The whole file. fastwarc stops at the first damage; this begins anew where the next record starts."""
    file.seek(0)
    kind = file.read(_START_BYTES)
    start: int | None = 0
    unreported: int | None = None  # damage was met at or after this place
    while start is not None:
        file.seek(start)
        tail = _Tail(file)
        reached = start
        n_read = 0
        try:
            for record in _records(tail):
                starts_member = tail.shows_start(record.stream_pos)
                reached = record.stream_pos if starts_member else reached
                stretch = _read(record, reached, starts_member)
                if unreported is not None:
                    yield _damage(unreported, before=start)
                    unreported = None
                n_read += 1
                yield stretch
                if stretch.response and stretch.response.damage in _LENGTH_IS_WRONG:
                    break  # it may have swallowed the records after it
            else:
                return
        except OSError:
            if tail.failure:  # of the disk or the network: it says nothing about the data
                raise tail.failure from None
            if n_read:
                unreported = reached
            else:  # so this is where it is
                yield _damage(start, before=start)
                unreported = None
        start = _next_start(file, reached + 1, kind)
    if unreported is not None:
        yield _damage(unreported, before=file.seek(0, io.SEEK_END))


def _records(tail: _Tail) -> Iterator[WarcRecord]:
    """The records up to the end of the file; OSError at the first damage.

    fastwarc takes a gzip member or LZ4 frame that breaks off before its text for the end of the file. It need not be
    the file that breaks off: a flipped bit says that a name or an extra field stands before the text, and that swallows
    all that follows. So one more record is put after the file's last byte; where it is not met, something is lost.
    """
    from fastwarc.warc import ArchiveIterator

    for record in ArchiveIterator(tail, parse_http=False):
        if record.record_id == _END_ID:
            return
        tail.is_in_record = True  # a body that the file's end cuts short has to stay short
        yield record
        tail.is_in_record = False
    if tail.marks_end:
        raise OSError("damage up to the end of the file")


def _damage(offset: int, *, before: int) -> _Stretch:
    """Damage somewhere from `offset` on; whatever was read before it ends at `before` at the latest."""
    response = Response(offset=offset, length=None, damage="damaged_record")
    return _Stretch(before, starts_member=True, response=response, is_record=False)


def _with_lengths(stretches: Iterator[_Stretch], file: BinaryIO) -> Iterator[_Stretch]:
    """Give each response that has a compressed member to itself its offset and length."""
    before: _Stretch | None = None
    for stretch in stretches:
        if before:
            yield _placed(before, stretch.start if stretch.starts_member else before.start)
        before = stretch
    if before:
        yield _placed(before, file.seek(0, io.SEEK_END))


def _placed(stretch: _Stretch, end: int) -> _Stretch:
    response = stretch.response
    if response and stretch.is_record:
        alone = stretch.starts_member and end > stretch.start
        response.offset, response.length = (stretch.start, end - stretch.start) if alone else (None, None)
    return stretch


class _Tail:
    """A file as fastwarc reads it, that remembers the end of what was read.

    fastwarc's position of a record is exact where a member starts with it; inside a larger member it is only how far
    the file was read. The bytes at that position tell which.
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
        self.failure: OSError | None = None

    def read(self, size: int = -1, /) -> bytes:
        """Read on; after the file, once, the member that marks its end."""
        try:
            data = self._file.read(size)
        except OSError as error:
            self.failure = error
            raise
        if not data and not self.is_in_record:
            data, self._end_member = self._end_member, b""
        self._older, self._newer = self._newer, data
        self._read_to += len(data)
        return data

    def tell(self) -> int:
        """How far the file was read."""
        return self._read_to

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Never called: fastwarc reads straight on."""
        raise io.UnsupportedOperation

    def close(self) -> None:
        """The file belongs to the caller."""

    def shows_start(self, position: int) -> bool:
        """Whether a record is seen to start at `position`."""
        kept = self._older + self._newer
        at = position - (self._read_to - len(kept))
        if at >= 0:
            return _starts_record(kept[at : at + _START_BYTES])
        try:  # a large member that is stored, not compressed, is read far ahead
            here = self._file.tell()
            self._file.seek(position)
            piece = self._file.read(_START_BYTES)
            self._file.seek(here)
        except OSError as error:
            self.failure = error
            raise
        return _starts_record(piece)


def _starts_record(piece: bytes) -> bool:
    if piece.startswith(_GZIP_START):
        try:
            first = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(piece, len(_PLAIN_START))
        except zlib.error:
            return False
        return bool(first == _PLAIN_START)
    return piece.startswith(_STARTS)


def _next_start(file: BinaryIO, position: int, kind: bytes) -> int | None:
    """Where the next record starts, at or after `position`, in a file whose first bytes are `kind`."""
    wanted = [start for start in _STARTS if kind.startswith(start)] or list(_STARTS)
    pattern = re.compile(b"|".join(map(re.escape, wanted)))
    while True:
        file.seek(position)
        block = file.read(_SEARCH_BYTES + _START_BYTES)
        for match in pattern.finditer(block, 0, _SEARCH_BYTES + _START_BYTES):
            at = match.start()
            in_a_line = wanted == [_PLAIN_START] and at > 0 and block[at - 1 : at] != b"\n"
            if not in_a_line and _starts_record(block[at : at + _START_BYTES]):
                return position + at
        if len(block) <= _SEARCH_BYTES:
            return None
        position += _SEARCH_BYTES


def _read(record: WarcRecord, start: int, starts_member: bool) -> _Stretch:
    fields = record.headers.items_bytes()
    headers = Headers(
        tuple([(name.decode("utf-8", "replace"), value.decode("utf-8", "replace")) for name, value in fields])
    )
    # One byte more than there is: so damage that follows is met here, as OSError; fastwarc panics when it meets it later.
    # (Not simply MAX_RECORD_BYTES + 1: fastwarc makes room for as many bytes as it is asked for, which costs 30 µs.)
    block = record.reader.read(min(record.content_length, MAX_RECORD_BYTES) + 1)
    stated = headers.get("Content-Length").strip()
    kind = headers.get("WARC-Type").strip().lower()
    damage = None
    if stated != str(record.content_length) or not kind:
        damage = "damaged_record"
    elif len(block) > MAX_RECORD_BYTES:
        damage = "record_too_large"
    elif len(block) < record.content_length:
        damage = "record_cut_short"
    url, date = _url(headers.get("WARC-Target-URI")), headers.get("WARC-Date").strip()
    is_revisit = kind == "revisit" and _url(headers.get("WARC-Refers-To-Target-URI")) not in ("", url)
    is_response = (kind == "response" or is_revisit) and record.is_http
    if not is_response and damage not in _LENGTH_IS_WRONG:
        return _Stretch(start, starts_member, None)
    response = Response(
        offset=start,
        length=None,
        url=url,
        date=date,
        warc_headers=headers,
        is_revisit=is_revisit,
        damage=damage,
    )
    return _Stretch(start, starts_member, response if damage else _with_http(response, block))


def _with_original(response: Response, folder: Folder, name: str) -> Response:
    """The response itself; a revisit with the body of the response it refers to, which is a record of the same folder.

    The place of the original is read from `WARC-Refers-To-Filename` and `-File-Offset`; a file that was renamed may still
    refer to itself. What lies there has to be what the revisit speaks of: URL, date and digest are compared.
    """
    if not response.is_revisit or response.damage:
        return response
    headers = response.warc_headers
    given, offset = headers.get("WARC-Refers-To-Filename").strip(), headers.get("WARC-Refers-To-File-Offset").strip()
    if offset.isascii() and offset.isdigit():
        for file_name in dict.fromkeys((given, name)):
            is_plain_name = file_name == PurePosixPath(file_name).name  # never out of the folder
            if is_plain_name and (file_name == name or folder.exists(file_name)):
                original = _response_from(folder, file_name, int(offset))
                if original is not None and _is_original(original, response):
                    response.raw = original.raw
                    return response
    response.damage = "original_not_found"
    return response


def _response_from(folder: Folder, name: str, offset: int) -> Response | None:
    """The response whose record starts at `offset`; None when none does."""
    with folder.open(name) as file:
        file.seek(offset)
        try:
            for record in _records(_Tail(file)):
                return _read(record, offset, starts_member=True).response
        except OSError:
            pass
    return None


def _is_original(found: Response, revisit: Response) -> bool:
    headers = revisit.warc_headers
    refers_to = _url(headers.get("WARC-Refers-To-Target-URI")), headers.get("WARC-Refers-To-Date").strip()
    digest = headers.get("WARC-Payload-Digest").strip()
    if found.damage or found.is_revisit or (found.url, found.date) != refers_to:
        return False
    return not digest.startswith("sha1:") or digest[5:] == base64.b32encode(hashlib.sha1(found.raw).digest()).decode()


def _url(value: str) -> str:
    return value.strip().removeprefix("<").removesuffix(">")


def _with_http(response: Response, block: bytes) -> Response:
    head = split_http(block)
    if head is None:
        response.damage = "damaged_http"
    else:
        response.status, response.http_headers, response.raw = head
    return response


def _no_warc(location: str, file: BinaryIO) -> InputError:
    file.seek(0)
    start = file.read(_START_BYTES)
    if start.startswith(_GZIP_START):
        try:
            start = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(start, _START_BYTES)
        except zlib.error:
            start = b""
    if start.startswith(b"filedesc:"):
        return InputError(
            f"'{location}' is an ARC file, not WARC", "convert it first: warcio recompress OLD NEW.warc.gz"
        )
    return InputError(f"'{location}' holds no WARC record", "give a .warc, .warc.gz, .warc.zst or .warc.lz4 file")
