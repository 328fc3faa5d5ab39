"""Writes WARC/1.1 records of HTTP exchanges, byte for byte as they came over the wire, and a CDXJ line for each.

Each record is its own gzip member, *stored*: bodies mostly come gzipped, and compressing them again was measured at 10
times the CPU of the entire fetch. Nothing is decoded. One thing differs from the wire: the HTTP client has removed the
chunks, so `Transfer-Encoding` is renamed `X-Crawler-Transfer-Encoding` and `Content-Length` fits what is stored.
A body that is already in the file is not stored again: a `revisit` record refers to it.
Follows WARC 1.1 (ISO 28500:2017), and the layout of Common Crawl's files.

CDXJ is the index of a WARC file as pywb writes it: one line per page, `KEY TIMESTAMP {JSON}`, sorted as bytes. `offset`,
`length` and `filename` locate the gzip member of the page's record, which can be read alone.
"""

from __future__ import annotations

import calendar
import functools
import hashlib
import itertools
import os
import re
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from webtext.base.web.http_head import media_type
from webtext.crawl.pages.exchange import Exchange, Headers
from webtext.crawl.pages.surt import surt

try:
    from isal.isal_zlib import crc32  # takes a tenth of zlib's time, but not every platform has a wheel
except ImportError:
    from zlib import crc32

Pieces = list[bytes | memoryview]

RENAMED_TRANSFER_ENCODING = b"X-Crawler-Transfer-Encoding"
IDENTICAL_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_CONTENT_TYPES = {
    "warcinfo": "application/warc-fields",
    "response": "application/http;msgtype=response",
    "revisit": "application/http;msgtype=response",
    "request": "application/http;msgtype=request",
}
_SHA1 = "sha1:"
_NO_BODY = _SHA1 + "3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"  # digest of an empty body
_BASE32_PAIRS = [a + b for a, b in itertools.product("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", repeat=2)]
_PIECES_AT_A_TIME = 1000  # IOV_MAX is 1024
_NOT_IN_A_LINE = re.compile(r"[\x00-\x20\x7f-\x9f]")
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no flags, no time, unknown system
_BLOCK_BYTES = 0xFFFF  # the largest stored block
_SMALL_BYTES = 4096  # up to this size, copying costs less than passing on a separate piece
_BLOCK_HEAD = struct.Struct("<BHH")  # whether it is the last block, its length, the length's complement
_LAST_BLOCK = _BLOCK_HEAD.pack(1, 0, 0xFFFF)
_TRAILER = struct.Struct("<II")
_STAMP = re.compile(r"\d{14}")
REVISIT_TYPE = "warc/revisit"  # replaces the media type if the record only refers to the body of another one


@dataclass(slots=True)
class Stored:
    """The position of an exchange in its file."""

    offset: int  # of the gzip member with its response or revisit record
    length: int  # of that member
    end: int  # of the last member of the exchange
    index_line: str  # CDXJ, without line end


@dataclass(slots=True)
class _Original:
    """A response whose body later revisit records may refer to."""

    url: str
    date: str
    offset: int


