"""CDXJ, the index of a WARC file, as pywb writes it: one line per page, `KEY TIMESTAMP {JSON}`, sorted as bytes.

`offset`, `length` and `filename` locate the gzip member of the page's record, which can be read alone.
"""

from __future__ import annotations

import calendar
import functools
import re
import time
from collections.abc import Iterable

import msgspec

from webtext.crawl.surt import surt

_STAMP = re.compile(r"\d{14}")
REVISIT_TYPE = "warc/revisit"  # replaces the media type if the record only refers to the body of another one


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
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(captured))


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
