"""Reads the body of an answer, up to a number of bytes and at a minimum rate.

Bodies are buffered in memory, or on disk if all that are being received together would take too much of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping
from typing import IO

from aiohttp import StreamReader

from webtext.base.storage import no_space_is_an_error
from webtext.crawl.pages.visit import FetchFailed

RATE_SECONDS = 10.0  # after these seconds, a body must have come at min_rate on average
MEMORY_BYTES = 6 * 2**20  # of all buffered bodies together; 64 endless answers in memory took 605 MiB
SMALL_BYTES = 64 * 1024  # up to this size, a body is never on disk: creating a file costs more than most pages
PIECE_BYTES = 64  # overhead per piece: a server may send pieces of any size


class MinimumRate:
    """Ends a body whose average rate falls below `min_rate` (bytes per second), by moving up its deadline.

    It checks at the first moment when the rate could be too low. Most bodies have arrived before that, so reading only
    has to count bytes.
    """

    def __init__(self, deadline: asyncio.Timeout, min_rate: float) -> None:
        self.n_bytes = 0  # received so far
        self.is_below = False
        self._deadline = deadline
        self._min_rate = min_rate
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._next_look = self._loop.call_later(RATE_SECONDS, self._look)

    def close(self) -> None:
        """Stop checking, because the body is complete or given up."""
        self._next_look.cancel()

    def _look(self) -> None:
        too_slow_at = self._start + max(RATE_SECONDS, self.n_bytes / self._min_rate)
        if too_slow_at <= self._loop.time():
            self.is_below = True
            self._deadline.reschedule(too_slow_at)
        else:
            self._next_look = self._loop.call_at(too_slow_at, self._look)


async def read_body(
    headers: Mapping[str, str],
    content: StreamReader,
    max_bytes: int,
    truncate: bool,
    memory: SpoolMemory | None = None,
    rate: MinimumRate | None = None,
) -> bytes:
    """Return the body of an answer as it came, without chunks; with `truncate`, at most max_bytes of it.

    Raises FetchFailed if its transfer coding is unknown or, without `truncate`, if it is larger than max_bytes. After a
    FetchFailed or a cut, the connection can't be used again.
    """
    coding = headers.get("Transfer-Encoding", "chunked").strip().lower()
    if coding not in ("chunked", "identity"):
        raise FetchFailed("bad_response", f"transfer coding {coding!r}")
    announced = headers.get("Content-Length")
    if not truncate and announced is not None and int(announced) > max_bytes:
        raise FetchFailed("too_large", f"{announced} bytes announced")
    with Spool(memory or SpoolMemory()) as body:
        while not content.at_eof():
            body.write(await content.readany())
            if body.size > max_bytes:
                if truncate:
                    break
                raise FetchFailed("too_large", f"more than {max_bytes} bytes")
            if rate is not None:
                rate.n_bytes = body.size
        return body.read(max_bytes)


class SpoolMemory:
    """The memory that all buffered bodies together use."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self.limit = limit
        self.used = 0


class Spool(contextlib.AbstractContextManager["Spool"]):
    """A buffer for one body. Use as a context manager."""

    def __init__(self, memory: SpoolMemory) -> None:
        self._memory = memory
        self._pieces: list[bytes] = []  # joined at the end, mostly without a copy; one growing buffer copies twice
        self._n_memory = 0  # bytes of memory
        self._file: IO[bytes] | None = None
        self.size = 0

    def __exit__(self, *_: object) -> None:
        self._release()
        if self._file is not None:
            self._file.close()

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if self._file is not None:
            self._write_to_file(data)
            return
        self._pieces.append(data)
        taken = len(data) + PIECE_BYTES
        self._n_memory += taken
        self._memory.used += taken
        if self._memory.used > self._memory.limit and self._n_memory > SMALL_BYTES:
            self._write_to_file(b"".join(self._pieces))
            self._release()

    def _write_to_file(self, data: bytes) -> None:
        with no_space_is_an_error(tempfile.gettempdir(), len(data)):  # an OSError would count as the connection's
            self._file = self._file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            rest = memoryview(data)
            while rest:  # an almost full disk takes a part
                rest = rest[self._file.write(rest) :]

    def read(self, max_bytes: int) -> bytes:
        if self._file is None:
            data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            return data[:max_bytes]
        self._file.seek(0)
        return self._file.read(max_bytes)

    def _release(self) -> None:
        self._memory.used -= self._n_memory
        self._pieces, self._n_memory = [], 0
