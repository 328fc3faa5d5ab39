"""aiohttp as it is used here: vetted addresses, verified TLS, no proxy, no cookies, heads and waiting bytes bounded."""

from __future__ import annotations

import asyncio
import functools

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage

from webtext.crawl.addresses import AddressRule
from webtext.crawl.resolver import PinnedResolver, guarded_socket

MAX_HEADER_BYTES = 8190  # of one line; what aiohttp and most servers allow
MAX_HEADERS = 128
MAX_INTERIM = 16  # answers with a status of 1xx before the one that counts
READ_BYTES = 64 * 1024  # of a body that may wait in a connection, twice; most pages are there at the first look
MAX_KEEP_ALIVE = 15.0  # seconds that an idle connection is kept at most


def guarded_session(user_agent: str, resolver: PinnedResolver, rule: AddressRule) -> aiohttp.ClientSession:
    """The session behind requests to APIs: vetted addresses, TLS verified, no proxy, no cookies, bounded headers."""
    return aiohttp.ClientSession(
        connector=guarded_connector(resolver, rule, MAX_KEEP_ALIVE),
        headers={"User-Agent": user_agent},
        skip_auto_headers=("Accept", "Accept-Encoding"),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,  # a proxy would connect where we may not
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        max_headers=MAX_HEADERS,
        read_bufsize=READ_BYTES,
    )


def guarded_connector(resolver: PinnedResolver, rule: AddressRule, keep_alive: float) -> aiohttp.TCPConnector:
    """What makes every connection, and keeps it for so many seconds, MAX_KEEP_ALIVE at most."""
    connector = aiohttp.TCPConnector(
        limit=0,  # slots bound what is under way
        resolver=resolver,
        use_dns_cache=False,
        happy_eyeballs_delay=None,  # one pinned address, one socket
        socket_factory=guarded_socket(rule),
        keepalive_timeout=min(keep_alive, MAX_KEEP_ALIVE),
    )
    protocol: type[ResponseHandler] = _Protocol
    connector._factory = functools.partial(protocol, loop=asyncio.get_running_loop())
    return connector


class _Protocol(ResponseHandler):
    """aiohttp's protocol, with a bound on interim answers (1xx): it keeps all that come until somebody reads on."""

    _n_interim = 0

    def feed_data(self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0) -> None:
        if self.exception() is not None:
            return
        code = data[0].code
        self._n_interim = self._n_interim + 1 if 100 <= code < 200 else 0
        if self._n_interim <= MAX_INTERIM:
            super().feed_data(data, size)
            return
        if self.transport is not None:
            self.transport.close()
        self.set_exception(HttpProcessingError(code=code, message=f"more than {MAX_INTERIM} interim answers"))
