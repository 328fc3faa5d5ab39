"""Decoding of HTTP bodies: transfer coding (RFC 9112 §7) and content coding (RFC 9110 §8.4), with bounded output.

Archives contain bodies as servers sent them, and sometimes decoded ones under the server's original headers. So
an encoding header that contradicts the first bytes is ignored, and so is one that names no coding (`utf-8`, `none`) if
the body looks like text. Truncated data yields what was decoded before the end. The output never exceeds `max_bytes`: a
decompression bomb stops there.
"""

from __future__ import annotations

import contextlib
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping

MAX_CODINGS = 2
MAX_CHUNKS = 500_000  # half a second of CPU time; 64 MiB in chunks of one byte took ten
_FEED_BYTES = 16 << 10  # small: after each gzip member zlib copies the rest of the chunk, and there may be many members
_BROTLI_READ_BYTES = 16 << 10
_ZSTD_WINDOW_BYTES = 8 << 20  # maximum that RFC 9659 allows for HTTP
_MAX_CHUNK_LINE_BYTES = 4096
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?")

_TEXT_START = re.compile(rb"\xff\xfe|\xfe\xff|[^\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]*\Z")
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class BodyError(ValueError):
    """Raised if a body can't be decoded; `reason` is a stable key, `start` what was decoded up to an exceeded bound."""

    def __init__(self, reason: str, detail: str = "", start: bytes = b"") -> None:
        self.reason = reason
        self.start = start
        super().__init__(f"{reason}: {detail}" if detail else reason)


def decode_body(raw: bytes, transfer_encoding: str, content_encoding: str, max_bytes: int) -> bytes:
    """Undo the transfer and content coding of `raw`; the encodings are header values, repeated ones joined by commas.

    Raises BodyError with the reason 'body_too_large', 'too_many_chunks', 'too_many_content_codings',
    'unknown_content_coding' or 'damaged_body'.
    """
    body = dechunk(raw) if "chunked" in _codings(transfer_encoding) else raw
    codings, unknown = _content_codings(content_encoding)
    for coding in codings:
        body = _DECODERS[coding](body, max_bytes)
    _check_unknown(unknown, body)
    if len(body) > max_bytes:
        raise BodyError("body_too_large", f"above {max_bytes:,} bytes")
    return body


def decoded_start(raw: bytes, transfer_encoding: str, content_encoding: str, n_bytes: int) -> bytes:
    """Return the first `n_bytes` of what `decode_body` returns; raises its BodyErrors, except those of bounds."""
    try:
        body = dechunk(raw) if "chunked" in _codings(transfer_encoding) else raw
    except BodyError as error:
        body = error.start
    codings, unknown = _content_codings(content_encoding)
    for coding in codings:
        try:
            body = _DECODERS[coding](body, n_bytes)
        except BodyError as error:
            if error.reason != "body_too_large":
                raise
            body = error.start
    _check_unknown(unknown, body)
    return body[:n_bytes]


def dechunk(raw: bytes) -> bytes:
    """Join the chunks of a chunked body; a truncated body returns the chunks it has, an unchunked one is unchanged.

    Raises BodyError with the reason 'too_many_chunks' above MAX_CHUNKS.

    >>> dechunk(b"5\\r\\nhello\\r\\n6; x=y\\r\\n world\\r\\n0\\r\\n\\r\\n")
    b'hello world'
    >>> dechunk(b"<html>")
    b'<html>'
    """
    chunks: list[bytes] = []
    at = 0
    while len(chunks) <= MAX_CHUNKS:
        end = raw.find(b"\n", at, at + _MAX_CHUNK_LINE_BYTES)
        size_line = _CHUNK_SIZE.fullmatch(raw, at, end) if end >= 0 else None
        if size_line is None:
            return b"".join(chunks) if at else raw
        size = int(size_line[1], 16)
        if size == 0:
            return b"".join(chunks)
        chunks.append(raw[end + 1 : end + 1 + size])
        at = end + 1 + size
        at += 2 if raw.startswith(b"\r\n", at) else raw.startswith(b"\n", at)
    raise BodyError("too_many_chunks", f"above {MAX_CHUNKS:,}", b"".join(chunks))


def _codings(value: str) -> list[str]:
    return [coding for part in value.split(",") if (coding := part.strip().lower()) not in ("", "identity")]