class WarcWriter:
    """Writes one WARC file, which starts with a warcinfo record.

    Each exchange is written to the file at once, so a killed process leaves at most one incomplete record. The file's
    SHA-256 is computed when it is published: on the way it would save 7 µs per page, and a killed run would have to hash
    what it finds.
    Memory: 500 bytes for each distinct body.
    """

    def __init__(
        self, path: Path, name: str, about: Mapping[str, str], end: int = 0, index_lines: Iterable[str] = ()
    ) -> None:
        """Start a file, or resume one at offset `end` and cut off the rest; `index_lines` are its exchanges so far."""
        self._name = name
        self._originals: dict[str, _Original] = {}
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        os.ftruncate(self._file, end)
        self.n_bytes = end
        for line in index_lines:
            self._register(line)
        if not end:
            self._write(_warcinfo(name, about))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def write(self, exchange: Exchange) -> Stored:
        """Append the response and request records of `exchange`. If the body is in the file, write a revisit record."""
        url = _one_line(exchange.url)
        date = warc_date(exchange.captured)
        digest = _sha1(exchange.body)
        original = self._originals.get(digest)
        response_id = _record_id("response", url, date, digest)
        common = f"WARC-Date: {date}\r\nWARC-Target-URI: {url}\r\n"
        if exchange.address is not None:
            common += f"WARC-IP-Address: {exchange.address}\r\n"
        fields = common + "".join(f"{name}: {value}\r\n" for name, value in exchange.origin)
        fields += f"WARC-Payload-Digest: {digest}\r\n"
        if exchange.identified_type is not None:
            fields += f"WARC-Identified-Payload-Type: {exchange.identified_type}\r\n"
        head = exchange.head
        if head is None:
            status_line = exchange.status_line or b"HTTP/1.1 %d" % exchange.status
            head = _http_head(status_line, stored_headers(exchange.headers, len(exchange.body)))
        if original is None:
            fields += f"WARC-Truncated: {exchange.truncated}\r\n" if exchange.truncated else ""
            response = _record("response", response_id, fields, head, exchange.body)
        else:
            response = _record("revisit", response_id, fields + self._reference(original, digest), head)
        request: Pieces = []
        if exchange.request is not None:
            fields = f"{common}WARC-Concurrent-To: {response_id}\r\n"
            request = _record("request", _record_id("request", url, date, digest), fields, exchange.request)
        offset, length = self.n_bytes, sum(map(len, response))
        self._write(response + request)
        if original is None and exchange.body:
            self._originals[digest] = _Original(url, date, offset)
        kind = media_type(exchange.header("content-type") or "") if original is None else REVISIT_TYPE
        line = index_line(
            url,
            exchange.captured,
            mime=kind or "unk",
            status=exchange.status,
            digest=digest.removeprefix(_SHA1),
            length=length,
            offset=offset,
            filename=self._name,
        )
        return Stored(offset, length, self.n_bytes, line)

    def _reference(self, original: _Original, digest: str) -> str:
        """Return the headers that locate the record with the body. File name and offset are Heritrix's extension."""
        return (
            f"WARC-Profile: {IDENTICAL_PAYLOAD}\r\nWARC-Truncated: length\r\n"
            f"WARC-Refers-To: {_record_id('response', original.url, original.date, digest)}\r\n"
            f"WARC-Refers-To-Target-URI: {original.url}\r\nWARC-Refers-To-Date: {original.date}\r\n"
            f"WARC-Refers-To-Filename: {self._name}\r\nWARC-Refers-To-File-Offset: {original.offset}\r\n"
        )

    def _register(self, line: str) -> None:
        """Register an exchange of the resumed file as an original, as `write` did."""
        captured, fields = read_index_line(line)
        digest = _SHA1 + fields["digest"]
        if fields["mime"] != REVISIT_TYPE and digest != _NO_BODY:
            self._originals[digest] = _Original(fields["url"], warc_date(captured), int(fields["offset"]))

    def _write(self, pieces: Pieces) -> None:
        """Write all pieces. An error (a full disk) leaves an incomplete record after the last complete one."""
        end = self.n_bytes
        for start in range(0, len(pieces), _PIECES_AT_A_TIME):
            some = pieces[start : start + _PIECES_AT_A_TIME]
            n_bytes = sum(map(len, some))
            n_written = os.pwritev(self._file, some, end)
            while n_written < n_bytes:  # the disk is almost full: writing the rest raises the error
                n_written += os.pwrite(self._file, b"".join(some)[n_written:], end + n_written)
            end += n_bytes
        self.n_bytes = end


@functools.lru_cache(maxsize=64)  # many pages have the same second
def warc_date(seconds: int) -> str:
    """Format UTC seconds as a WARC-Date.

    >>> warc_date(0), warc_date(-33_765_897_600)
    ('1970-01-01T00:00:00Z', '0900-01-01T00:00:00Z')
    """
    return "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z".format(*time.gmtime(seconds))  # strftime's years may be shorter


def stored_headers(headers: Headers, body_length: int) -> Headers:
    """Return the response's headers, corrected for a body whose transfer coding has been removed.

    >>> stored_headers([(b"Transfer-Encoding", b"chunked")], 5)
    [(b'X-Crawler-Transfer-Encoding', b'chunked'), (b'Content-Length', b'5')]
    """
    if b"transfer-encoding" not in [name.lower() for name, _ in headers]:
        return headers
    new_names = {b"transfer-encoding": RENAMED_TRANSFER_ENCODING}
    kept = [(new_names.get(name.lower(), name), value) for name, value in headers if name.lower() != b"content-length"]
    return [*kept, (b"Content-Length", str(body_length).encode())]


def _warcinfo(name: str, about: Mapping[str, str]) -> Pieces:
    date = warc_date(int(time.time()))
    fields = "".join(f"{key}: {value}\r\n" for key, value in about.items()).encode()
    headers = f"WARC-Date: {date}\r\nWARC-Filename: {name}\r\n"
    return _record("warcinfo", _record_id("warcinfo", name, date), headers, fields)


