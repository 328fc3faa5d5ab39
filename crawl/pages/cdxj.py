"""CDXJ, the index beside a WARC file, as pywb writes it: one line for each page, `KEY TIMESTAMP {JSON}`, sorted as bytes.

`offset`, `length` and `filename` name the gzip member of the page's record, which can be read alone.
"""

from __future__ import annotations

import calendar
import functools
import time
from collections.abc import Iterable

import msgspec

from webtext.crawl.archives.surt import surt

REVISIT_TYPE = "warc/revisit"  # stands for the media type where the record only refers to another's body


def index_line(url: str, captured: int, **fields: str | int) -> str:
    """The line of one record, without line end; `fields` in their order, numbers as strings.

    >>> index_line("http://example.com/", 0, status=200)
    'com,example)/ 19700101000000 {"url":"http://example.com/","status":"200"}'
    """
    texts = {"url": url} | {name: str(value) for name, value in fields.items()}
    return f"{surt(url)} {_stamp(captured)} {msgspec.json.encode(texts).decode()}"


@functools.lru_cache(maxsize=64)  # many pages come in one second
def _stamp(captured: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(captured))


def read_index_line(line: str) -> tuple[int, dict[str, str]]:
    """The inverse: the time of capture (UTC seconds) and the fields; ValueError when it is no such line."""
    _, stamp, fields = line.split(" ", 2)
    return calendar.timegm(time.strptime(stamp, "%Y%m%d%H%M%S")), msgspec.json.decode(fields, type=dict[str, str])


def index_bytes(lines: Iterable[str]) -> bytes:
    """The index file."""
    return "".join(f"{line}\n" for line in sorted(lines)).encode()
