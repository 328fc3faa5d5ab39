"""Reads one WARC record from an archive, with bounds, and checks the digests that it states.

The record is a response, or a revisit that names the record with its body (WARC 1.1 §6.7.2, profile
identical-payload-digest).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import zlib
from dataclasses import dataclass, replace

from webtext.base.warc.response import plain_url, utc_seconds
from webtext.base.web.content_coding import dechunk
from webtext.base.web.http_head import Headers, split_http
from webtext.base.web.urls import canonical_url
from webtext.crawl.archives.captures import not_archived
from webtext.crawl.pages.exchange import Exchange
from webtext.crawl.pages.reasons import ARCHIVE_DAMAGED
from webtext.crawl.pages.visit import FetchFailed

MAX_HEAD_BYTES = 1 << 20  # a record's WARC head and HTTP head together
_GZIP_START = b"\x1f\x8b"
_IDENTICAL_PAYLOAD = "/revisit/identical-payload-digest"  # how the profile's URI ends, in WARC 1.0 and 1.1


@dataclass(frozen=True, slots=True)
class Original:
    """The record that a revisit refers to."""

    url: str  # canonical
    captured: int  # UTC seconds
    digest: str  # SHA-1 of its payload in base 32


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """A response, or a revisit whose body is in the record that `original` describes.

    `digests` are SHA-1 digests in base 32: a response's payload with and without chunks, or the one a revisit states.
    """

    record_id: str
    capture: Exchange
    digests: frozenset[str]
    original: Original | None = None

    def with_body_of(self, found: ArchivedRecord) -> Exchange:
        """Return the page of this revisit, with the body of `found`. Raises FetchFailed if `found` is not its original."""
        original, theirs = self.original, found.capture
        if original is None or found.original is not None or original.digest not in found.digests:
            raise not_archived("the original of a revisit has another body")
        if (original.url, original.captured) != (theirs.url, theirs.captured):
            raise not_archived("the original of a revisit is another record")
        body = dechunk(theirs.body) if _is_chunked(theirs) else theirs.body
        return replace(self.capture, body=body, truncated=theirs.truncated, head=None)


def read_archived_record(data: bytes, max_bytes: int) -> ArchivedRecord:
    """Read the response or revisit record in `data`, which is one compressed member or uncompressed.

    Raises FetchFailed: `too_large` for a body above max_bytes, `archive_damaged` for a record that is incomplete, has
    another type or does not match its digests, `not_archived` for a revisit that does not name its original exactly.
    Memory: a little more than max_bytes, even if `data` is a decompression bomb.
    """
    from fastwarc.warc import ArchiveIterator

    room = max_bytes + MAX_HEAD_BYTES
    try:
        plain = zlib.decompressobj(31).decompress(data, room) if data.startswith(_GZIP_START) else data
        for record in ArchiveIterator(io.BytesIO(plain), parse_http=False):
            headers = Headers(tuple((_text(name), _text(value)) for name, value in record.headers.items_bytes()))
            if record.content_length > room:
                raise FetchFailed("too_large", f"{record.content_length} bytes in the archive")
            block = record.reader.read(record.content_length)
            if len(block) < record.content_length and len(plain) < room:
                raise FetchFailed(ARCHIVE_DAMAGED, "the record is incomplete")
            return _checked(headers, block, max_bytes)
    except (zlib.error, OSError, ValueError) as error:
        raise FetchFailed(ARCHIVE_DAMAGED, f"{type(error).__name__}: {error}") from None
    raise FetchFailed(ARCHIVE_DAMAGED, "no WARC record found")


def _checked(headers: Headers, block: bytes, max_bytes: int) -> ArchivedRecord:
    kind = headers.get("WARC-Type").strip().lower()
    if kind not in ("response", "revisit"):
        raise FetchFailed(ARCHIVE_DAMAGED, f"the record has type {kind!r}")
    split = split_http(block)
    url, captured = _url(headers.get("WARC-Target-URI")), utc_seconds(headers.get("WARC-Date"))
    original = _original(headers) if kind == "revisit" else None
    if split is None or url is None or captured is None:
        raise FetchFailed(ARCHIVE_DAMAGED, "the record has no HTTP response, no URL or no date")
    status, http, body = split
    if len(body) > max_bytes:
        raise FetchFailed("too_large", f"{len(body)} bytes in the archive")
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in http.fields]
    capture = Exchange(
        url=url,
        captured=captured,
        status=status,
        headers=fields,
        body=body,
        truncated=truncation(headers),
        head=block.removesuffix(body),
    )
    _verify("WARC-Block-Digest", headers, [block])
    if original is not None:
        digests = frozenset({original.digest})
    else:
        payloads = [body, dechunk(body)] if _is_chunked(capture) else [body]
        if not headers.get("WARC-Segment-Number"):  # otherwise it is the digest of all segments
            _verify("WARC-Payload-Digest", headers, payloads)
        digests = frozenset(base64.b32encode(hashlib.sha1(payload).digest()).decode() for payload in payloads)
    record_id = headers.get("WARC-Record-ID").strip().removeprefix("<").removesuffix(">")
    return ArchivedRecord(record_id, capture, digests, original)


def truncation(headers: Headers) -> str | None:
    """Return why a response's record lacks a part of its body; None if it has all, or is a revisit, which has no body.

    Of a response in several records, only the first is a `response` (WARC 1.1 §7): the others are not read.
    """
    reason = headers.get("WARC-Truncated").strip() or (headers.get("WARC-Segment-Number") and "length")
    if not reason or headers.get("WARC-Type").strip().lower() == "revisit":
        return None
    return reason if reason.isalpha() else "unspecified"


def _original(headers: Headers) -> Original:
    """Return the record that a revisit refers to. Raises FetchFailed if its URL, date or digest is missing."""
    url = _url(headers.get("WARC-Refers-To-Target-URI"))
    captured = utc_seconds(headers.get("WARC-Refers-To-Date"))
    algorithm, _, stated = headers.get("WARC-Payload-Digest").strip().partition(":")
    digest = _decoded(stated, hashlib.sha1().digest_size) if algorithm.lower() in ("sha1", "sha-1") else b""
    is_identical = headers.get("WARC-Profile").strip().endswith(_IDENTICAL_PAYLOAD)
    if not is_identical or url is None or captured is None or not digest:
        raise not_archived("the revisit does not name its original")
    return Original(url, captured, base64.b32encode(digest).decode())


def _url(value: str) -> str | None:
    return canonical_url(plain_url(value))


def _is_chunked(capture: Exchange) -> bool:
    return "chunked" in capture.codings[0].lower()


def _verify(name: str, headers: Headers, possible: list[bytes]) -> None:
    """Raise FetchFailed if the record states a digest of a known kind and none of `possible` has it."""
    algorithm, colon, stated = headers.get(name).strip().partition(":")
    algorithm = algorithm.lower().replace("-", "")
    if not colon or algorithm not in ("sha1", "sha256", "sha512", "md5"):
        return
    digests = [hashlib.new(algorithm, data).digest() for data in possible]
    if _decoded(stated, len(digests[0])) not in digests:
        raise FetchFailed(ARCHIVE_DAMAGED, f"{name} does not match")


def _decoded(digest: str, n_bytes: int) -> bytes:
    """Decode a digest from base 16 or base 32, whichever yields `n_bytes` bytes; b"" if neither does."""
    for decode in (binascii.unhexlify, lambda text: base64.b32decode(text.upper() + "=" * (-len(text) % 8))):
        try:
            found = decode(digest)
        except (binascii.Error, ValueError):
            continue
        if len(found) == n_bytes:
            return bytes(found)
    return b""


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
