"""Answers of hostile servers for a `LocalWeb`. Each writes until it is cut off, or for the time that it states."""

from __future__ import annotations

import asyncio
import gzip
import zlib
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


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def body_drip(writer: asyncio.StreamWriter) -> None:
    """Send a body that would be complete after three hours."""
    writer.write(HEAD + b"Content-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.1)


async def header_drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)


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


async def interim_flood(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 200)
        await writer.drain()


async def tiny_chunks(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\nx\r\n" * 5000)
        await writer.drain()


async def small_chunks(writer: asyncio.StreamWriter) -> None:
    """Send chunks of two bytes: unlike chunks of one byte, each becomes an object of its own."""
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"2\r\nxy\r\n" * 5000)
        await writer.drain()


async def huge_chunk(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_trailers(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n")
    for i in range(2**30 // 8192):
        writer.write(b"X-%d: " % i + b"y" * 8000 + b"\r\n")
        await writer.drain()


async def endless_chunk_extension(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;x=")
    while True:
        writer.write(b"y" * 65536)
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
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n6\r\n<html>\r\n9\r\n<p>")


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
