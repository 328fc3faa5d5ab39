"""Archives made of a few records, in each kind of compression, with some bytes changed; or any bytes (base/warc).

- Reading raises InputError and nothing else, and takes a number of steps that is bounded by the file's bytes.
- Every response has a status, or a reason why it has none, and lies within the file; those before it lie before it.
- A response with a place is read from there by itself as it was read from the file, unless damage may follow it.
- With one gzip member per record, every record whose bytes are unchanged is read, and if one isn't read, damage is
  reported: records in = read + damaged. (A file is recognized by its first bytes, an ARC file by its first record.)
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import tempfile
from itertools import accumulate, pairwise
from pathlib import Path

import zstandard
from choices import Choices

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.base.warc.reader import read_response_at, read_responses
from webtext.base.warc.response import Response
from webtext.base.web.content_coding import BodyError

DICTIONARY = [
    *(b"WARC/1.0\r\n", b"WARC-Type: ", b"response", b"revisit", b"request", b"Content-Length: ", b"\r\n\r\n", b"\r\n"),
    *(
        b"WARC-Target-URI: http://a.com/",
        b"WARC-Refers-To-",
        b"Target-URI: ",
        b"Filename: ",
        b"File-Offset: ",
        b"Date: ",
    ),
    *(
        b"application/http; msgtype=response",
        b"HTTP/1.1 200 OK",
        b"9" * 12,
        b"-1",
        b"http://a.com/ 1.2.3.4 20200101000000 ",
    ),
    *(
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
        b"\x1f\x8b\x08\x1c",
        b"\x28\xb5\x2f\xfd",
        b"\x04\x22\x4d\x18",
        b"filedesc:",
    ),
    *(b"\x50\x2a\x4d\x18", b"\x37\xa4\x30\xec"),
]
_EDITS = 6
_EDITED_BYTES = 16  # at most, in one place


def _record(kind: str, url: str, block: bytes, *more: str) -> bytes:
    head = ["WARC/1.1", f"WARC-Type: {kind}", f"WARC-Target-URI: {url}", "WARC-Date: 2020-01-01T00:00:00Z"]
    head += [f"WARC-Record-ID: <urn:{url}>", f"Content-Type: application/http; msgtype={kind}", *more]
    return "\r\n".join([*head, f"Content-Length: {len(block)}", "", ""]).encode() + block + b"\r\n\r\n"


def _page(body: bytes, *more: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", "Content-Type: text/html", *more, "", ""]).encode() + body


WARC = [
    _record("warcinfo", "urn:info", b"software: ours\r\n"),
    _record("request", "http://a.com/", b"GET / HTTP/1.1\r\n\r\n"),
    _record("response", "http://a.com/", _page(b"<p>first</p>")),
    _record(
        "response", "http://a.com/2", _page(gzip.compress(b"<p>second</p>" * 9, mtime=0), "Content-Encoding: gzip")
    ),
    _record("response", "http://a.com/3", _page(b"5\r\nthird\r\n0\r\n\r\n", "Transfer-Encoding: chunked")),
    _record(
        *("revisit", "http://a.com/4", b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        *("WARC-Refers-To-Target-URI: http://a.com/", "WARC-Refers-To-Date: 2020-01-01T00:00:00Z"),
    ),
    _record("response", "http://a.com/5", _page(bytes(range(256)) * 3)),
]
ARC = [
    b"filedesc://a.arc 0.0.0.0 20200101000000 text/plain 20\n1 0 us\nURL IP Date \n",
    *(
        b"http://a.com/%d 1.2.3.4 20200101000000 text/html %d\n%s\n" % (i, len(_page(b"x")), _page(b"x"))
        for i in range(4)
    ),
]


def _lz4(record: bytes) -> bytes:
    """Return an LZ4 frame with one stored block."""
    return b"\x04\x22\x4d\x18\x60\x40\x82" + (len(record) | 1 << 31).to_bytes(4, "little") + record + bytes(4)


KINDS = {
    ".warc.gz": [gzip.compress(record, mtime=0) for record in WARC],
    ".warc": WARC,
    "one.warc.gz": [gzip.compress(b"".join(WARC), mtime=0)],
    ".warc.zst": [zstandard.ZstdCompressor().compress(record) for record in WARC],
    ".warc.lz4": list(map(_lz4, WARC)),
    ".arc": ARC,
    ".arc.gz": [gzip.compress(record, mtime=0) for record in ARC],
}


def check(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.below(len(KINDS) + 1)
    if kind == len(KINDS):
        _read("any", choices.rest())
        return
    name, members = list(KINDS.items())[kind]
    file, is_cut, intact = b"".join(members), False, [True] * len(members)
    ends = list(accumulate(map(len, members)))
    edits = sorted((_edit(choices, len(file)) for _ in range(choices.below(_EDITS + 1))), reverse=True)
    before = len(file)
    for at, n_removed, added in edits:  # from the last on, so that places before an edit stay as they are
        end = len(file) if n_removed > _EDITED_BYTES else min(at + n_removed, before)
        before = at
        is_cut = is_cut or end == len(file)
        file = file[:at] + added + file[end:]
        for i, (first, last) in enumerate(pairwise([0, *ends])):
            intact[i] = intact[i] and (last <= at or end <= first) and not (first < at < last)
    found = _read(name, file)
    if name == ".warc.gz" and not file.startswith(_OTHER_STARTS) or name == ".arc.gz" and file.startswith(members[0]):
        assert found or not any(intact)
        is_read = [_is_among(found, response) for response in _responses(name)]
        is_intact = [intact[i] for i in _RESPONSES[name]]
        assert all(read or not whole for read, whole in zip(is_read, is_intact, strict=True))
        assert all(is_read) or is_cut or any(response.damage for response in found)


_OTHER_STARTS = (b"WARC/", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
_RESPONSES = {".warc.gz": [2, 3, 4, 6], ".arc.gz": [1, 2, 3, 4]}
"""The members that are responses with a body of their own."""


def _edit(choices: Choices, size: int) -> tuple[int, int, bytes]:
    """Return where to edit, how many bytes to remove there (above `_EDITED_BYTES` all the rest), and what to put there."""
    return choices.below(size), choices.below(_EDITED_BYTES + 2), choices.take(choices.below(_EDITED_BYTES))


@functools.cache
def _responses(name: str) -> list[tuple[str, bytes]]:
    """Return URL and body of the responses of an archive without damage."""
    return [_shown(response) for response in _read(name, b"".join(KINDS[name])) if not response.is_revisit]


def _shown(response: Response) -> tuple[str, bytes]:
    return response.url, response.raw


def _is_among(found: list[Response], wanted: tuple[str, bytes]) -> bool:
    return any(not response.damage and _shown(response) == wanted for response in found)


def _read(name: str, file: bytes) -> list[Response]:
    """Return the responses of a file, after checking what holds for every file."""
    path = _folder() / name
    path.write_bytes(file)
    folder = Folder(str(path.parent))
    found = []
    try:
        for response in read_responses(folder, name):
            found.append(response)
            assert len(found) <= 16 + len(file) * 4
    except InputError:
        assert not found
    reached = 0
    for response in found:
        assert (response.status is None) <= (response.damage is not None or response.is_revisit)
        with contextlib.suppress(BodyError):
            assert len(response.body(1 << 16)) <= 1 << 16
            assert not response.damage
        if response.offset is not None:
            assert reached <= response.offset <= len(file)
            reached = response.offset
        if response.offset is not None and response.length is not None:
            assert 0 < response.length <= len(file) - response.offset
            if not response.is_revisit and not any(other.damage for other in found):
                alone = read_response_at(folder, name, response.offset, response.length)
                assert (_shown(alone), alone.status) == (_shown(response), response.status)
    return found


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="webtext-fuzz-"))
