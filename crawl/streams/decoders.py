"""Processes that decompress a local file while the reader works.

A decoder (crawl/streams/decoder.py) reads the file by itself and puts what it decodes into a ring that it shares with the
reader: the whole of it, or, of a format that can be cut into blocks, every so-manieth block. The rings bound how far they
run ahead; a decoder whose reader has ended ends at its next slot. It may be begun before there is a process that reads:
that one inherits the files of the ring. Of Zstandard it holds the window, up to 2 GiB. The reader
gets the same bytes as from `decompress`, and the same failure at the same byte: whatever looks odd in blocks is left to a
decoder of the whole file.

Not threads: two bzip2 decoders in one process share its page tables, and on virtual machines that can cost more than the
second core gives (crawl/links/README.md, "Tried").
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from webtext.crawl.streams.decoder import BLOCKS, BROKEN, END, ODD, START
from webtext.crawl.streams.decompress import CHUNK_BYTES, MAGIC_BYTES, StreamBroken, codec_of
from webtext.crawl.streams.ring import RingReader, shared_memory

HELD_BYTES = (
    2 * CHUNK_BYTES
)  # a decoder of the whole file, where that breaks, has not given the last CHUNK_BYTES before


def has_blocks(codec: str) -> bool:
    """Whether files of this format may be cut into blocks."""
    return codec in BLOCKS


@dataclass(frozen=True, slots=True)
class Ring:
    """The reader's side of a decoder's ring: files that a child which inherits them has under the same numbers."""

    memory: int
    words: int
    freed: int
    identity: tuple[int, int]  # of the memory: device and inode

    @property
    def is_here(self) -> bool:
        """Whether this process has inherited it, and has not read it yet."""
        with contextlib.suppress(OSError):
            return _identity(self.memory) == self.identity
        return False

    @contextlib.contextmanager
    def reader(self) -> Iterator[RingReader]:
        """Read it; then it is closed."""
        with _file(self.memory, "r+b") as memory, _file(self.words, "rb") as words, _file(self.freed, "wb") as freed:
            yield RingReader(memory.fileno(), words, freed)

    @property
    def files(self) -> tuple[int, int, int]:
        """What a child must inherit."""
        return self.memory, self.words, self.freed

    def close(self) -> None:
        """Leave it to the child."""
        for file in self.files:
            os.close(file)


@contextlib.contextmanager
def decompressed_ahead(path: Path, decoders: int, begun: Sequence[Ring] = ()) -> Iterator[Iterator[memoryview]]:
    """The decompressed bytes of a compressed file in chunks, each of which stays until the next one is asked for.

    Decoders start at once, unless `begun` are here. They end with the context: of a large Zstandard window that takes the
    system a while, so leave it when all else is done. Asking for a chunk raises StreamBroken where the stream ends.
    """
    with contextlib.ExitStack() as opened:
        is_begun = bool(begun) and all(ring.is_here for ring in begun)
        rings = begun if is_begun else opened.enter_context(begun_decoders(path, decoders))
        readers = [opened.enter_context(ring.reader()) for ring in rings]
        yield _by_blocks(path, readers, opened) if len(readers) > 1 else _whole(readers[0])


@contextlib.contextmanager
def begun_decoders(path: Path, decoders: int) -> Iterator[list[Ring]]:
    """Start the decoders of a compressed file, for this process to read or a child that inherits the files of their rings.

    Whoever does not read a ring must close it, so that its decoder sees when the one who does has ended.
    """
    by_blocks = decoders if decoders > 1 and _begins_with_a_block(path) else 0
    with contextlib.ExitStack() as started:
        yield [_begin(path, index, by_blocks, started) for index in range(max(1, by_blocks))]


def _whole(ring: RingReader) -> Iterator[memoryview]:
    while isinstance(chunk := ring.next(), memoryview):
        yield chunk
        ring.give_back()
    if chunk == BROKEN:
        raise StreamBroken(*json.loads(ring.about()))


def _by_blocks(path: Path, rings: list[RingReader], opened: contextlib.ExitStack) -> Iterator[memoryview]:
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
        ring = _begin(path, 0, 0, opened)
        for view in _whole(opened.enter_context(ring.reader())):
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


def _begin(path: Path, index: int, of: int, started: contextlib.ExitStack) -> Ring:
    """Start a process, which ends with `started`."""
    (words, telling), (given, freed) = os.pipe(), os.pipe()
    with shared_memory() as file, open(telling, "wb", buffering=0), open(given, "rb", buffering=0):
        memory = os.dup(file.fileno())
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, *map(str, (path, index, of, memory))],
            stdin=given,
            stdout=telling,
            stderr=subprocess.DEVNULL,
            pass_fds=[memory],
        )
    started.callback(process.wait)
    started.callback(process.kill)
    return Ring(memory, words, freed, _identity(memory))


def _identity(descriptor: int) -> tuple[int, int]:
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino


def _file(descriptor: int, mode: str) -> IO[bytes]:
    return open(descriptor, mode, buffering=0)  # noqa: SIM115 - the caller closes it
