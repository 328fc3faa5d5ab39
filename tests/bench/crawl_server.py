"""The server for measuring crawlers: many hosts (127.0.1.1, 127.0.1.2, ...) on one port, distinct pages in memory.

Of ten pages, six are sent gzipped, three as chunks without a coding, and one with Brotli although it wasn't requested.
robots.txt is 404. With TLS each host has its own certificate. The server runs in a separate process, so its time isn't
counted.
"""

from __future__ import annotations

import asyncio
import datetime
import gzip
import ipaddress
import multiprocessing
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHUNK_BYTES = 16_384  # as nginx sends them
_HEAD = b"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/html; charset=utf-8\r\nVary: Accept-Encoding\r\n"
_MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def hosts(n: int) -> list[str]:
    """Return the addresses of the first n hosts."""
    return [f"127.0.{1 + i // 250}.{1 + i % 250}" for i in range(n)]


def page_number(path: str) -> int:
    """Return the number of the page that a path names: `/page/17` is page 17, counted from 0."""
    return int(path.rpartition("/")[2])


class Answers:
    """The responses of all pages, as bytes."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        import brotli

        self._bodies = bodies
        self._gzipped = [gzip.compress(body, 6, mtime=0) for body in bodies]
        self._brotli = {i: brotli.compress(body, quality=5) for i, body in enumerate(bodies) if _kind(i) == "br"}

    def body(self, number: int) -> bytes:
        """Return the decoded body of a page."""
        body = self._bodies[number % len(self._bodies)]
        return body + _mark(number) if _kind(number) == "chunks" else body

    def answer(self, number: int) -> bytes:
        """Return head and body as sent; all bodies differ as sent, except some with Brotli."""
        i = number % len(self._bodies)
        kind = _kind(number)
        if kind == "chunks":
            return _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + _chunked(self._bodies[i] + _mark(number))
        if kind == "br" and i in self._brotli:
            coding, body = b"br", self._brotli[i]
        else:
            packed = self._gzipped[i]
            coding, body = b"gzip", packed[:4] + number.to_bytes(4, "little") + packed[8:]  # gzip's time field
        return _HEAD + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (coding, len(body)) + body


def _kind(number: int) -> str:
    return ("gzip", "chunks", "gzip", "gzip", "chunks", "gzip", "br", "gzip", "chunks", "gzip")[number % 10]


def _mark(number: int) -> bytes:
    return b"<!-- %d -->" % number


def _chunked(body: bytes) -> bytes:
    pieces = []
    for start in range(0, len(body), CHUNK_BYTES):
        piece = body[start : start + CHUNK_BYTES]
        pieces += [b"%x\r\n" % len(piece), piece, b"\r\n"]
    return b"".join([*pieces, b"0\r\n\r\n"])


class _Talk(asyncio.Protocol):
    def __init__(self, answers: Answers, n_asked: Any) -> None:
        self._answers = answers
        self._n_asked = n_asked
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while b"\r\n\r\n" in self._asked:
            request, self._asked = self._asked.split(b"\r\n\r\n", 1)
            path = request.split(b" ", 2)[1].decode()
            is_page = path.startswith("/page/")
            self._n_asked.value += is_page
            self._transport.write(self._answers.answer(page_number(path)) if is_page else _MISSING)


def _serve(
    answers: Answers, names: Sequence[str], port: int, certificates: Path | None, ready: Any, n_asked: Any
) -> None:
    async def listen() -> None:
        loop = asyncio.get_running_loop()
        for name in names:
            context = None
            if certificates is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificates / f"{name}.pem", certificates / "key.pem")
            await loop.create_server(lambda: _Talk(answers, n_asked), name, port, ssl=context, backlog=256)
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(listen())


@contextmanager
def serving(answers: Answers, names: Sequence[str], port: int, certificates: Path | None = None) -> Iterator[Any]:
    """Serve while the block runs; yield a `value` that counts the requests for pages."""
    ready = multiprocessing.Event()
    n_asked = multiprocessing.Value("q", 0, lock=False)
    server = multiprocessing.Process(
        target=_serve, args=(answers, names, port, certificates, ready, n_asked), daemon=True
    )
    server.start()
    try:
        if not ready.wait(60):
            raise SystemExit(f"the server did not begin to listen on port {port}")
        yield n_asked
    finally:
        server.terminate()
        server.join()


def make_certificates(folder: Path, names: Sequence[str]) -> Path:
    """Write a certificate for each address, signed by a new authority; return the authority's certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    today = datetime.datetime.now(datetime.UTC)
    authority_key, key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bench authority")])

    def builder(subject: x509.Name, owner: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(authority).public_key(owner.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(today - datetime.timedelta(days=1))
        return made.not_valid_after(today + datetime.timedelta(days=2))

    own = builder(authority, authority_key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    (folder / "authority.pem").write_bytes(
        own.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    for name in names:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name))])
        leaf = builder(subject, key).add_extension(alternative, critical=False).sign(authority_key, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    return folder / "authority.pem"
