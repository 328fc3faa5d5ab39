"""Bodies under way: in memory while they are small or few, on disk as soon as all of them together would take too much."""

from __future__ import annotations

import tempfile
from types import TracebackType
from typing import IO

MEMORY_BYTES = 6 * 2**20  # of all bodies under way together
SMALL_BYTES = 64 * 1024  # a body of this size never waits on disk: making a file costs more than most pages
PIECE_BYTES = 64  # that a piece takes beside its bytes: pieces may be as small as a server sends them


class SpoolMemory:
    """How much the bodies under way hold in memory; one for all of them."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self.limit = limit
        self.used = 0


class Spool:
    """One body under way. Use as a context manager."""

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
        """Append."""
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
        """The first bytes of what was written."""
        if self._file is None:
            data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
            return data[:max_bytes]
        self._file.seek(0)
        return self._file.read(max_bytes)

    def _let_go(self) -> None:
        self._memory.used -= self._n_held
        self._held, self._n_held = [], 0
