"""Buffers bodies that are being received: in memory, or on disk if all of them together would take too much memory."""

from __future__ import annotations

import tempfile
from types import TracebackType
from typing import IO

MEMORY_BYTES = 6 * 2**20  # of all buffered bodies together
SMALL_BYTES = 64 * 1024  # up to this size, a body is never on disk: creating a file costs more than most pages
PIECE_BYTES = 64  # overhead per piece: a server may send pieces of any size


class SpoolMemory:
    """The memory that all buffered bodies together use."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self.limit = limit
        self.used = 0


class Spool:
    """A buffer for one body. Use as a context manager."""

    def __init__(self, memory: SpoolMemory) -> None:
        self._memory = memory
        self._held: list[bytes] = []
        self._n_held = 0  # bytes of memory
        self._file: IO[bytes] | None = None
        self.size = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()
        if self._file is not None:
            self._file.close()

    def write(self, data: bytes) -> None:
        """Append to the body."""
        self.size += len(data)
        if self._file is not None:
            self._file.write(data)
            return
        self._held.append(data)
        taken = len(data) + PIECE_BYTES
        self._n_held += taken
        self._memory.used += taken
        if self._memory.used > self._memory.limit and self._n_held > SMALL_BYTES:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by __exit__
            self._file.write(b"".join(self._held))
            self._let_go()

    def read(self, max_bytes: int) -> bytes:
        """Return at most the first `max_bytes` bytes of the body."""
        if self._file is None:
            data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
            return data[:max_bytes]
        self._file.seek(0)
        return self._file.read(max_bytes)

    def _let_go(self) -> None:
        self._memory.used -= self._n_held
        self._held, self._n_held = [], 0
