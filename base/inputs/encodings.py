"""The encodings of text files: a stream in any of them is read as UTF-8."""

from __future__ import annotations

import codecs
import contextlib
import importlib.metadata
import re
from collections.abc import Iterator
from typing import BinaryIO

from webtext.base.decompress import reader_of
from webtext.base.errors import ConfigError

UTF_8, AUTO = "utf-8", "auto"
HEAD_BYTES, DETECTION_BYTES = 1 << 20, 16_384
_BLOCK_BYTES = 1 << 16
_INVALID = "\udcff"  # in place of what can't be decoded
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
WESTERN = "cp1252"
_WIDER = {"iso8859-1": WESTERN, "iso8859-9": "cp1254", "tis-620": "cp874", "shift_jis": "cp932", "big5": "big5hkscs"}
"""An encoding that bytes look like -> the codec that covers it, too, and is more common."""


def _invalid(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeDecodeError | UnicodeEncodeError)
    return b"\xff" if isinstance(error, UnicodeEncodeError) else _INVALID, error.end


codecs.register_error("webtext.invalid", _invalid)


def check_encoding(name: str) -> None:
    """Raise ConfigError unless `name` is an encoding of text, or AUTO."""
    try:
        "".encode(UTF_8 if name == AUTO else name)
    except (LookupError, ValueError):
        hint = "expected e.g. utf-8, windows-1252, shift_jis or auto"
        raise ConfigError(f"unknown encoding '{name}'", hint) from None


def versions_for(encoding: str) -> dict[str, str]:
    """Return the versions of the libraries that decode a file in this encoding, for a recipe."""
    return {"resiliparse": importlib.metadata.version("resiliparse")} if encoding == AUTO else {}


def detected(head: bytes) -> str:
    """Return the codec of a text by its first bytes beyond ASCII: UTF-8 if they may be it, else what they look like."""
    if 4 * head.count(0) > len(head):
        plain = "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
        return "utf-16" if head.startswith(_UTF_16) else plain
    beyond_ascii = re.search(rb"[\x80-\xff]", head)
    start = max(0, beyond_ascii.start() - 256) if beyond_ascii else 0
    sample = head[start : start + DETECTION_BYTES]
    try:
        codecs.getincrementaldecoder(UTF_8)().decode(sample)
        return UTF_8
    except UnicodeDecodeError:
        from resiliparse.parse.encoding import detect_encoding
    found = detect_encoding(sample, html5_compatible=False, from_html_meta=False) or WESTERN
    with contextlib.suppress(LookupError):
        return codecs.lookup(_WIDER.get(found, found)).name
    return WESTERN


def in_utf8(stream: BinaryIO, encoding: str, *, is_text: bool) -> BinaryIO:
    """Return a reader of the stream's characters in UTF-8; what is invalid becomes the byte FF, which UTF-8 never has.

    In a text, CRLF becomes LF and a byte order mark is removed. If a quarter of its first block is NUL, it isn't a text.
    """
    return reader_of(_in_utf8(stream, encoding, is_text))


def _in_utf8(stream: BinaryIO, encoding: str, is_text: bool) -> Iterator[bytes]:
    decoder, is_utf8 = codecs.getincrementaldecoder(encoding)("webtext.invalid"), codecs.lookup(encoding).name == UTF_8
    held, is_first, is_read = b"", True, False
    while not is_read:
        begun = decoder.getstate()[0]  # of a character whose end is in the next block
        block = stream.read(_BLOCK_BYTES)
        is_read = not block
        text = decoder.decode(block, is_read)
        if is_utf8 and _INVALID not in text:  # then encoding it again would take half of the time
            data = (begun + block).removesuffix(decoder.getstate()[0])
        else:
            data = text.encode(UTF_8, "webtext.invalid")
        if is_text:
            if is_first and data:
                data = b"\xff" if 4 * data.count(0) > len(data) else data.removeprefix(codecs.BOM_UTF8)
                is_first = False
            data, held = held + data, b""
            if data.endswith(b"\r") and not is_read:
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n")
        yield data