def _content_codings(value: str) -> tuple[list[str], str | None]:
    """Return the codings to undo, the last one first, and a name that isn't a coding's."""
    named = _codings(value)
    known = [coding for coding in reversed(named) if coding in _DECODERS]
    if len(known) > MAX_CODINGS:
        raise BodyError("too_many_content_codings", ", ".join(known))
    return known, next((coding for coding in named if coding not in _DECODERS), None)


def _check_unknown(coding: str | None, body: bytes) -> None:
    if coding is not None and not looks_like_text(body):
        raise BodyError("unknown_content_coding", repr(coding))


def looks_like_text(data: bytes, n_bytes: int = 256) -> bool:
    """Whether the first `n_bytes` have no binary data byte (WHATWG MIME Sniffing §7.2), or begin as UTF-16."""
    return _TEXT_START.match(data[:n_bytes]) is not None


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    return (
        _collect(_inflated(data, 16 + zlib.MAX_WBITS, max_bytes), max_bytes) if data.startswith(_GZIP_MAGIC) else data
    )


def _inflate(data: bytes, max_bytes: int) -> bytes:
    """Decode 'deflate', which means the zlib format; some servers send a raw deflate stream or plain text instead."""
    if not data:
        return data
    for window_bits in (zlib.MAX_WBITS, -zlib.MAX_WBITS):
        with contextlib.suppress(zlib.error):
            return _collect(_inflated(data, window_bits, max_bytes), max_bytes, EOFError)
    if looks_like_text(data):
        return data
    # a zlib header (RFC 1950): method 8, and the first two bytes are a multiple of 31
    is_zlib = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    return _collect(_inflated(data, zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS, max_bytes), max_bytes)


def _unbrotli(data: bytes, max_bytes: int) -> bytes:
    from fastwarc.stream_io import BrotliReader

    reader = BrotliReader(io.BytesIO(data))
    try:
        return _collect(iter(lambda: reader.read(_BROTLI_READ_BYTES), b""), max_bytes) if data else data
    except BodyError as error:  # the format has no magic number, but text is never valid for long
        if error.reason == "damaged_body" and looks_like_text(data):
            return data
        raise


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    import zstandard

    if not data.startswith(_ZSTD_MAGIC):
        return data

    def pieces() -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        reader = decompressor.stream_reader(data, read_across_frames=True)
        n_pieces = 0
        while piece := reader.read(_FEED_BYTES):
            n_pieces += 1
            yield piece
        if not n_pieces and zstandard.frame_content_size(data) != 0:  # the reader reports truncation as a normal end
            raise zstandard.ZstdError("cut short")

    return _collect(pieces(), max_bytes, zstandard.ZstdError)


_DECODERS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}


def _inflated(data: bytes, window_bits: int, max_bytes: int) -> Iterator[bytes]:
    """Yield `data` inflated by zlib, over all members of a gzip body; other bytes after a member are ignored.

    A piece has at most `max_bytes` + 1 bytes, so a caller that wants only the start of a body doesn't pay for the rest.
    """
    inflater = zlib.decompressobj(window_bits)
    at = 0
    while True:
        chunk = data[at : at + _FEED_BYTES]
        piece = inflater.decompress(chunk, min(64 * _FEED_BYTES, max_bytes + 1))
        at += len(chunk) - len(inflater.unconsumed_tail) - len(inflater.unused_data)
        yield piece
        if not chunk and not piece and not inflater.eof:
            raise zlib.error("cut short")
        if inflater.eof:
            if window_bits < 16 or not data.startswith(_GZIP_MAGIC, at):
                return
            inflater = zlib.decompressobj(window_bits)


def _collect(pieces: Iterator[bytes], max_bytes: int, failure: type[Exception] = zlib.error) -> bytes:
    """Join decoded pieces up to the bound; if the decoder fails, return what it decoded before, if anything."""
    out = bytearray()
    try:
        for piece in pieces:
            out += piece
            if len(out) > max_bytes:
                raise BodyError("body_too_large", f"above {max_bytes:,} bytes", bytes(out[:max_bytes]))
    except (failure, OSError, EOFError) as error:
        if not out:
            raise BodyError("damaged_body", " ".join(str(error).split())) from None
    return bytes(out)
