"""aiohttp's connections, made safe for hostile servers: vetted addresses, TLS verified, no proxy, bounded memory.

aiohttp makes the connections (with our resolver and our sockets), keeps them for the next request, and parses answers
strictly with llhttp. Its session would add cookies, credentials, proxies, redirects and traces. None of them is wanted
for pages, and they double the CPU time. So `Connections` writes a request as bytes, and its WARC record has the same
bytes. APIs, which get few requests, use the session.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import re
import ssl
import sys
import termios
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from webtext.crawl.fetch.client.addresses import AddressRule
from webtext.crawl.fetch.client.failures import KeptConnectionBroke
from webtext.crawl.fetch.client.resolver import PinnedResolver, guarded_socket

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.tracing import Trace

MAX_HEADER_BYTES = 8190  # per line; the limit of aiohttp and most servers
MAX_HEADERS = 128
MAX_INTERIM = 16  # answers with a 1xx status before the final one; without end, 64 such servers took 442 MiB
READ_BYTES = 32 * 1024  # a connection buffers up to twice this much of a body, or a sixteenth as many chunks
MAX_KEEP_ALIVE = 15.0  # seconds before an idle connection is closed
ORIGINS_KNOWN = 4096

Tls = ssl.SSLContext | bool

_BREAKS_A_HEAD = re.compile(r"[\r\n\0]")


@dataclass(slots=True)
class OpenResponse:
    """An answer whose head has come. `content` streams its body, without chunks but otherwise as sent.

    Use as a context manager: on leaving, the connection is kept for another request if the entire body has come, else
    closed.
    """

    _connection: Connection
    _protocol: _Protocol
    message: RawResponseMessage
    content: StreamReader

    @property
    def was_cut(self) -> bool:
        """Whether the body ended with the connection, and the server did not say that it was complete.

        Over TLS that is an end without close_notify (RFC 9112 section 9.8), which anyone on the way can cause.
        """
        has_end = self.message.chunked or "Content-Length" in self.message.headers
        return not has_end and not self._protocol.has_ended

    def __enter__(self) -> OpenResponse:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.release()
        else:
            self._connection.close()


class Connections:
    """Connections to vetted addresses. An idle one is kept for at most `keep_alive` seconds."""

    def __init__(self, resolver: PinnedResolver, rule: AddressRule, keep_alive: float) -> None:
        self._connector = guarded_connector(resolver, rule, keep_alive)
        self._request = functools.lru_cache(maxsize=ORIGINS_KNOWN)(_request)

    async def close(self) -> None:
        await self._connector.close()

    async def get(
        self, origin: str, target: str, headers: str, tls: Tls, timeout: aiohttp.ClientTimeout
    ) -> tuple[bytes, OpenResponse]:
        """GET `target` from `origin` (scheme, host and port of a canonical URL), with `headers` besides Host.

        Returns the head of the request, as it was sent, and the answer. Raises what aiohttp and the system raise, and
        KeptConnectionBroke if a new connection may work at once.
        """
        request = self._request(origin, tls)
        if _BREAKS_A_HEAD.search(target):
            raise ValueError(f"a line end in the URL's path: {target!r}")
        head = f"GET {target} HTTP/1.1\r\nHost: {request.headers[hdrs.HOST]}\r\n{headers}\r\n".encode()
        return head, await self._exchange(request, head, timeout)

    async def _exchange(self, request: ClientRequest, head: bytes, timeout: aiohttp.ClientTimeout) -> OpenResponse:
        try:
            connection = await self._connector.connect(request, [], timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {request.url}") from error
        protocol = connection.protocol
        try:
            if not isinstance(protocol, _Protocol) or protocol.transport is None:
                raise aiohttp.ServerDisconnectedError
            if protocol.should_close or (not request.is_ssl() and n_unread(protocol)):
                raise HttpProcessingError(message="bytes came before the request")
            protocol.set_response_params(
                read_until_eof=True,
                auto_decompress=False,
                read_bufsize=READ_BYTES,
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
                max_headers=MAX_HEADERS,
            )
            protocol.transport.write(head)
            while True:
                message, content = await protocol.read()
                if not 100 <= message.code < 200 or message.code == 101:
                    return OpenResponse(connection, protocol, message, content)
        except BaseException as error:
            connection.close()
            is_broken = isinstance(error, (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError))
            if is_broken and isinstance(protocol, _Protocol) and protocol.is_kept:
                raise KeptConnectionBroke("connection_failed", repr(error)) from None
            raise


def _request(origin: str, tls: Tls) -> ClientRequest:
    """Make the request object that the connector needs. It is the same for all requests to an origin."""
    return ClientRequest("GET", URL(f"{origin}/", encoded=True), ssl=tls, loop=asyncio.get_running_loop())


def guarded_session(user_agent: str, resolver: PinnedResolver, rule: AddressRule) -> aiohttp.ClientSession:
    """Make a session for requests to APIs: vetted addresses, TLS verified, no proxy, no cookies, bounded headers."""
    return aiohttp.ClientSession(
        connector=guarded_connector(resolver, rule, MAX_KEEP_ALIVE),
        headers={"User-Agent": user_agent},
        skip_auto_headers=("Accept", "Accept-Encoding"),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,  # a proxy could connect to addresses that are forbidden here
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        max_headers=MAX_HEADERS,
        read_bufsize=READ_BYTES,
    )


def guarded_connector(resolver: PinnedResolver, rule: AddressRule, keep_alive: float) -> aiohttp.TCPConnector:
    """Make the connector. It keeps idle connections for `keep_alive` seconds, or MAX_KEEP_ALIVE if that is less."""
    connector = _Connector(
        limit=0,  # the slots of `Hosts` bound the number of requests
        resolver=resolver,
        use_dns_cache=False,
        happy_eyeballs_delay=None,  # one pinned address, one socket
        socket_factory=guarded_socket(rule),
        keepalive_timeout=min(keep_alive, MAX_KEEP_ALIVE),
    )
    protocol: type[ResponseHandler] = _Protocol
    connector._factory = functools.partial(protocol, loop=asyncio.get_running_loop())
    return connector


class _Connector(aiohttp.TCPConnector):
    """Reuses a connection only if no bytes are waiting on it, as they can't answer the next request (RFC 9112, 9.2).

    aiohttp checks `should_close` when it puts a connection back, but nothing when it takes it out again.
    """

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            if key.is_ssl:
                await asyncio.sleep(0)  # bytes that wait in the TLS layer reach the protocol in this turn of the loop
            protocol = connection.protocol
            if isinstance(protocol, _Protocol) and not protocol.should_close and not n_unread(protocol):
                protocol.is_kept = True
                return connection
            connection.close()
        return None

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        super()._release(key, protocol, should_close=should_close or protocol.should_close or not _ends_well(protocol))


def n_unread(protocol: ResponseHandler) -> int:
    """Return the number of bytes in the connection's socket that the event loop has not read yet (encrypted in TLS)."""
    transport = protocol.transport
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


def _ends_well(protocol: ResponseHandler) -> bool:
    """Remove the parser from a connection after its answer. Returns False if the start of another answer follows it.

    Without a parser, further bytes remain in the protocol's tail, which makes `should_close` true.
    """
    parser, protocol._parser = protocol._parser, None
    try:
        return parser is None or parser.feed_eof() is None
    except (aiohttp.ClientError, HttpProcessingError):
        return False


class _Protocol(ResponseHandler):
    """aiohttp's protocol with a bound on interim answers (1xx), which aiohttp queues without end."""

    is_kept = False  # it has had an answer
    has_ended = False  # the server has ended the connection in order
    _n_interim = 0

    def eof_received(self) -> None:
        self.has_ended = True
        super().eof_received()

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
