"""One WARC record as an archive gives it: read with bounds, and checked against what it says of itself."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import zlib
from calendar import timegm
from dataclasses import dataclass
from datetime import datetime

from webtext.base.content_coding import dechunk
from webtext.base.http_head import Headers, split_http
from webtext.base.urls import canonical_url
from webtext.crawl.archives import Capture
from webtext.crawl.client import Failure
from webtext.crawl.reasons import ARCHIVE_DAMAGED

MAX_HEAD_BYTES = 1 << 20  # of both heads of a record, WARC's and HTTP's
_GZIP_START = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """A response record. `digests` are those of its payload: with and without chunks, as SHA-1 in base 32."""

    record_id: str
    capture: Capture
    digests: frozenset[str]


def read_record(data: bytes, max_bytes: int) -> ArchivedRecord:
    """The response record in `data`, one compressed member or plain.

    Raises Failure: `too_large` above max_bytes, `archive_damaged` where it is no whole response or breaks its digests.
    Memory: max_bytes and a little, whatever is compressed in `data`.
    """
    from fastwarc.warc import ArchiveIterator

    room = max_bytes + MAX_HEAD_BYTES
    try:
        plain = zlib.decompressobj(31).decompress(data, room) if data.startswith(_GZIP_START) else data
        for record in ArchiveIterator(io.BytesIO(plain), parse_http=False):
            headers = Headers(tuple((_text(name), _text(value)) for name, value in record.headers.items_bytes()))
            if record.content_length > room:
                raise Failure("too_large", f"{record.content_length} bytes in the archive")
            block = record.reader.read(record.content_length)
            if len(block) < record.content_length and len(plain) < room:
                raise Failure(ARCHIVE_DAMAGED, "the record breaks off")
            return _checked(headers, block, max_bytes)
    except (zlib.error, OSError, ValueError) as error:
        raise Failure(ARCHIVE_DAMAGED, f"{type(error).__name__}: {error}") from None
    raise Failure(ARCHIVE_DAMAGED, "there is no WARC record")


def _checked(headers: Headers, block: bytes, max_bytes: int) -> ArchivedRecord:
    if headers.get("WARC-Type").strip().lower() != "response":
        raise Failure(ARCHIVE_DAMAGED, f"a record of type {headers.get('WARC-Type')!r}")
    split = split_http(block)
    url = canonical_url(headers.get("WARC-Target-URI").strip().removeprefix("<").removesuffix(">"))
    captured = _seconds(headers.get("WARC-Date"))
    if split is None or url is None or captured is None:
        raise Failure(ARCHIVE_DAMAGED, "the record has no HTTP response, no URL or no date")
    status, http, body = split
    if len(body) > max_bytes:
        raise Failure("too_large", f"{len(body)} bytes in the archive")
    is_chunked = "chunked" in http.joined("Transfer-Encoding").lower()
    payloads = [body, dechunk(body)] if is_chunked else [body]
    _verify("WARC-Block-Digest", headers, [block])
    _verify("WARC-Payload-Digest", headers, payloads)
    capture = Capture(
        url=url,
        captured=captured,
        status=status,
        headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in http.fields],
        body=body,
        head=block[: len(block) - len(body)],
    )
    digests = frozenset(base64.b32encode(hashlib.sha1(payload).digest()).decode() for payload in payloads)
    return ArchivedRecord(headers.get("WARC-Record-ID").strip().strip("<>"), capture, digests)


def _verify(name: str, headers: Headers, possible: list[bytes]) -> None:
    """Failure where the record states a digest, of a kind that is known, which none of `possible` has."""
    algorithm, colon, stated = headers.get(name).strip().partition(":")
    algorithm = algorithm.lower().replace("-", "")
    if not colon or algorithm not in ("sha1", "sha256", "sha512", "md5"):
        return
    digests = [hashlib.new(algorithm, data).digest() for data in possible]
    if _decoded(stated, len(digests[0])) not in digests:
        raise Failure(ARCHIVE_DAMAGED, f"{name} does not fit")


def _decoded(digest: str, n_bytes: int) -> bytes:
    """A digest in base 16 or base 32, whichever gives that many bytes."""
    for decode in (binascii.unhexlify, lambda text: base64.b32decode(text.upper() + "=" * (-len(text) % 8))):
        try:
            found = decode(digest)
        except (binascii.Error, ValueError):
            continue
        if len(found) == n_bytes:
            return bytes(found)
    return b""


def _seconds(date: str) -> int | None:
    try:
        return timegm(datetime.fromisoformat(date.strip()).utctimetuple())
    except ValueError:
        return None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
