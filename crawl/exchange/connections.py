"""Sends requests over aiohttp's connections without its session, and returns the answer's head and a stream.

aiohttp makes the connections (with our resolver and our sockets), keeps them for the next request, and parses answers
strictly with llhttp. Its session would add cookies, credentials, proxies, redirects and traces. None of them is wanted
here, and they double the CPU time. So a request is written as bytes, and its WARC record has the same bytes.
"""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
from types import TracebackType

import aiohttp
from aiohttp import hdrs
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from webtext.crawl.exchange.addresses import AddressRule
from webtext.crawl.exchange.resolver import PinnedResolver
from webtext.crawl.exchange.session import MAX_HEADER_BYTES, MAX_HEADERS, READ_BYTES, guarded_connector, n_unread

ORIGINS_KNOWN = 4096

Tls = ssl.SSLContext | bool

_BREAKS_A_HEAD = re.compile(r"[\r\n\0]")


class Answer:
    """An answer whose head has come. `content` streams its body, without chunks but otherwise as sent.

    Use as a context manager: on leaving, the connection is kept for another request if the entire body has come, else
    closed.
    """

    __slots__ = ("_connection", "content", "message")

    def __init__(self, connection: Connection, message: RawResponseMessage, content: StreamReader) -> None:
        self._connection = connection
        self.message = message
        self.content = content

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Close all connections."""
        await self._connector.close()

    async def get(
        self, origin: str, target: str, headers: str, tls: Tls, timeout: aiohttp.ClientTimeout
    ) -> tuple[bytes, Answer]:
        """GET `target` from `origin` (scheme, host and port of a canonical URL), with `headers` besides Host.

        Returns the head of the request, as it was sent, and the answer. Raises what aiohttp and the system raise. If
        the connection breaks before an answer, sends the request once more: a kept one may just have been closed.
        """
        request = self._request(origin, tls)
        if _BREAKS_A_HEAD.search(target):
            raise ValueError(f"a line end in the URL's path: {target!r}")
        head = f"GET {target} HTTP/1.1\r\nHost: {request.headers[hdrs.HOST]}\r\n{headers}\r\n".encode()
        try:
            return head, await self._exchange(request, head, timeout)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            return head, await self._exchange(request, head, timeout)

    async def _exchange(self, request: ClientRequest, head: bytes, timeout: aiohttp.ClientTimeout) -> Answer:
        try:
            connection = await self._connector.connect(request, [], timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {request.url}") from error
        try:
            protocol = connection.protocol
            if protocol is None or protocol.transport is None:
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
                    return Answer(connection, message, content)
        except BaseException:
            connection.close()
            raise


def _request(origin: str, tls: Tls) -> ClientRequest:
    """Make the request object that the connector needs. It is the same for all requests to an origin."""
    return ClientRequest("GET", URL(f"{origin}/", encoded=True), ssl=tls, loop=asyncio.get_running_loop())
