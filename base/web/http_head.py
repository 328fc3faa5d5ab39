"""Parser for the head of an archived HTTP/1 response, as tolerant as a browser.

Bare line feeds, folded lines, lines that aren't headers and Latin-1 bytes occur in every crawl (RFC 9112 §2.2, §5.2).
"""

from __future__ import annotations

import re

_MAX_HEAD_BYTES = 256 << 10
_MAX_INTERIM = 16  # responses with a 1xx status before the final one
_HEAD_END = re.compile(rb"\n\r?\n")  # not what may precede it, which would take five times as long
_STATUS_LINE = re.compile(r"HTTP/\d(?:\.\d)?[ \t]+(\d{3})(?!\d)")


class Headers:
    """Header fields in their original order; names are case-insensitive."""

    __slots__ = ("_first", "fields")

    def __init__(self, fields: tuple[tuple[str, str], ...] = ()) -> None:
        self.fields = fields
        self._first: dict[str, str] | None = None  # by lower-case name; built on first use

    @property
    def first(self) -> dict[str, str]:
        """The first value of each name, by lower-case name."""
        if self._first is None:
            self._first = {known.lower(): value for known, value in reversed(self.fields)}
        return self._first

    def get(self, name: str, default: str = "") -> str:
        return self.first.get(name.lower(), default)

    def joined(self, name: str) -> str:
        """Return all values of `name` joined by commas, the meaning of repeated fields in RFC 9110 §5.3."""
        return ", ".join(value for known, value in self.fields if known.lower() == name.lower())

    def __repr__(self) -> str:
        return f"Headers({self.fields!r})"


def split_http(block: bytes) -> tuple[int, Headers, bytes] | None:
    """Split a response into status, headers and body; None if it has no status line, or if a huge head doesn't end.

    Interim responses (1xx) before the final one are skipped; the result is None if there are more than sixteen.

    >>> split_http(b"HTTP/1.1 200 OK\\r\\nA: b\\r\\n\\r\\nbody")
    (200, Headers((('A', 'b'),)), b'body')
    """
    start = 0
    for _ in range(_MAX_INTERIM + 1):
        end = _HEAD_END.search(block, start, start + _MAX_HEAD_BYTES)
        if not end and len(block) - start > _MAX_HEAD_BYTES:
            return None
        head_end, body_start = (end.start(), end.end()) if end else (len(block), len(block))
        text = block[start:head_end].decode("latin-1").replace("\r\n", "\n").removesuffix("\r")
        first, *lines = text.split("\n")
        status_line = _STATUS_LINE.match(first)
        if not status_line:
            return None
        status = int(status_line[1])
        if not (100 <= status < 200 and block.startswith(b"HTTP/", body_start)):
            return status, _fields(lines, folded="\n " in text or "\n\t" in text), block[body_start:]
        start = body_start
    return None


def media_type(content_type: str) -> str:
    """Return the type that a Content-Type names, without parameters, in lower case; empty if it names none.

    >>> media_type('Text/HTML ; charset="utf-8"'), media_type("text/html charset=utf-8"), media_type(" ;")
    ('text/html', 'text/html', '')
    """
    return re.split(r"[;,\s]", content_type.lstrip(), maxsplit=1)[0].lower()


def _fields(lines: list[str], *, folded: bool) -> Headers:
    """Parse header lines; lines that aren't headers are skipped, and a folded line continues the one before."""
    if not folded:
        split = [line.partition(":") for line in lines]
        return Headers(tuple([(name.strip(), value.strip()) for name, colon, value in split if colon]))
    fields: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if line.startswith((" ", "\t")) and fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {line.strip()}".strip())
        elif colon:
            fields.append((name.strip(), value.strip()))
    return Headers(tuple(fields))
