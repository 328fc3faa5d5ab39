"""WARC/1.1 records around the bytes of an HTTP exchange as they came over the wire, and a CDXJ index beside them.

Each record is its own gzip member, *stored* (level 0): bodies mostly come gzipped, and compressing them again was measured
at 10 times the CPU of the whole fetch. Nothing is decoded. One thing differs from the wire: the HTTP client has removed
the chunks, so `Transfer-Encoding` is renamed `X-Crawler-Transfer-Encoding` and `Content-Length` fits what is stored.
Follows WARC 1.1 (ISO 28500:2017), the layout of Common Crawl's files, and CDXJ as pywb writes it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from webtext.crawl.surt import surt

Headers = Sequence[tuple[bytes, bytes]]

RENAMED_TRANSFER_ENCODING = b"X-Crawler-Transfer-Encoding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its response, as bytes; the body without chunks but otherwise as it came.

    One that comes from an archive has no request and no address. Where it comes as a record, `head` is the record's HTTP
    head and the body all that follows: both are stored as they are.
    """

    url: str
    captured: int  # UTC seconds
    address: str | None = None
    method_line: bytes | None = None  # b"GET / HTTP/1.1"
    request_headers: Headers = ()
    status: int
    status_line: bytes  # b"HTTP/1.1 200 OK"
    headers: Headers
    body: bytes
    identified_type: str | None  # by the body's first bytes
    head: bytes | None = None
    origin: Sequence[tuple[str, str]] = ()  # more fields of the response record: which archive it comes from


@dataclass(frozen=True, slots=True)
class Place:
    """Where a response record lies: byte offset and length of its gzip member."""

    offset: int
    length: int


class WarcWriter:
    """Writes one WARC file and collects its index. The first record says who made it and how."""

    def __init__(self, path: Path, name: str, about: Mapping[str, str]) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
        self._name = name
        self._offset = 0
        self._index: list[tuple[str, str, str]] = []
        date = warc_date(int(time.time()))
        fields = "".join(f"{key}: {value}\r\n" for key, value in about.items()).encode()
        header = [("WARC-Type", "warcinfo"), ("WARC-Record-ID", _record_id(b"warcinfo", name.encode(), date.encode()))]
        header += [("WARC-Date", date), ("WARC-Filename", name), ("Content-Type", "application/warc-fields")]
        self._write([*header, ("WARC-Block-Digest", _sha1(fields))], fields)

    def __enter__(self) -> WarcWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing more can be written."""
        self._file.close()

    @property
    def n_bytes(self) -> int:
        """Bytes written so far."""
        return self._offset

    def write(self, exchange: Exchange) -> Place:
        """Append the response and request records of `exchange`; returns the place of the response."""
        date = warc_date(exchange.captured)
        head = exchange.head
        if head is None:
            head = _http_block(exchange.status_line, stored_headers(exchange.headers, len(exchange.body)))
        response = head + exchange.body
        payload_digest = _sha1(exchange.body)
        block_digest = _sha1(response)
        identity = (exchange.url.encode(), date.encode(), block_digest.encode())
        response_id, request_id = _record_id(b"response", *identity), _record_id(b"request", *identity)
        common = [("WARC-Date", date), ("WARC-Target-URI", exchange.url)]
        if exchange.address is not None:
            common.append(("WARC-IP-Address", exchange.address))
        header = [("WARC-Type", "response"), ("WARC-Record-ID", response_id), *common, *exchange.origin]
        header += [("Content-Type", "application/http;msgtype=response"), ("WARC-Payload-Digest", payload_digest)]
        if exchange.identified_type is not None:
            header.append(("WARC-Identified-Payload-Type", exchange.identified_type))
        place = self._write([*header, ("WARC-Block-Digest", block_digest)], response)
        if exchange.method_line is not None:
            request = _http_block(exchange.method_line, exchange.request_headers)
            header = [("WARC-Type", "request"), ("WARC-Record-ID", request_id), *common]
            header += [("Content-Type", "application/http;msgtype=request"), ("WARC-Concurrent-To", response_id)]
            self._write([*header, ("WARC-Block-Digest", _sha1(request))], request)
        self._add_to_index(exchange, place, payload_digest)
        return place

    def cdxj(self) -> bytes:
        """The index of what was written: one line per response, sorted by key and time."""
        return "".join(f"{key} {stamp} {fields}\n" for key, stamp, fields in sorted(self._index)).encode()

    def _write(self, header: list[tuple[str, str]], block: bytes) -> Place:
        lines = "".join(f"{name}: {value}\r\n" for name, value in [*header, ("Content-Length", str(len(block)))])
        deflate = zlib.compressobj(0, zlib.DEFLATED, 31)
        member = deflate.compress(b"WARC/1.1\r\n" + lines.encode() + b"\r\n" + block + b"\r\n\r\n") + deflate.flush()
        self._file.write(member)
        place = Place(self._offset, len(member))
        self._offset += len(member)
        return place

    def _add_to_index(self, exchange: Exchange, place: Place, payload_digest: str) -> None:
        media_type = next((value for name, value in exchange.headers if name.lower() == b"content-type"), b"unk")
        fields = {
            "url": exchange.url,
            "mime": media_type.decode("latin-1").partition(";")[0].strip().lower() or "unk",
            "status": str(exchange.status),
            "digest": payload_digest.partition(":")[2],
            "length": str(place.length),
            "offset": str(place.offset),
            "filename": self._name,
        }
        stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(exchange.captured))
        self._index.append((surt(exchange.url), stamp, json.dumps(fields, ensure_ascii=False)))


def warc_date(seconds: int) -> str:
    """A WARC-Date.

    >>> warc_date(0)
    '1970-01-01T00:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def stored_headers(headers: Headers, body_length: int) -> Headers:
    """The response's headers, made true for a body whose transfer coding has been removed.

    >>> stored_headers([(b"Transfer-Encoding", b"chunked")], 5)
    [(b'X-Crawler-Transfer-Encoding', b'chunked'), (b'Content-Length', b'5')]
    """
    if not any(name.lower() == b"transfer-encoding" for name, _ in headers):
        return headers
    stored = []
    for name, value in headers:
        if name.lower() == b"transfer-encoding":
            stored.append((RENAMED_TRANSFER_ENCODING, value))
        elif name.lower() != b"content-length":
            stored.append((name, value))
    return [*stored, (b"Content-Length", str(body_length).encode())]


def _http_block(first_line: bytes, headers: Headers) -> bytes:
    return b"\r\n".join([first_line, *(name + b": " + value for name, value in headers), b"", b""])


def _sha1(data: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def _record_id(*parts: bytes) -> str:
    """A function of what the record holds: the same exchange written twice has the same id."""
    digest = hashlib.sha256(b"\n".join(parts)).digest()
    return f"<urn:uuid:{uuid.UUID(bytes=digest[:16], version=5)}>"
