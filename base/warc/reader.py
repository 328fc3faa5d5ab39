"""Reader for WARC files (ISO 28500), with fastwarc, and for ARC files: yields every HTTP response and damaged stretch.

A file may have one compressed member per record (.warc.gz, .zst, .lz4), one member around all records, or no
compression. After damage, reading resumes at the next record. The damage itself is yielded as a `Response` whose `body`
raises, so that code that counts responses also counts damage. A revisit, whose body is in another record, is a
response, too.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.base.warc.arc import ARC_START, read_arc
from webtext.base.warc.response import UNCHANGED, Response, plain_url
from webtext.base.warc.scan import GZIP_START, START_BYTES, Tail, records_of, response_of, scan_records, with_lengths

__all__ = ["UNCHANGED", "Response", "read_response_at", "read_responses"]

NOT_MODIFIED = 304


def read_responses(folder: Folder, name: str, *, follow_revisits: bool = True) -> Iterator[Response]:
    """Yield the responses of the WARC or ARC file `name`, in order; raises InputError if it contains no record at all.

    Requests, metadata and responses of other protocols (DNS) are skipped. A revisit gets the body of its original,
    which is looked up in this folder at the location that the revisit names, or earlier in this file by record id, or by
    URL and date.
    If it isn't there, a revisit of the same URL has `damage` UNCHANGED, and one of another URL 'original_not_found'.
    Without `follow_revisits`, all revisits are yielded without bodies. Memory: two records, and 200 bytes per response.
    """
    with folder.open(name) as file:
        if not file.read(1):
            return  # an empty file: its writer had nothing to write
        if _text_start(file).startswith(ARC_START):
            yield from read_arc(file)
            return
        waiting: list[Response] = []  # damage before the first record
        holds_records = False
        places: dict[int, int] = {}  # hash of a record id, or of URL and date -> offset of a response
        for scanned in with_lengths(scan_records(file), file):
            if scanned.is_record and not holds_records:
                holds_records = True
                yield from waiting
            response = scanned.response
            if response is None:
                continue
            if not response.is_revisit:
                keys = _id(response, "WARC-Record-ID"), (response.url, response.date)
                places.update(dict.fromkeys(map(hash, keys), scanned.start))
            elif follow_revisits:
                _follow(response, folder, name, places)
            if holds_records:
                yield response
            else:
                waiting.append(response)
        if waiting and not holds_records:
            raise InputError(
                f"'{folder.location(name)}' has no WARC or ARC record",
                "name a .warc, .warc.gz, .warc.zst, .warc.lz4, .arc or .arc.gz file",
            )


def read_response_at(folder: Folder, name: str, offset: int, length: int) -> Response:
    """Return the response in the `length` bytes from `offset` of file `name`; raises InputError if there is none."""
    with folder.open(name) as file:
        file.seek(offset)
        part = io.BytesIO(file.read(length))
    warc = (scanned.response for scanned in scan_records(part) if scanned.is_record)
    for response in (*warc, *read_arc(part)):
        if response is not None and (not response.damage or response.url):
            response.offset, response.length = offset, length
            if response.is_revisit:
                _follow(response, folder, name, {})
            return response
    raise InputError(
        f"no response record at offset {offset} of '{folder.location(name)}'", "check whether the file was changed"
    )


def _follow(response: Response, folder: Folder, name: str, places: Mapping[int, int]) -> None:
    """Set the body of a revisit to its original's, or set `damage` if the original isn't found.

    The original's location is in `WARC-Refers-To-Filename` and `-File-Offset`; a renamed file may still refer to itself
    by its old name. Most crawlers write no location, and then `places` is used. The id, or URL and date, and the digest of
    the record that is found must match the revisit.
    """
    if response.damage:
        return
    headers = response.warc_headers
    url, date = _refers_to(response)
    given, offset = headers.get("WARC-Refers-To-Filename").strip(), headers.get("WARC-Refers-To-File-Offset").strip()
    candidates: list[tuple[str, int]] = []
    if re.fullmatch("[0-9]{1,18}", offset):
        candidates = [(each, int(offset)) for each in dict.fromkeys((given, name))]
    else:
        known = (places.get(hash(key)) for key in (_id(response, "WARC-Refers-To") or None, (url, date)))
        candidates = [(name, at) for at in known if at is not None]
    for file_name, at in candidates:
        if file_name == name or ("/" not in file_name and folder.is_file(file_name)):  # never leaves the folder
            original = _response_from(folder, file_name, at)
            if original is not None and _is_original(original, response):
                response.raw = original.raw
                if response.status in (None, NOT_MODIFIED):  # the original has the page's own head
                    response.status, response.http_headers = original.status, original.http_headers
                return
    response.damage = UNCHANGED if url in ("", response.url) else "original_not_found"


def _refers_to(revisit: Response) -> tuple[str, str]:
    headers = revisit.warc_headers
    return plain_url(headers.get("WARC-Refers-To-Target-URI")), headers.get("WARC-Refers-To-Date").strip()


def _id(response: Response, name: str) -> str:
    return response.warc_headers.get(name).strip()


def _response_from(folder: Folder, name: str, offset: int) -> Response | None:
    """Return the response whose record starts at `offset`; None if there is none."""
    with folder.open(name) as file, contextlib.suppress(OSError):
        file.seek(offset)
        tail = Tail(file)
        for record in records_of(tail):
            return response_of(record, offset, tail)
    return None


def _is_original(found: Response, revisit: Response) -> bool:
    digest = revisit.warc_headers.get("WARC-Payload-Digest").strip()
    named, stated = _id(revisit, "WARC-Refers-To"), _refers_to(revisit)
    by_id = not all(stated) and bool(named) and named == _id(found, "WARC-Record-ID")
    is_named = by_id or (found.url, found.date) == stated
    if found.damage or found.is_revisit or not is_named:
        return False
    return not digest.startswith("sha1:") or digest[5:] == base64.b32encode(hashlib.sha1(found.raw).digest()).decode()


def _text_start(file: BinaryIO) -> bytes:
    """Return the file's first bytes, decompressed if they are gzip."""
    file.seek(0)
    start = file.read(START_BYTES)
    if start.startswith(GZIP_START):
        try:
            return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(start, START_BYTES)
        except zlib.error:
            return b""
    return start
