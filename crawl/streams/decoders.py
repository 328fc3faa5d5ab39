"""A process that decompresses a local file while the reader works.

The decoder (crawl/streams/decoder.py) reads the file and writes decompressed bytes to a ring shared with the reader.
The ring bounds how far it runs ahead, and a decoder whose reader has exited exits at its next slot. It can be started
before the reading process exists, which then inherits the files of the ring. For Zstandard the decoder needs memory for
the window, up to 2 GiB. The reader gets the same bytes as from `decompress`, and the same failure at the same byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from webtext.base.decompress import StreamBroken
from webtext.crawl.streams.decoder import BROKEN, START
from webtext.crawl.streams.ring import RingReader, shared_memory


@dataclass(frozen=True, slots=True)
class Ring:
    """The reader's side of a ring: file descriptors, which have the same numbers in a child that inherits them."""

    memory: int
    filled: int
    freed: int
    identity: tuple[int, int]  # of the memory: device and inode

    @property
    def is_here(self) -> bool:
        """Whether this process has inherited the ring, and has not read it yet."""
        with contextlib.suppress(OSError):
            return _identity(self.memory) == self.identity
        return False

    @contextlib.contextmanager
    def reader(self) -> Iterator[RingReader]:
        """Return the reader in a context that closes the ring at its end."""
        with _file(self.memory, "r+b") as memory, _file(self.filled, "rb") as filled, _file(self.freed, "wb") as freed:
            yield RingReader(memory.fileno(), filled, freed)

    @property
    def files(self) -> tuple[int, int, int]:
        """The file descriptors that a child must inherit."""
        return self.memory, self.filled, self.freed

    def close(self) -> None:
        """Close it in this process, so that only the child has it."""
        for file in self.files:
            os.close(file)


@contextlib.contextmanager
def decompressed_ahead(path: Path, started: Ring | None = None) -> Iterator[Iterator[memoryview]]:
    """Open an iterator of the decompressed bytes in chunks; a chunk is valid until the next one is requested.

    Starts a decoder, unless this process has inherited the ring of one that was `started`. The decoder is killed at the
    end of the context. Freeing a large Zstandard window takes the system a while, so leave the context last. The
    iterator raises StreamBroken where the stream breaks.
    """
    with contextlib.ExitStack() as opened:
        is_here = started is not None and started.is_here
        ring = started if started is not None and is_here else opened.enter_context(started_decoder(path))
        yield _chunks(opened.enter_context(ring.reader()))


def _chunks(ring: RingReader) -> Iterator[memoryview]:
    while isinstance(chunk := ring.next(), memoryview):
        yield chunk
        ring.free_slot()
    if chunk == BROKEN:
        raise StreamBroken(*json.loads(ring.about()))


@contextlib.contextmanager
def started_decoder(path: Path) -> Iterator[Ring]:
    """Start a decoder for a compressed file, to be read by this process or by a child that inherits its ring.

    A process that does not read the ring must close it, so that the decoder notices when its reader has exited.
    """
    (filled, filled_end), (freed_end, freed) = os.pipe(), os.pipe()
    with shared_memory() as file, open(filled_end, "wb", buffering=0), open(freed_end, "rb", buffering=0):
        memory = os.dup(file.fileno())
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, str(path), str(memory)],
            stdin=freed_end,
            stdout=filled_end,
            stderr=subprocess.DEVNULL,
            pass_fds=[memory],
        )
    try:
        yield Ring(memory, filled, freed, _identity(memory))
    finally:
        process.kill()
        process.wait()


def _identity(descriptor: int) -> tuple[int, int]:
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino


def _file(descriptor: int, mode: str) -> IO[bytes]:
    return open(descriptor, mode, buffering=0)  # noqa: SIM115 - the caller closes it
