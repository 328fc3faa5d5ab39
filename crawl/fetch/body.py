"""The body of an answer, bounded in bytes and held to a minimum rate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import StreamReader

from webtext.crawl.fetch.failures import Failure
from webtext.crawl.fetch.spool import Spool, SpoolMemory

RATE_SECONDS = 10.0  # after which a body must have come at min_rate on average


class MinimumRate:
    """Ends a body whose mean rate (`min_rate`, bytes a second) is too low: looks at it when that could first be so, and
    moves its deadline to then.

    Most bodies are there before the first look, so what comes is only counted.
    """

    def __init__(self, deadline: asyncio.Timeout, min_rate: float) -> None:
        self.n_bytes = 0  # of the body that have come
        self.is_below = False
        self._deadline = deadline
        self._min_rate = min_rate
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._next_look = self._loop.call_later(RATE_SECONDS, self._look)

    def close(self) -> None:
        """The body is there, or given up."""
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
    """The body as it came, without chunks; Failure when its coding is unknown or, save to `truncate`, it is too large.

    `headers` and `content` are the answer's. After a Failure, or when it was cut, the connection is of no more use.
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
