"""The process that decompresses for another one: started by crawl/streams/decoders.py, which says what it does.

It imports no more than that takes, so that it is at work before its reader is.
"""

from __future__ import annotations

import sys

from webtext.crawl.streams.decompress import StreamBroken, pieces_of
from webtext.crawl.streams.ring import FIRST_WORD, RingWriter

START = "from webtext.crawl.streams.decoder import main; main()"
END, BROKEN = range(FIRST_WORD, FIRST_WORD + 2)
"""What it sends to its reader: that was all; the stream is broken, and how."""


def main() -> None:
    """Decompress a file into a ring. Arguments: path, file descriptor of the ring's memory."""
    path, memory = sys.argv[1], int(sys.argv[2])
    with open(path, "rb") as file, open(0, "rb", buffering=0) as freed, open(1, "wb", buffering=0) as words:
        ring = RingWriter(memory, words, freed)
        try:
            for piece, stands in pieces_of(file):
                ring.write(piece, stands=stands)
            ring.say(END)
        except StreamBroken as broken:
            import json  # late: it takes a while, and few streams break

            ring.take_back()
            ring.say(BROKEN, json.dumps([broken.reason, broken.cause]).encode())
        except BrokenPipeError:  # the reader has ended
            return
