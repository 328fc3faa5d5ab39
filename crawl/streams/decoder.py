"""The process that decompresses for another one; crawl/streams/decoders.py starts it and describes it.

It imports only what that needs, so that it starts to decompress before its reader is ready.
"""

from __future__ import annotations

import sys

from webtext.base.decompress import StreamBroken, pieces_of
from webtext.crawl.streams.ring import FIRST_SIGNAL, RingWriter

START = "from webtext.crawl.streams.decoder import main; main()"
END, BROKEN = range(FIRST_SIGNAL, FIRST_SIGNAL + 2)
"""Its signals to the reader: the end of the file; a broken stream, followed by reason and cause as JSON."""


def main() -> None:
    """Decompress a file into a ring. Arguments: the path, the file descriptor of the ring's memory."""
    path, memory = sys.argv[1], int(sys.argv[2])
    with open(path, "rb") as file, open(0, "rb", buffering=0) as freed, open(1, "wb", buffering=0) as filled:
        ring = RingWriter(memory, filled, freed)
        try:
            for piece, is_final in pieces_of(file):
                ring.write(piece, is_final=is_final)
            ring.signal(END)
        except StreamBroken as broken:
            import json  # here, since the import takes a while and few streams break

            ring.discard()
            ring.signal(BROKEN, json.dumps([broken.reason, broken.cause]).encode())
        except BrokenPipeError:  # the reader has ended
            return
