"""Memory that two processes share: one fills its slots in turn, the other looks at them where they lie.

    writer → reader    a pipe with 8 bytes for each slot that is full: how many bytes are in it; or a word of the writer's
    reader → writer    a pipe with a byte for each slot that may be filled again

No more is needed. Pipes order what is written to memory, wake who waits, and end with either side, however that ends; and
the memory has no name, so that nothing is left of it when both are gone. A pipe for the bytes themselves costs each side
a copy through the kernel: about a third of the time that decompressing Zstandard takes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import IO

SLOT_BYTES = 1 << 20
SLOTS = 8
"""Few: they stay in a cache of the processor on their way from one process to the other."""
_WORD_BYTES = 8
FIRST_WORD = 2**64 - 16  # what a writer may say instead of a length lies from here on


def shared_memory() -> IO[bytes]:
    """A file for the slots of one ring: in memory where the system can."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = open(os.memfd_create("webtext-ring"), "r+b", buffering=0)  # noqa: SIM115 - the caller closes it
    else:
        import tempfile

        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    os.ftruncate(file.fileno(), SLOTS * SLOT_BYTES)
    return file


class RingWriter:
    """The side that fills slots."""

    def __init__(self, memory: int, words: IO[bytes], freed: IO[bytes]) -> None:
        """`memory` is the file descriptor of `shared_memory`; both pipes are unbuffered."""
        self._slots = memoryview(mmap.mmap(memory, SLOTS * SLOT_BYTES))
        self._words, self._freed = words, freed
        self._n_free = SLOTS
        self._slot = self._filled = 0
        self._n_full = 0  # slots that the reader does not know of yet
        self._standing = (0, 0)  # the slot, and the bytes in it, up to which all stands

    def write(self, data: bytes, *, stands: bool = True) -> None:
        """Add bytes; unless they stand, the reader will not see them before others do. BrokenPipeError when it has gone.

        Bytes that do not stand yet may fill half of the slots.
        """
        rest = memoryview(data)
        while rest:
            if not self._n_free:
                self._n_free = len(self._freed.read(SLOTS))
                if not self._n_free:
                    raise BrokenPipeError("the reader has gone")
            start = self._slot * SLOT_BYTES + self._filled
            n = min(len(rest), SLOT_BYTES - self._filled)
            self._slots[start : start + n] = rest[:n]
            rest, self._filled = rest[n:], self._filled + n
            if self._filled == SLOT_BYTES:
                self._n_full += 1
                self._next_slot()
                if stands:
                    self._send_full()
        if stands:
            self._send_full()
            self._standing = (self._slot, self._filled)

    def take_back(self) -> None:
        """Forget what does not stand."""
        self._slot, self._filled = self._standing
        self._n_free += self._n_full
        self._n_full = 0

    def flush(self) -> None:
        """Let the reader see all that was written."""
        self._send_full()
        if self._filled:
            self._send(self._filled)
            self._next_slot()
        self._standing = (self._slot, self._filled)

    def say(self, word: int, about: bytes = b"") -> None:
        """Tell the reader a word of at least FIRST_WORD, after all that was written; what else there is to tell is the last."""
        self.flush()
        self._send(word, about)

    def _next_slot(self) -> None:
        self._slot, self._filled, self._n_free = (self._slot + 1) % SLOTS, 0, self._n_free - 1

    def _send_full(self) -> None:
        for _ in range(self._n_full):
            self._send(SLOT_BYTES)
        self._n_full = 0

    def _send(self, number: int, about: bytes = b"") -> None:
        self._words.write(number.to_bytes(_WORD_BYTES, "little") + about)


class RingReader:
    """The side that looks at slots. Those it was given it gives back in the same order."""

    def __init__(self, memory: int, words: IO[bytes], freed: IO[bytes]) -> None:
        """`memory` is the file descriptor of `shared_memory`; both pipes are unbuffered."""
        self._slots = memoryview(mmap.mmap(memory, SLOTS * SLOT_BYTES)).toreadonly()
        self._words, self._freed = words, freed
        self._slot = 0

    def next(self) -> memoryview | int:
        """The bytes of the next slot, which stay until it is given back; or a word. RuntimeError when the writer has gone."""
        number = int.from_bytes(self._words.read(_WORD_BYTES), "little")  # numbers are written, and so read, whole
        if number >= FIRST_WORD:
            return number
        if not 0 < number <= SLOT_BYTES:
            raise RuntimeError("a decoder ended without a word")
        start, self._slot = self._slot * SLOT_BYTES, (self._slot + 1) % SLOTS
        return self._slots[start : start + number]

    def about(self) -> bytes:
        """What the writer told with its last word."""
        return self._words.read()

    def give_back(self) -> None:
        """Let the writer fill the oldest slot again."""
        with contextlib.suppress(BrokenPipeError):  # a writer that has gone is found when its next slot is read
            self._freed.write(b"\0")
