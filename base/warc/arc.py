"""Reader for ARC, the Internet Archive's format before WARC: yields every HTTP response and every damaged stretch.

A record is a line, `URL IP-address date content-type [more fields in version 2] length`, followed by that many bytes.
Records are either uncompressed or one gzip member each. fastwarc rejects ARC files, and warcio stops at the first
damage.
"""

from __future__ import annotations

import contextlib
import io
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from webtext.base.warc.member import Member
from webtext.base.warc.response import LENGTH_IS_WRONG, MAX_RECORD_BYTES, Response, with_http
from webtext.base.warc.scan import GZIP_START, MAX_MORE_DAMAGED, next_start

ARC_SUFFIXES = (".arc", ".arc.gz")
ARC_START = b"filedesc:"
_MAX_LINE_BYTES = _READ_BYTES = 64 << 10
_MAX_SKIPPED_LINES = 1 << 16  # per gzip member, which can decompress to a thousand times its own size
# The URL may contain spaces. In version 1 the content type follows the date; version 2 adds status, checksum,
# location, offset and file name. Both end with the length. The lookahead checks for it first, because matching a line
# of many dates without a length would take quadratic time.
_RECORD_LINE = re.compile(
    rb"(?=.* \d{1,12}\r?\n)"
    rb"(?P<url>[A-Za-z][A-Za-z0-9+.-]*:.*?) [^ ]* (\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d) (?:.* )?(?P<length>\d{1,12})\r?\n"
)


def read_arc(file: BinaryIO) -> Iterator[Response]:
    """Yield the responses of an ARC file in order; a damaged stretch is a `Response` with `damage` and no body.

    `file` may also contain just some complete records of an ARC file. Records of other protocols (filedesc, DNS) are
    skipped. Memory: two records, regardless of the file's content.
    """
    file.seek(0)
    is_gzip = file.read(len(GZIP_START)) == GZIP_START
    size = file.seek(0, io.SEEK_END)
    start: int | None = 0
    n_more_damaged = 0
    while start is not None and start < size and n_more_damaged < MAX_MORE_DAMAGED:
        member = Member(file, start, is_gzip)
        last: Response | None = None
        n_records = 0
        with contextlib.suppress(zlib.error):
            for response in _records(io.BufferedReader(member, _READ_BYTES), _MAX_SKIPPED_LINES if is_gzip else size):
                if last is not None and _is_wanted(last):
                    yield last
                last = response
                n_records += 1
                n_more_damaged += 1 if last.damage in LENGTH_IS_WRONG else -1
                if is_gzip:
                    last.offset = last.length = None  # set below if the member contains only this record
        if last is not None and is_gzip and n_records == 1 and member.ended:
            last.offset, last.length = start, member.end - start
        if last is not None and _is_wanted(last):
            yield last
        if not member.ended and not (last and last.damage):
            yield Response(offset=start, length=None, damage="damaged_record")
            n_more_damaged += 1
        start = member.end if member.ended else next_start(file, start + 1, GZIP_START)


def _is_wanted(response: Response) -> bool:
    return not response.url or response.url.startswith(("http:", "https:"))


def _records(text: io.BufferedReader, max_skipped_lines: int) -> Iterator[Response]:
    """Yield every record, whatever its protocol; stop after `max_skipped_lines` consecutive lines that start no record.

    `offset` and `length` refer to the decompressed text.
    """
    at = n_skipped = 0
    in_damage = False
    while n_skipped <= max_skipped_lines and (line := text.readline(_MAX_LINE_BYTES)):
        start, at = at, at + len(line)
        n_skipped += 1
        if not line.strip():
            continue
        fields = _RECORD_LINE.fullmatch(line)
        if fields is None and not in_damage:  # report a stretch once, however many lines it has
            yield Response(offset=start, length=None, damage="damaged_record")
        in_damage = fields is None
        if fields is None:
            continue
        length, n_skipped = int(fields["length"]), 0
        end = at + length
        block = text.read(min(length, MAX_RECORD_BYTES))
        at += len(block)
        while at < end and (rest := text.read(min(_READ_BYTES, end - at))):
            at += len(rest)
        response = Response(
            offset=start,
            length=at - start,
            url=fields["url"].decode("utf-8", "replace"),
            date="{}-{}-{}T{}:{}:{}Z".format(*(each.decode() for each in fields.groups()[1:7])),
        )
        if len(block) == length:
            with_http(response, block)
        else:
            response.damage = "record_too_large" if at == end else "record_cut_short"
        yield response
