"""Servers that send unsolicited bytes: these are never taken for the answer to the next request.

RFC 9112 section 9.2: data that arrive without an outstanding request are not the response to a later one.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp.http_exceptions import HttpProcessingError
from hostile_answers import answer
from local_web import InBackground
from test_hostile_tls import Authority

from webtext.crawl.fetch.client.addresses import AddressRule, AllowedAddress
from webtext.crawl.fetch.client.connections import Connections, guarded_session
from webtext.crawl.fetch.client.resolver import PinnedResolver

WRONG = answer(b"<html>wrong page")
NO_HTTP = b"\x00\xff hello"
EXTRAS = {
    "a whole answer": WRONG,
    "two": 2 * WRONG,
    "an answer without its last byte": WRONG[:-1],
    "a head without its end": WRONG[: WRONG.index(b"\r\n\r\n")],
    "half a status line": b"HTTP/1.1 2",
    "one byte": b"H",
    "no HTTP at all": NO_HTTP,
}


EACH_MOMENT = pytest.mark.parametrize(
    "moment", ["at once", "later, and the loop has read it", "later, and waits in the socket"]
)


class ChattyServer(InBackground):
    """Answers each path with itself. On its first connection it also sends `extra`, before or after an answer."""

    def __init__(self, extra: bytes, moment: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._extra, self._moment = extra, moment
        self.n_connections = 0
        self.may_send, self.has_sent = threading.Event(), threading.Event()
        self._server = self.await_there(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls))
        self.origin = f"http{'s' if tls else ''}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        is_first = self.n_connections == 1
        try:
            if is_first and self._moment == "before":
                await self._send(writer, self._extra)
            n_requests = 0
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
                n_requests += 1
                own = answer(b"<html>" + path)
                if is_first and n_requests == 2:
                    own = WRONG[len(self._extra) :] + own  # the rest of the started answer
                at_once = is_first and n_requests == 1 and self._moment == "at once"
                writer.write(own + self._extra if at_once else own)
                if is_first and n_requests == 1 and self._moment == "later":
                    await writer.drain()
                    await asyncio.to_thread(self.may_send.wait, 60)
                    await self._send(writer, self._extra)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self.has_sent.set()

    async def _cancel_all(self) -> None:
        self._server.close()
        await super()._cancel_all()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def ask_twice(server: ChattyServer, tls: ssl.SSLContext | bool, *, loop_reads: bool) -> list[bytes]:
    """Return the bodies of /1 and /2. The server sends unsolicited bytes between them."""

    async def run() -> list[bytes]:
        rule = AddressRule((AllowedAddress.parse("127.0.0.1"),))
        connections = Connections(PinnedResolver(rule), rule, keep_alive=60.0)
        bodies = []
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=60)
        try:
            for target in ("/1", "/2"):
                async with asyncio.timeout(60):
                    _, given = await connections.get(server.origin, target, "", tls, timeout)
                with given:
                    bodies.append(await given.content.read())
                server.may_send.set()
                if server._moment == "later":
                    server.has_sent.wait(60)  # blocks this thread, so that the loop reads nothing
                    await asyncio.sleep(0.2 if loop_reads else 0)
        finally:
            await connections.close()
        return bodies

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the event loop that a crawl uses
        return runner.run(run())


@EACH_MOMENT
@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS)
def test_each_page_gets_its_own_answer(extra: bytes, moment: str) -> None:
    with closing(ChattyServer(extra, moment.partition(",")[0])) as server:
        if (extra, moment) == (NO_HTTP, "at once"):  # comes in one read and is not HTTP
            with pytest.raises(HttpProcessingError):
                ask_twice(server, True, loop_reads=False)
            return
        assert ask_twice(server, True, loop_reads="loop" in moment) == [b"<html>/1", b"<html>/2"]
        assert server.n_connections == 2


@EACH_MOMENT
@pytest.mark.parametrize("extra", ["a whole answer", "half a status line"])
def test_each_page_over_tls_gets_its_own_answer(extra: str, moment: str, authority: Authority) -> None:
    tls = ssl.create_default_context(cafile=str(authority.file))
    with closing(ChattyServer(EXTRAS[extra], moment.partition(",")[0], authority.context("chatty"))) as server:
        assert ask_twice(server, tls, loop_reads="loop" in moment) == [b"<html>/1", b"<html>/2"]
        assert server.n_connections == 2


def test_a_quiet_connection_over_tls_is_reused(authority: Authority) -> None:
    tls = ssl.create_default_context(cafile=str(authority.file))
    with closing(ChattyServer(b"", "never", authority.context("quiet"))) as server:
        ask_twice(server, tls, loop_reads=True)
        assert server.n_connections == 1


def test_bytes_before_a_request_never_answer_it() -> None:
    with (
        closing(ChattyServer(WRONG, "before")) as server,
        pytest.raises(HttpProcessingError, match="bytes came before the request"),
    ):
        ask_new_connection_late(server)


def ask_new_connection_late(server: ChattyServer) -> bytes:
    """Send a request on a connection after its server's unsolicited bytes have arrived."""

    class Late(Connections):
        async def _exchange(self, request, head, timeout):  # type: ignore[no-untyped-def]
            connect = self._connector.connect

            async def connect_and_wait(*args):  # type: ignore[no-untyped-def]
                connection = await connect(*args)
                server.has_sent.wait(60)
                time.sleep(0.05)
                return connection

            self._connector.connect = connect_and_wait  # type: ignore[method-assign]
            return await super()._exchange(request, head, timeout)

    async def run() -> bytes:
        rule = AddressRule((AllowedAddress.parse("127.0.0.1"),))
        connections = Late(PinnedResolver(rule), rule, keep_alive=60.0)
        try:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=60)
            _, given = await connections.get(server.origin, "/1", "", True, timeout)
            with given:
                return await given.content.read()
        finally:
            await connections.close()

    return asyncio.run(run())


def test_the_session_for_apis_takes_no_unsolicited_answer_either() -> None:
    server = ChattyServer(WRONG, "later")

    async def run() -> list[bytes]:
        rule = AddressRule((AllowedAddress.parse("127.0.0.1"),))
        async with guarded_session("webtext", PinnedResolver(rule), rule) as session:
            bodies = []
            for target in ("/1", "/2"):
                async with session.get(server.origin + target) as given:
                    bodies.append(await given.read())
                server.may_send.set()
                server.has_sent.wait(60)
            return bodies

    with closing(server):
        assert asyncio.run(run()) == [b"<html>/1", b"<html>/2"]
