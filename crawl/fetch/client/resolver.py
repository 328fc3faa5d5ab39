"""Resolve a host name to one vetted address: one look-up, a check of all answers, a connection pinned to one of them.

aiohttp gets both halves. `PinnedResolver.resolve` returns the vetted address, so there is no second look-up that could
answer differently (DNS rebinding). `guarded_socket` makes every socket, also for IP literals, for which aiohttp skips
the resolver. So nothing is sent to an address that the rule refuses.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from aiohttp.abc import AbstractResolver, ResolveResult

from webtext.crawl.fetch.client.addresses import AddressRule
from webtext.crawl.fetch.client.failures import is_unanswered
from webtext.crawl.pages.visit import FetchRefused

if TYPE_CHECKING:
    import pycares

LOOKUP_SECONDS = 20.0
LOOKUPS_AT_ONCE = 1000  # a local name server drops packets if it gets too many
LOOKUPS_PER_CHANNEL = 20_000  # c-ares has a cache without a bound; with a new channel it starts empty
CACHE_HOSTS = 50_000
CACHE_SECONDS = 600.0
RETRY_WAITS = (1.0, 2.0)  # seconds before retrying a look-up that no name server answered

# A socket's receive buffer, which the kernel doubles: the most that one read returns. Per page, 96 KiB take 0.85 ms of
# CPU, 64 KiB 0.95, and the system's own size 0.77, but 30 MiB more than 64 KiB for 64 requests at a time.
RECEIVE_BYTES = 96 * 1024

Lookup = Callable[[str], Awaitable[list[str]]]


class Names:
    """Looks names up in /etc/hosts and at the system's name servers, many at a time, with c-ares in its own thread.

    Like getaddrinfo, it follows /etc/resolv.conf, including search domains, and returns reachable addresses first (RFC
    6724). Other sources of nsswitch.conf, such as multicast DNS, are not asked.
    """

    def __init__(self) -> None:
        self._channel: pycares.Channel | None = None
        self._n_left = 0

    async def look_up(self, host: str) -> list[str]:
        """Return all addresses of `host`. Raises OSError if it has none, is unanswered or is not a host name."""
        import pycares  # here, since only look-ups need it

        if host == "localhost":  # c-ares adds ::1 to what /etc/hosts says
            known = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in known))
        if self._channel is None or not self._n_left:
            self._channel, self._n_left = pycares.Channel(), LOOKUPS_PER_CHANNEL  # the old one ends with its look-ups
        self._n_left -= 1
        found: Future[tuple[pycares.AddrInfoResult | None, int | None]] = Future()
        found.set_running_or_notify_cancel()  # c-ares will set its result, even if nobody waits any more
        try:
            if "\0" in host:
                raise UnicodeError("a NUL, where C strings end")
            self._channel.getaddrinfo(
                host, None, type=socket.SOCK_STREAM, callback=lambda *each: found.set_result(each)
            )
        except (UnicodeError, pycares.AresError):
            raise socket.gaierror(socket.EAI_NONAME, "not a host name") from None
        result, error = await asyncio.wrap_future(found)
        if error is not None:
            has_none = error in (pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA, pycares.errno.ARES_EBADNAME)
            raise socket.gaierror(socket.EAI_NONAME if has_none else socket.EAI_AGAIN, pycares.errno.strerror(error))
        nodes = result.nodes if result is not None else []
        return list(dict.fromkeys(node.addr[0].decode() for node in nodes))

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


class PinnedResolver(AbstractResolver):
    """Resolves names to vetted addresses. Connections to a host use its first address."""

    def __init__(self, rule: AddressRule, lookup: Lookup | None = None) -> None:
        self._rule = rule
        self._names = Names()
        self._lookup = lookup or self._names.look_up
        self._answers: OrderedDict[str, tuple[float, list[str] | OSError]] = OrderedDict()
        self._room = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self._running: dict[str, asyncio.Future[list[str]]] = {}
        self._once: OrderedDict[str, asyncio.Future[list[str]]] = OrderedDict()

    async def address(self, host: str, port: int, *, once: bool = False) -> str:
        """Return the address that `host` is pinned to. `once` keeps the first look-up's result for the entire run.

        Raises FetchRefused if any of its addresses is forbidden, and OSError if it has none.
        """
        if _is_literal(host):
            answers = [host]
        else:
            answers = await (self._look_up_once(host) if once else self._look_up(host))
        for answer in answers:
            reason = self._rule.refusal(answer, port)
            if reason is not None:
                raise FetchRefused(reason, f"{host} is {answer}, port {port}")
        return answers[0]

    def next_address(self, host: str) -> bool:
        """Pin `host` to its next address after the first could not be reached; return False if there is no other."""
        known = self._answers.get(host)
        if known is None or isinstance(known[1], OSError) or len(known[1]) < 2:
            return False
        known[1].append(known[1].pop(0))
        return True

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return exactly one address to aiohttp, the pinned one."""
        address = await self.address(host, port)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)
        ]

    async def close(self) -> None:
        """End look-ups, without waiting for one that hangs."""
        self._names.close()

    async def _look_up(self, host: str) -> list[str]:
        known = self._answers.get(host)
        if known is not None and time.monotonic() - known[0] < CACHE_SECONDS:
            if isinstance(known[1], OSError):
                raise known[1].with_traceback(None)
            return known[1]
        if host not in self._running:
            self._running[host] = asyncio.ensure_future(self._look_up_now(host))
            self._running[host].add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._running[host])

    async def _look_up_once(self, host: str) -> list[str]:
        if host not in self._once:
            self._once[host] = asyncio.ensure_future(self._look_up_patiently(host))
            self._once[host].add_done_callback(_retrieve_exception)
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
            async with self._room, asyncio.timeout(LOOKUP_SECONDS):
                answers = await self._lookup(host)
            if not answers:
                raise socket.gaierror(socket.EAI_NONAME, "no address")
            self._keep(host, answers)
            return answers
        except OSError as error:
            if not is_unanswered(error):
                self._keep(host, error)
            raise
        finally:
            del self._running[host]

    def _keep(self, host: str, answers: list[str] | OSError) -> None:
        self._answers[host] = (time.monotonic(), answers)
        while len(self._answers) > CACHE_HOSTS:
            self._answers.popitem(last=False)


def guarded_socket(rule: AddressRule) -> Callable[[Any], socket.socket]:
    """Return a socket factory for aiohttp's connector that raises FetchRefused for addresses `rule` refuses."""

    def make(address_info: Any) -> socket.socket:
        family, kind, protocol, _, address = address_info
        reason = rule.refusal(str(address[0]), int(address[1]))
        if reason is not None:
            raise FetchRefused(reason)
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        return made

    return make


def _retrieve_exception(answers: asyncio.Future[list[str]]) -> None:
    """Retrieve the exception of a look-up that nobody awaits any more, so that asyncio doesn't report it."""
    if not answers.cancelled():
        answers.exception()


@functools.lru_cache(maxsize=4096)
def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
