"""The process that decompresses for another one: started by crawl/streams/decoders.py, which says what it does.

It imports no more than that takes, so that it is at work before its reader is.
"""

from __future__ import annotations

import lzma
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

from webtext.crawl.streams.bzip2_blocks import bzip2_blocks
from webtext.crawl.streams.decompress import BZIP2, MAGIC_BYTES, XZ, StreamBroken, codec_of, pieces_of
from webtext.crawl.streams.ring import FIRST_WORD, RingWriter
from webtext.crawl.streams.xz_blocks import xz_blocks

BLOCKS: dict[str, Callable[[BinaryIO], Iterator[Callable[[], bytes]]]] = {XZ.name: xz_blocks, BZIP2.name: bzip2_blocks}
START = "from webtext.crawl.streams.decoder import main; main()"
NEXT, END, ODD, BROKEN = range(FIRST_WORD, FIRST_WORD + 4)
"""What it says to its reader: a block is whole; that was all; go not by blocks; the stream is broken, and how."""


def main() -> None:
    """Write one decoder's share of a file. Arguments: path, index, number of decoders (0: no blocks), file of the ring."""
    path, index, of, memory = sys.argv[1], *map(int, sys.argv[2:5])
    with open(path, "rb") as file, open(0, "rb", buffering=0) as freed, open(1, "wb", buffering=0) as words:
        ring = RingWriter(memory, words, freed)
        try:
            ring.say(*(_write_blocks(file, ring, index, of) if of else _write_all(file, ring)))
        except BrokenPipeError:  # the reader wants no more
            return


def _write_blocks(file: BinaryIO, ring: RingWriter, index: int, of: int) -> tuple[int, bytes]:
    codec = codec_of(file.read(MAGIC_BYTES))
    assert codec is not None, "only files that have blocks come here"
    file.seek(0)
    try:
        for i, block in enumerate(BLOCKS[codec.name](file)):
            if i % of == index:
                ring.write(block())
                ring.say(NEXT)
    except (ValueError, OSError, EOFError, lzma.LZMAError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return ODD, b""
    return END, b""


def _write_all(file: BinaryIO, ring: RingWriter) -> tuple[int, bytes]:
    try:
        for piece, stands in pieces_of(file):
            ring.write(piece, stands=stands)
    except StreamBroken as broken:
        import json  # late: it takes a while, and few streams break

        ring.take_back()
        return BROKEN, json.dumps([broken.reason, broken.cause]).encode()
    return END, b""
