"""Any bytes as an archived response: its head and its body's codings (base/web).

- Parsing raises nothing, and a body that can't be decoded raises BodyError; a body is never longer than was allowed.
- The body as sent is the block's end, and the heads before it are within their limit.
- Status and fields written as a head, with the same body, are read back as they were.
"""

from __future__ import annotations

from webtext.base.archives.response import Response, with_http
from webtext.base.web.content_coding import BodyError, decoded_start
from webtext.base.web.http_head import _MAX_HEAD_BYTES, _MAX_INTERIM, split_http

DICTIONARY = [
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 C\r\n\r\n", b"HTTP/2 ", b"\r\n\r\n", b"\n\n", b"\n ", b"\r\n\t", b": "),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Encoding: ",
        b"gzip",
        b"deflate",
        b"br",
        b"zstd",
        b"identity",
        b", ",
    ),
    *(b"\r\n0\r\n\r\n", b"5\r\nhello\r\n", b";x=y", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"x-gzip"),
]
ALLOWED_BYTES = 1 << 16


def check(data: bytes) -> None:
    found = split_http(data)
    if found is None:
        return
    status, headers, body = found
    assert 100 <= status <= 999 or status < 100
    assert data.endswith(body)
    assert len(data) - len(body) <= (_MAX_INTERIM + 1) * (_MAX_HEAD_BYTES + len(b"\n\r\n"))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.fields)
    again = split_http(f"HTTP/1.1 {status:03} OK\r\n{head}\r\n".encode("latin-1") + body)
    assert again is not None
    assert (again[0], again[1].fields, again[2]) == (status, headers.fields, body)
    for name in {name for name, _ in headers.fields}:
        assert headers.get(name) == headers.get_all(name)[0]

    response = with_http(Response(offset=0, length=len(data)), data)
    start = decoded_start(
        response.raw, headers.joined("Transfer-Encoding"), headers.joined("Content-Encoding"), ALLOWED_BYTES
    )
    assert len(start) <= ALLOWED_BYTES
    try:
        decoded = response.body(ALLOWED_BYTES)
    except BodyError:
        return
    assert decoded == start
