"""A process that decompresses a local file while the reader works.

The decoder (crawl/streams/decoder.py) reads the file and writes decompressed bytes to a ring shared with the reader.
The ring bounds how far it runs ahead, and a decoder whose reader has exited exits at its next slot. For Zstandard it
needs memory for the window, up to 2 GiB. The reader gets the same bytes as from `decompress`, and the same failure at the
same byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from webtext.base.decompress import StreamBroken
from webtext.crawl.streams.decoder import BROKEN, START
from webtext.crawl.streams.ring import RingReader, shared_memory


@contextlib.contextmanager
def decompressed_ahead(path: Path) -> Iterator[Iterator[memoryview]]:
    """Open an iterator of the decompressed bytes in chunks; a chunk is valid until the next one is requested.

    The decoder is killed at the end of the context. Freeing a large Zstandard window takes the system a while, so leave
    the context last. The iterator raises StreamBroken where the stream breaks.
    """
    (filled, filled_end), (freed_end, freed) = os.pipe(), os.pipe()
    with (
        shared_memory() as memory,
        open(filled, "rb", buffering=0) as filled_file,
        open(freed, "wb", buffering=0) as freed_file,
    ):
        with open(filled_end, "wb", buffering=0), open(freed_end, "rb", buffering=0):
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(path), str(memory.fileno())],
                stdin=freed_end,
                stdout=filled_end,
                stderr=subprocess.DEVNULL,
                pass_fds=[memory.fileno()],
            )
        try:
            yield _chunks(RingReader(memory.fileno(), filled_file, freed_file))
        finally:
            process.kill()
            process.wait()


def _chunks(ring: RingReader) -> Iterator[memoryview]:
    while isinstance(chunk := ring.next(), memoryview):
        yield chunk
        ring.free_slot()
    if chunk == BROKEN:
        raise StreamBroken(*json.loads(ring.about()))
