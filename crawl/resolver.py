"""From a host name to one vetted address: looked up once, all answers judged, the connection pinned to one of them.

aiohttp is given both halves. `PinnedResolver.resolve` hands it the address that was vetted, so there is no second look-up
that could answer differently (DNS rebinding). `guarded_socket` is asked for every socket, also where aiohttp skips the
resolver (hosts that are IP literals): nothing is sent to an address that the rule refuses.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from webtext.crawl.addresses import AddressRule

LOOKUP_SECONDS = 20.0
LOOKUP_THREADS = 32  # getaddrinfo blocks; asyncio's own pool has as few as five threads
CACHE_HOSTS = 50_000
CACHE_SECONDS = 600.0
RETRY_WAITS = (1.0, 2.0)  # seconds before a look-up that no name server answered is tried again

RECEIVE_BYTES = 96 * 1024  # asked of the kernel for a socket, which doubles it: what one read can bring

Lookup = Callable[[str], list[str]]


class Refused(Exception):
    """A connection that was not made, or an answer that is not kept; `reason` is the fetch log's, `cause` for people."""

    def __init__(self, reason: str, cause: str = "") -> None:
        super().__init__(f"{reason}: {cause}" if cause else reason)
        self.reason = reason
        self.cause = cause or None


class PinnedResolver(AbstractResolver):
    """Names to vetted addresses. The first address of a host is the one connections are made to."""

    def __init__(self, rule: AddressRule, lookup: Lookup | None = None) -> None:
        self._rule = rule
        self._lookup = lookup or system_lookup
        self._pool = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="lookup")
        self._answers: OrderedDict[str, tuple[float, list[str]]] = OrderedDict()
        self._threads_free = asyncio.Semaphore(LOOKUP_THREADS)
        self._running: dict[str, asyncio.Future[list[str]]] = {}
        self._once: OrderedDict[str, asyncio.Future[list[str]]] = OrderedDict()

    async def address(self, host: str, port: int, *, once: bool = False) -> str:
        """The address that `host` is pinned to. Raises Refused when any of its answers is forbidden, OSError when it has none.

        With `once`, what the first look-up found, or that it found nothing, holds for the whole run.
        """
        if _is_literal(host):
            answers = [host]
        else:
            answers = await (self._look_up_once(host) if once else self._look_up(host))
        for answer in answers:
            reason = self._rule.refusal(answer, port)
            if reason is not None:
                raise Refused(reason, f"{host} is {answer}, port {port}")
        return answers[0]

    def next_address(self, host: str) -> bool:
        """Pin `host` to its next answer, after the first could not be reached; False when there is no other."""
        known = self._answers.get(host)
        if known is None or len(known[1]) < 2:
            return False
        known[1].append(known[1].pop(0))
        return True

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """What aiohttp asks: exactly one address, the pinned one."""
        address = await self.address(host, port)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)
        ]

    async def close(self) -> None:
        """Let go of the look-up threads; a look-up that hangs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _look_up(self, host: str) -> list[str]:
        known = self._answers.get(host)
        if known is not None and time.monotonic() - known[0] < CACHE_SECONDS:
            return known[1]
        if host not in self._running:
            self._running[host] = asyncio.ensure_future(self._look_up_now(host))
            self._running[host].add_done_callback(_heard)
        return await asyncio.shield(self._running[host])

    async def _look_up_once(self, host: str) -> list[str]:
        if host not in self._once:
            self._once[host] = asyncio.ensure_future(self._look_up_patiently(host))
            self._once[host].add_done_callback(_heard)
            if len(self._once) > CACHE_HOSTS:
                self._once.popitem(last=False)
        return await asyncio.shield(self._once[host])

    async def _look_up_patiently(self, host: str) -> list[str]:
        for wait in RETRY_WAITS:
            try:
                return await self._look_up(host)
            except OSError as error:
                if not is_unanswered(error):
                    raise
            await asyncio.sleep(wait)
        return await self._look_up(host)

    async def _look_up_now(self, host: str) -> list[str]:
        try:
            async with self._threads_free, asyncio.timeout(LOOKUP_SECONDS):
                answers = await asyncio.get_running_loop().run_in_executor(self._pool, self._lookup, host)
            self._answers[host] = (time.monotonic(), answers)
            while len(self._answers) > CACHE_HOSTS:
                self._answers.popitem(last=False)
            return answers
        finally:
            del self._running[host]


def system_lookup(host: str) -> list[str]:
    """All addresses of `host` by the system's resolver, in its order (RFC 6724: reachable ones first).

    Raises OSError when the name is unknown, too long or no name at all.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from None
    answers = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
    if not answers:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    return answers


def is_unanswered(error: OSError) -> bool:
    """Whether no name server said that the name has no address: none answered, or not in time, or it failed itself."""
    return error.errno not in (socket.EAI_NONAME, socket.EAI_NODATA)


def guarded_socket(rule: AddressRule) -> Callable[[Any], socket.socket]:
    """A socket factory for aiohttp's connector that makes no socket for an address `rule` refuses."""

    def make(address_info: Any) -> socket.socket:
        family, kind, protocol, _, address = address_info
        reason = rule.refusal(str(address[0]), int(address[1]))
        if reason is not None:
            raise Refused(reason)
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        return made

    return make


def _heard(answers: asyncio.Future[list[str]]) -> None:
    """An answer that came after all who asked had left is no news."""
    if not answers.cancelled():
        answers.exception()


@functools.lru_cache(maxsize=4096)
def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
