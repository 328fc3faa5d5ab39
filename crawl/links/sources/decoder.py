"""A process that decompresses a local file while its reader works, and the ring buffer in memory that both share.

One process fills the ring's slots in turn, the other reads them in place:

    writer → reader    a pipe with 8 bytes per full slot: the number of bytes in it, or a signal from the writer
    reader → writer    a pipe with a byte per slot that may be filled again

Nothing else is needed. Pipes order the writes to memory, wake the side that waits, and close when either side exits,
for any reason. The memory has no name, so nothing is left when both are gone. A pipe for the bytes themselves would
cost each side a copy through the kernel: about a third of the time that decompressing Zstandard takes.

The ring bounds how far the decoder runs ahead, and a decoder whose reader has exited exits at its next slot. For
Zstandard it needs memory for the window, up to 2 GiB. The reader gets the same bytes as from `decompress`, and the same
failure at the same byte. What only one side needs is imported there, so that a decoder starts before its reader is ready.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from collections.abc import Iterator
from typing import IO

from webtext.base.decompress import StreamBroken, pieces_of

SLOT_BYTES = 1 << 20
SLOTS = 8
"""Few, so that they stay in the processor's cache: 32 slots took 0.5 s longer for 1,000 MB of JSON."""
_WORD_BYTES = 8
FIRST_SIGNAL = 2**64 - 16  # a writer may send signals from here on instead of a length
END, BROKEN = FIRST_SIGNAL, FIRST_SIGNAL + 1
"""A decoder's signals: the end of the file; a broken stream, followed by reason and cause as JSON."""
START = "from webtext.crawl.links.sources.decoder import main; main()"


def shared_memory() -> IO[bytes]:
    """Return a file for the slots of one ring, in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = open(os.memfd_create("webtext-ring"), "r+b", buffering=0)  # noqa: SIM115 - the caller closes it
    else:
        import tempfile

        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    os.ftruncate(file.fileno(), SLOTS * SLOT_BYTES)
    return file


class _Side:
    """A side of the ring."""

    def __init__(self, memory: int, filled: IO[bytes], freed: IO[bytes]) -> None:
        """`memory` is the file descriptor of `shared_memory`; both pipes are unbuffered."""
        self._slots = memoryview(mmap.mmap(memory, SLOTS * SLOT_BYTES))
        self._filled_slots, self._freed = filled, freed
        self._slot = 0


class RingWriter(_Side):
    """The side that fills slots."""

    _n_free, _filled = SLOTS, 0
    _n_full = 0  # slots that the reader has not been sent yet
    _final = (0, 0)  # (slot, bytes in it) after the last final byte

    def write(self, data: bytes, *, is_final: bool = True) -> None:
        """Add bytes. Unless they are final (`is_final`), they are sent to the reader only after later ones that are.

        Bytes that are not final may fill at most half of the slots. Raises BrokenPipeError if the reader has exited.
        """
        rest = memoryview(data)
        while rest:
            if not self._n_free:
                self._n_free = len(self._freed.read(SLOTS))
                if not self._n_free:
                    raise BrokenPipeError("the reader has exited")
            start = self._slot * SLOT_BYTES + self._filled
            n = min(len(rest), SLOT_BYTES - self._filled)
            self._slots[start : start + n] = rest[:n]
            rest, self._filled = rest[n:], self._filled + n
            if self._filled == SLOT_BYTES:
                self._n_full += 1
                self._next_slot()
                if is_final:
                    self._send_full()
        if is_final:
            self._send_full()
            self._final = (self._slot, self._filled)

    def discard(self) -> None:
        self._slot, self._filled = self._final
        self._n_free += self._n_full
        self._n_full = 0

    def flush(self) -> None:
        self._send_full()
        if self._filled:
            self._send(self._filled)
            self._next_slot()
        self._final = (self._slot, self._filled)

    def signal(self, number: int, about: bytes = b"") -> None:
        """Send a signal of at least FIRST_SIGNAL after all that was written; one with `about` must be the last."""
        self.flush()
        self._send(number, about)

    def _next_slot(self) -> None:
        self._slot, self._filled, self._n_free = (self._slot + 1) % SLOTS, 0, self._n_free - 1

    def _send_full(self) -> None:
        for _ in range(self._n_full):
            self._send(SLOT_BYTES)
        self._n_full = 0

    def _send(self, number: int, about: bytes = b"") -> None:
        self._filled_slots.write(number.to_bytes(_WORD_BYTES, "little") + about)


class RingReader(_Side):
    """The side that reads slots. It returns them to the writer in the order it got them."""

    def next(self) -> memoryview | int:
        """Return the next slot's bytes, valid until `free_slot`, or a signal. RuntimeError if the writer has exited."""
        data = self._filled_slots.read(_WORD_BYTES)  # 8 bytes are written, and so read, at once
        number = int.from_bytes(data, "little")
        if number >= FIRST_SIGNAL:
            return number
        if not 0 < number <= SLOT_BYTES:
            raise RuntimeError("a decoder exited without a signal")
        start, self._slot = self._slot * SLOT_BYTES, (self._slot + 1) % SLOTS
        return self._slots[start : start + number].toreadonly()

    def about(self) -> bytes:
        """Return the bytes that the writer sent with its last signal."""
        return self._filled_slots.read()

    def free_slot(self) -> None:
        """Return the oldest slot to the writer, which may fill it again."""
        with contextlib.suppress(BrokenPipeError):  # an exited writer is noticed when its next slot is read
            self._freed.write(b"\0")


@contextlib.contextmanager
def decompressed_ahead(path: os.PathLike[str]) -> Iterator[Iterator[memoryview]]:
    """Open an iterator of the decompressed bytes in chunks; a chunk is valid until the next one is requested.

    The decoder is killed at the end of the context. Freeing a large Zstandard window takes the system a while, so leave
    the context last. The iterator raises StreamBroken where the stream breaks.
    """
    import subprocess

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
        import json

        raise StreamBroken(*json.loads(ring.about()))


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
            import json

            ring.discard()
            ring.signal(BROKEN, json.dumps([broken.reason, broken.cause]).encode())
        except BrokenPipeError:  # the reader has ended
            return
