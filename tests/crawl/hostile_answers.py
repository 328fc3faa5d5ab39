"""Answers of hostile servers for a `LocalWeb`. Each writes until it is cut off, or for the time that it states."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable
from functools import cache

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
MiB = 2**20
NO_ROBOTS = {"obey_robots": False, "obey_ai_robots": False, "obey_content_signal": False}
IN_A_SECOND = {"total_seconds": 1.0, **NO_ROBOTS}
"""Settings for a crawl of late answers only. robots.txt may be late too on a busy machine, and is not obeyed."""


def redirect(location: str | bytes, *headers: str) -> bytes:
    to = location.encode() if isinstance(location, str) else location
    more = "".join(f"{header}\r\n" for header in headers).encode()
    return b"HTTP/1.1 302 Found\r\nLocation: " + to + b"\r\n" + more + b"Content-Length: 0\r\n\r\n"


def answer(body: bytes = b"<html>page", *headers: str, status: str = "200 OK") -> bytes:
    """Return a complete answer, which is text/html unless a header says otherwise."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    if not any(header.lower().startswith("content-type:") for header in headers):
        lines.append("Content-Type: text/html")
    return "\r\n".join([*lines, "", ""]).encode() + body


def without_end(start: bytes, piece: bytes, pause: float = 0.0) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Return an answer that begins with `start` and then repeats `piece`, with pauses of so many seconds."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return write


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
endless = without_end(HEAD + b"\r\n", b"x" * 65536)
body_drip = without_end(HEAD + b"Content-Length: 100000\r\n\r\n", b"x", 0.1)  # complete after three hours
header_drip = without_end(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.1)
interim_flood = without_end(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 200)
tiny_chunks = without_end(CHUNKED, b"1\r\nx\r\n" * 5000)
small_chunks = without_end(CHUNKED, b"2\r\nxy\r\n" * 5000)  # of which, unlike chunks of one byte, each is an object
huge_chunk = without_end(CHUNKED + b"fffffffffffffff\r\n", b"x" * 65536)
endless_chunk_extension = without_end(CHUNKED + b"5;x=", b"y" * 65536)


async def million_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    for i in range(1_000_000 // 100):
        writer.write(b"".join(b"X-%d: y\r\n" % (100 * i + j) for j in range(100)))
        await writer.drain()


async def huge_header_line(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"X: ")
    for _ in range(50 * MiB // 65536):
        writer.write(b"y" * 65536)
        await writer.drain()
    writer.write(b"\r\n\r\n")


async def endless_trailers(writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED + b"5\r\nhello\r\n0\r\n")
    for i in range(2**30 // 8192):
        writer.write(b"X-%d: " % i + b"y" * 8000 + b"\r\n")
        await writer.drain()


async def silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(600)


async def reset(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\nabc")
    await writer.drain()
    writer.transport.abort()


async def close_after_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")


async def short_chunk(writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED + b"6\r\n<html>\r\n9\r\n<p>")


async def short_body(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\nabc")


@cache
def gzip_bomb(n_mib: int = 256) -> bytes:
    """Return a KiB per MiB that it decompresses to."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([packer.compress(bytes(16 * MiB)) for _ in range(n_mib // 16)]) + packer.flush()


@cache
def brotli_bomb(n_mib: int = 256) -> bytes:
    """Return a few hundred bytes that decompress to this many MiB."""
    import brotli

    packer = brotli.Compressor(quality=5)
    return b"".join(packer.process(bytes(16 * MiB)) for _ in range(n_mib // 16)) + packer.finish()


@cache
def zstd_bomb(n_mib: int = 256) -> bytes:
    """Return a few kilobytes that decompress to this many MiB and ask for a window of 2 GiB."""
    import zstandard

    parameters = zstandard.ZstdCompressionParameters(window_log=31, compression_level=1)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return b"".join(packer.compress(bytes(16 * MiB)) for _ in range(n_mib // 16)) + packer.flush()


@cache
def empty_gzip_members() -> bytes:
    return gzip.compress(b"", mtime=0) * 100_000
