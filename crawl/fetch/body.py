"""The body of an answer, bounded in bytes and held to a minimum rate."""

from __future__ import annotations

import asyncio

import aiohttp

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
    response: aiohttp.ClientResponse,
    max_bytes: int,
    truncate: bool,
    memory: SpoolMemory | None = None,
    rate: MinimumRate | None = None,
) -> bytes:
    """The body as it came, without chunks; Failure when its coding is unknown or, save to `truncate`, it is too large."""
    coding = response.headers.get("Transfer-Encoding", "chunked").strip().lower()
    if coding not in ("chunked", "identity"):
        raise Failure("bad_response", f"transfer coding {coding!r}")
    if not truncate and (response.content_length or 0) > max_bytes:
        response.close()
        raise Failure("too_large", f"{response.content_length} bytes announced")
    content = response.content
    with Spool(memory or SpoolMemory()) as body:
        while not content.at_eof():
            body.write(await content.readany())
            if body.size > max_bytes:
                response.close()
                if truncate:
                    break
                raise Failure("too_large", f"more than {max_bytes} bytes")
            if rate is not None:
                rate.n_bytes = body.size
        return body.read(max_bytes)
