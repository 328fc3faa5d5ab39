"""Processes that decompress a local file while the reader works.

A decoder is a process that reads the file by itself and writes what it decodes to a pipe: the whole of it, or, of a format
that can be cut into blocks, every so-manieth block. The pipes bound how far they run ahead; a decoder whose reader has
ended ends at its next write. Of Zstandard it holds the window, up to 2 GiB. The reader gets the same bytes as from
`decompress`, and the same failure at the same byte: whatever looks odd in blocks is left to a decoder of the whole file.

Not threads: two bzip2 decoders in one process share its page tables, and on virtual machines that can cost more than the
second core gives (crawl/links/README.md, "Tried").
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import lzma
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO

from webtext.crawl.streams.bzip2_blocks import bzip2_blocks
from webtext.crawl.streams.decompress import BZIP2, CHUNK_BYTES, MAGIC_BYTES, XZ, StreamBroken, codec_of, decompress
from webtext.crawl.streams.xz_blocks import xz_blocks

BLOCKS: dict[str, Callable[[BinaryIO], Iterator[Callable[[], bytes]]]] = {XZ.name: xz_blocks, BZIP2.name: bzip2_blocks}
START = "from webtext.crawl.streams.decoders import main; main()"
PIPE_BYTES = 1 << 20
HELD_BYTES = (
    2 * CHUNK_BYTES
)  # a decoder of the whole file, where that breaks, has not given the last CHUNK_BYTES before
_LENGTH_BYTES = 8
_END, _ODD, _BROKEN = range(2**64 - 3, 2**64)  # what stands for a length after the last piece


def has_blocks(codec: str) -> bool:
    """Whether files of this format may be cut into blocks."""
    return codec in BLOCKS


def decompress_ahead(path: Path, decoders: int) -> Iterator[bytes]:
    """The decompressed bytes of a compressed file in chunks. Raises StreamBroken where the stream ends."""
    n_given = n_held = 0
    held: deque[bytes] = deque()
    try:
        for piece in _round_robin(path, decoders if decoders > 1 and _begins_with_a_block(path) else 0):
            held.append(piece)
            n_held += len(piece)
            while n_held - len(held[0]) >= HELD_BYTES:
                piece = held.popleft()
                n_held, n_given = n_held - len(piece), n_given + len(piece)
                yield piece
        yield from held
    except StreamBroken:
        yield from held
        raise
    except _OddBlocks:
        for piece in _round_robin(path, 0):
            if n_given < len(piece):
                yield piece[n_given:]
            n_given = max(0, n_given - len(piece))


def _begins_with_a_block(path: Path) -> bool:
    """Whether a first block is found: of a file of one xz block none is, nor in other formats."""
    with open(path, "rb") as file:
        codec = codec_of(file.read(MAGIC_BYTES))
        assert codec is not None, "only compressed files come here"
        if not has_blocks(codec.name):
            return False
        file.seek(0)
        with contextlib.suppress(ValueError):
            return next(BLOCKS[codec.name](file), None) is not None
    return False


class _OddBlocks(Exception):
    """A decoder cannot go by blocks."""


def _round_robin(path: Path, decoders: int) -> Iterator[bytes]:
    """What the decoders write, in the order of the file; 0: one decoder that does not go by blocks."""
    with contextlib.ExitStack() as started:
        pipes = [started.enter_context(_decoder(path, index, decoders)) for index in range(max(1, decoders))]
        while True:
            for pipe in pipes:
                length = int.from_bytes(_read(pipe, _LENGTH_BYTES), "little")
                if length == _END:
                    return
                if length == _ODD:
                    raise _OddBlocks
                if length == _BROKEN:
                    raise StreamBroken(*json.loads(pipe.read()))
                yield _read(pipe, length)


@contextlib.contextmanager
def _decoder(path: Path, index: int, of: int) -> Iterator[IO[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START, str(path), str(index), str(of)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None, "it has a pipe"
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        yield process.stdout
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def _read(pipe: IO[bytes], n: int) -> bytes:
    data = pipe.read(n)
    if len(data) < n:
        raise RuntimeError("a decoder ended without a word")
    return data


def main() -> None:
    """Write one decoder's share of a file to standard output. Arguments: path, index, number of decoders (0: no blocks)."""
    path, index, of = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with contextlib.suppress(BrokenPipeError), open(path, "rb") as file:
        out = sys.stdout.buffer
        end, about = _write_blocks(file, out, index, of) if of else _write_all(file, out)
        out.write(end.to_bytes(_LENGTH_BYTES, "little") + about)
        out.flush()


def _write_blocks(file: BinaryIO, out: BinaryIO, index: int, of: int) -> tuple[int, bytes]:
    codec = codec_of(file.read(MAGIC_BYTES))
    assert codec is not None, "only files that have blocks come here"
    file.seek(0)
    try:
        for i, block in enumerate(BLOCKS[codec.name](file)):
            if i % of == index:
                _write(out, block())
    except (ValueError, OSError, EOFError, lzma.LZMAError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _ODD, b""
    return _END, b""


def _write_all(file: BinaryIO, out: BinaryIO) -> tuple[int, bytes]:
    try:
        for piece in decompress(file):
            _write(out, piece)
    except StreamBroken as broken:
        return _BROKEN, json.dumps([broken.reason, broken.cause]).encode()
    return _END, b""


def _write(out: BinaryIO, piece: bytes) -> None:
    out.write(len(piece).to_bytes(_LENGTH_BYTES, "little"))
    out.write(piece)
    out.flush()
