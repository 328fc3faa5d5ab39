"""Reads the body of an answer, up to a number of bytes and at a minimum rate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import StreamReader

from webtext.crawl.fetch.failures import Failure
from webtext.crawl.fetch.spool import Spool, SpoolMemory

RATE_SECONDS = 10.0  # after these seconds, a body must have come at min_rate on average


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

    Raises Failure if its transfer coding is unknown or, without `truncate`, if it is larger than max_bytes. After a
    Failure or a cut, the connection can't be used again.
    """
    coding = headers.get("Transfer-Encoding", "chunked").strip().lower()
    if coding not in ("chunked", "identity"):
        raise Failure("bad_response", f"transfer coding {coding!r}")
    announced = headers.get("Content-Length")
    if not truncate and announced is not None and int(announced) > max_bytes:
        raise Failure("too_large", f"{announced} bytes announced")
    with Spool(memory or SpoolMemory()) as body:
        while not content.at_eof():
            body.write(await content.readany())
            if body.size > max_bytes:
                if truncate:
                    break
                raise Failure("too_large", f"more than {max_bytes} bytes")
            if rate is not None:
                rate.n_bytes = body.size
        return body.read(max_bytes)
