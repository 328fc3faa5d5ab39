"""Reading WARC files (ISO 28500) with fastwarc: every HTTP response, and every stretch that is damaged.

Files with a compressed member per record (.warc.gz, .zst, .lz4), with one member around all records, and plain files are
read. After damage, reading goes on where the next record starts, and the damage itself is yielded as a `Response` whose
`body` raises: whoever counts responses has counted it. A revisit, whose body another record holds, is a response, too.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.base.warc_response import LENGTH_IS_WRONG, Response, plain_url, read_record
from webtext.base.warc_stretches import GZIP_START, START_BYTES, Tail, records_of, stretches_of, with_lengths

__all__ = ["Response", "read_response_at", "read_responses"]


def read_responses(folder: Folder, name: str, *, follow_revisits: bool = True) -> Iterator[Response]:
    """Yield the responses of the WARC file `name`, in order; InputError when it holds no WARC record at all.

    Requests, metadata and responses of other protocols (DNS) are passed over, and so are revisits that say of one URL
    that it has not changed. A revisit that says that another URL has the same body is a response with that body, or
    'original_not_found' where its original is not in this folder. Without `follow_revisits` all revisits are given as
    they stand, without bodies. Memory: two records.
    """
    with folder.open(name) as file:
        if not file.read(1):
            return  # what a writer with nothing to write leaves
        waiting: list[Response] = []  # damage before the first record
        holds_records = False
        for stretch in with_lengths(stretches_of(file), file):
            if stretch.is_record and not holds_records:
                holds_records = True
                yield from waiting
            response = stretch.response
            if response is not None and response.is_revisit and follow_revisits:
                response = _with_original(response, folder, name)
            if response is None:
                continue
            if holds_records:
                yield response
            else:
                waiting.append(response)
        if waiting and not holds_records:
            raise _no_warc(folder.location(name), file)


def read_response_at(folder: Folder, name: str, offset: int, length: int) -> Response:
    """The response in the `length` bytes from `offset` of file `name`; InputError when there is none."""
    with folder.open(name) as file:
        file.seek(offset)
        part = file.read(length)
    for stretch in stretches_of(io.BytesIO(part)):
        if stretch.response and stretch.is_record:
            stretch.response.offset, stretch.response.length = offset, length
            response = _with_original(stretch.response, folder, name)
            if response:
                return response
    raise InputError(f"no response record at offset {offset} of '{folder.location(name)}'", "was the file changed?")


def _with_original(response: Response, folder: Folder, name: str) -> Response | None:
    """The response itself; a revisit with the body of the response it refers to, which is a record of the same folder.

    None for a revisit that names no other URL: its page has not changed, and lies where it was seen first.
    The place of the original is read from `WARC-Refers-To-Filename` and `-File-Offset`; a file that was renamed may still
    refer to itself. What lies there has to be what the revisit speaks of: URL, date and digest are compared.
    """
    if not response.is_revisit or response.damage in LENGTH_IS_WRONG:
        return response
    headers = response.warc_headers
    if plain_url(headers.get("WARC-Refers-To-Target-URI")) in ("", response.url):
        return None
    if response.damage:
        return response
    given, offset = headers.get("WARC-Refers-To-Filename").strip(), headers.get("WARC-Refers-To-File-Offset").strip()
    if offset.isascii() and offset.isdigit():
        for file_name in dict.fromkeys((given, name)):
            is_plain_name = file_name == PurePosixPath(file_name).name  # never out of the folder
            if is_plain_name and (file_name == name or folder.exists(file_name)):
                original = _response_from(folder, file_name, int(offset))
                if original is not None and _is_original(original, response):
                    response.raw = original.raw
                    return response
    response.damage = "original_not_found"
    return response


def _response_from(folder: Folder, name: str, offset: int) -> Response | None:
    """The response whose record starts at `offset`; None when none does."""
    with folder.open(name) as file:
        file.seek(offset)
        try:
            for record in records_of(Tail(file)):
                return read_record(record, offset)
        except OSError:
            pass
    return None


def _is_original(found: Response, revisit: Response) -> bool:
    headers = revisit.warc_headers
    refers_to = plain_url(headers.get("WARC-Refers-To-Target-URI")), headers.get("WARC-Refers-To-Date").strip()
    digest = headers.get("WARC-Payload-Digest").strip()
    if found.damage or found.is_revisit or (found.url, found.date) != refers_to:
        return False
    return not digest.startswith("sha1:") or digest[5:] == base64.b32encode(hashlib.sha1(found.raw).digest()).decode()


def _no_warc(location: str, file: BinaryIO) -> InputError:
    file.seek(0)
    start = file.read(START_BYTES)
    if start.startswith(GZIP_START):
        try:
            start = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(start, START_BYTES)
        except zlib.error:
            start = b""
    if start.startswith(b"filedesc:"):
        return InputError(
            f"'{location}' is an ARC file, not WARC", "convert it first: warcio recompress OLD NEW.warc.gz"
        )
    return InputError(f"'{location}' holds no WARC record", "give a .warc, .warc.gz, .warc.zst or .warc.lz4 file")