def _record(kind: str, record_id: str, headers: str, block: bytes, body: bytes = b"") -> Pieces:
    """Return a record whose block is `block` + `body`. With a body, `headers` must contain the payload digest.

    Such a record gets no block digest, so that the body is hashed only once.
    """
    if not body:
        headers += f"WARC-Block-Digest: {_sha1(block)}\r\n"
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {record_id}\r\n{headers}"
        f"Content-Type: {_CONTENT_TYPES[kind]}\r\nContent-Length: {len(block) + len(body)}\r\n\r\n"
    )
    if not body:
        return stored_member(head.encode() + block + b"\r\n\r\n")
    return stored_member(head.encode() + block, body, b"\r\n\r\n")


def _http_head(first_line: bytes, headers: Headers) -> bytes:
    return b"\r\n".join([first_line, *[b": ".join(header) for header in headers], b"", b""])


def _sha1(data: bytes) -> str:
    """Return the SHA-1 in base 32, as WARC files have it. `base64.b32encode` takes 14 µs, like hashing a small page."""
    number = int.from_bytes(hashlib.sha1(data).digest(), "big")
    return _SHA1 + "".join([_BASE32_PAIRS[number >> shift & 0x3FF] for shift in range(150, -1, -10)])


def _one_line(url: str) -> str:
    """Percent-encode the characters of `url` that would end a header line or an index field."""
    return _NOT_IN_A_LINE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), url)


def _record_id(*parts: str) -> str:
    """Derive the record's id (a UUID of version 5) from its contents, so that equal exchanges have equal ids."""
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"<urn:uuid:{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}>"


def stored_member(*data: bytes) -> list[bytes | memoryview]:
    """Return the pieces of one gzip member that stores `data`, concatenated (RFC 1952, blocks of type 0 of RFC 1951).

    zlib's level 0 does the same at 7 times the CPU: 115 µs for 36 KB, where this takes 15 µs (with zlib's checksum).
    Large data are not copied.

    >>> import gzip
    >>> gzip.decompress(b"".join(stored_member(b"hello ", b"world")))
    b'hello world'
    """
    pieces: list[bytes | memoryview] = []
    small = [_GZIP_HEAD]  # to be joined into one piece
    checksum = size = 0
    for each in data:
        for start in range(0, len(each), _BLOCK_BYTES):
            block = each if len(each) <= _BLOCK_BYTES else memoryview(each)[start : start + _BLOCK_BYTES]
            small.append(_BLOCK_HEAD.pack(0, len(block), len(block) ^ 0xFFFF))
            if len(block) <= _SMALL_BYTES:
                small.append(bytes(block))
            else:
                pieces += b"".join(small), block
                small = []
        checksum = crc32(each, checksum)
        size += len(each)
    small += _LAST_BLOCK, _TRAILER.pack(checksum, size & 0xFFFFFFFF)
    pieces.append(b"".join(small))
    return pieces


def index_line(url: str, captured: int, **fields: str | int) -> str:
    """Return the line of one record, without its line end. `fields` keep their order; numbers become strings.

    >>> index_line("http://example.com/", 0, status=200)
    'com,example)/ 19700101000000 {"url":"http://example.com/","status":"200"}'
    """
    texts = {"url": url} | {name: str(value) for name, value in fields.items()}
    return f"{surt(url)} {stamp(captured)} {msgspec.json.encode(texts).decode()}"


@functools.lru_cache(maxsize=64)  # many pages have the same second
def stamp(captured: int) -> str:
    """Return UTC seconds as the 14 digits of an archive's timestamp."""
    return "{:04}{:02}{:02}{:02}{:02}{:02}".format(*time.gmtime(captured))


def read_index_line(line: str) -> tuple[int, dict[str, str]]:
    """Parse a line into the time of capture (UTC seconds) and the fields. Raises ValueError for any other line."""
    _, captured, fields = line.split(" ", 2)
    return seconds_of(captured), msgspec.json.decode(fields, type=dict[str, str])


def seconds_of(captured: str) -> int:
    """Return the UTC seconds of an archive's timestamp. Raises ValueError unless it is one, of 14 digits."""
    if not _STAMP.fullmatch(captured):
        raise ValueError(f"{captured!r} is not a timestamp")
    return calendar.timegm(time.strptime(captured, "%Y%m%d%H%M%S"))


def index_bytes(lines: Iterable[str]) -> bytes:
    """Return the contents of the index file: the lines, sorted."""
    return "".join(f"{line}\n" for line in sorted(lines)).encode()
