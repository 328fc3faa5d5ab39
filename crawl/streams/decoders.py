"""Processes that decompress a local file while the reader works.

A decoder (crawl/streams/decoder.py) reads the file by itself and puts what it decodes into a ring that it shares with the
reader: the whole of it, or, of a format that can be cut into blocks, every so-manieth block. The rings bound how far they
run ahead; a decoder whose reader has ended ends at its next slot. Of Zstandard it holds the window, up to 2 GiB. The reader
gets the same bytes as from `decompress`, and the same failure at the same byte: whatever looks odd in blocks is left to a
decoder of the whole file.

Not threads: two bzip2 decoders in one process share its page tables, and on virtual machines that can cost more than the
second core gives (crawl/links/README.md, "Tried").
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from webtext.crawl.streams.decoder import BLOCKS, BROKEN, END, ODD, START
from webtext.crawl.streams.decompress import CHUNK_BYTES, MAGIC_BYTES, StreamBroken, codec_of
from webtext.crawl.streams.ring import RingReader, shared_memory

HELD_BYTES = (
    2 * CHUNK_BYTES
)  # a decoder of the whole file, where that breaks, has not given the last CHUNK_BYTES before


def has_blocks(codec: str) -> bool:
    """Whether files of this format may be cut into blocks."""
    return codec in BLOCKS


@contextlib.contextmanager
def decompressed_ahead(path: Path, decoders: int) -> Iterator[Iterator[memoryview]]:
    """The decompressed bytes of a compressed file in chunks, each of which stays until the next one is asked for.

    Decoders start at once and end with the context: of a large Zstandard window that takes the system a while, so leave it
    when all else is done. Asking for a chunk raises StreamBroken where the stream ends.
    """
    by_blocks = decoders if decoders > 1 and _begins_with_a_block(path) else 0
    with contextlib.ExitStack() as started:
        rings = [started.enter_context(_decoder(path, index, by_blocks)) for index in range(max(1, by_blocks))]
        yield _by_blocks(path, rings, started) if by_blocks else _whole(rings[0])


def _whole(ring: RingReader) -> Iterator[memoryview]:
    while isinstance(chunk := ring.next(), memoryview):
        yield chunk
        ring.give_back()
    if chunk == BROKEN:
        raise StreamBroken(*json.loads(ring.about()))


def _by_blocks(path: Path, rings: list[RingReader], started: contextlib.ExitStack) -> Iterator[memoryview]:
    """What the decoders write, in the order of the file; where they cannot go by blocks, what one of the whole file does."""
    n_given = n_held = 0
    held: deque[bytes] = deque()  # copies: of small blocks many are held, and no ring has so many slots
    try:
        for chunk in _round_robin(rings):
            held.append(chunk)
            n_held += len(chunk)
            while n_held - len(held[0]) >= HELD_BYTES:
                chunk = held.popleft()
                n_held, n_given = n_held - len(chunk), n_given + len(chunk)
                yield memoryview(chunk)
        yield from (memoryview(chunk) for chunk in held)
    except _OddBlocks:
        for view in _whole(started.enter_context(_decoder(path, 0, 0))):
            if n_given < len(view):
                yield view[n_given:]
            n_given = max(0, n_given - len(view))


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


def _round_robin(rings: list[RingReader]) -> Iterator[bytes]:
    for ring in itertools.cycle(rings):
        while isinstance(chunk := ring.next(), memoryview):
            yield bytes(chunk)
            ring.give_back()
        if chunk == ODD:
            raise _OddBlocks
        if chunk == END:
            return


@contextlib.contextmanager
def _decoder(path: Path, index: int, of: int) -> Iterator[RingReader]:
    with shared_memory() as memory:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, *map(str, (path, index, of, memory.fileno()))],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[memory.fileno()],
        )
        assert process.stdin is not None, "it has a pipe"
        assert process.stdout is not None, "it has a pipe"
        try:
            yield RingReader(memory.fileno(), process.stdout, process.stdin)
        finally:
            process.kill()
            process.stdin.close()
            process.stdout.close()
            process.wait()
