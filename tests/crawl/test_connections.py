"""The bytes sent for a page, and whether the connection is kept, as seen by a server that records every byte."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType
from local_web import InBackground

from webtext.crawl.fetch.client.addresses import AddressRule, AllowedAddress
from webtext.crawl.fetch.client.connections import Connections
from webtext.crawl.fetch.client.resolver import PinnedResolver
from webtext.crawl.fetch.hosts import Hosts

PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class NotingServer(InBackground):
    """Answers each request with the next of `answers` (by default a page; None closes). Logs heads per connection."""

    def __init__(self) -> None:
        super().__init__()
        self.heads: list[list[bytes]] = []
        self.answers: list[bytes | None] = []
        self.port = self.await_there(self._listen())

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads: list[bytes] = []
        self.heads.append(heads)
        try:
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0) if self.answers else PAGE
                if answer is None:
                    break
                writer.write(MISSING if heads[-1].startswith(b"GET /robots.txt") else answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _cancel_all(self) -> None:
        self._server.close()
        await super()._cancel_all()


@pytest.fixture
def server() -> Iterator[NotingServer]:
    noting = NotingServer()
    yield noting
    noting.close()


def ask(server: NotingServer, *targets: str, read: bool = True) -> list[bytes]:
    """Request these one after the other, and return the bodies."""

    async def run() -> list[bytes]:
        rule = AddressRule((AllowedAddress.parse("127.0.0.1"),))
        connections = Connections(PinnedResolver(rule), rule, keep_alive=10.0)
        bodies = []
        try:
            for target in targets:
                origin, timeout = f"http://127.0.0.1:{server.port}", aiohttp.ClientTimeout(total=None, sock_connect=10)
                head, answer = await connections.get(origin, target, "Accept: text/html\r\n", True, timeout)
                assert head == server.heads[-1][-1]
                with answer:
                    bodies.append(await answer.content.read() if read else b"")
        finally:
            await connections.close()
        return bodies

    return asyncio.run(run())


def test_the_returned_head_is_the_one_that_was_sent(server: NotingServer) -> None:
    assert ask(server, "/a?b=%20c") == [b"<html>"]
    host = f"127.0.0.1:{server.port}".encode()
    assert server.heads == [[b"GET /a?b=%20c HTTP/1.1\r\nHost: " + host + b"\r\nAccept: text/html\r\n\r\n"]]


def test_a_request_record_has_the_bytes_that_were_sent(server: NotingServer, crawl: Any, tmp_path: Any) -> None:
    url = f"http://127.0.0.1:{server.port}/page?"
    rows = crawl([url], allow_address=("127.0.0.1",))
    assert rows[url]["reason"] is None
    with open(next((tmp_path / "pages").glob("*.warc.gz")), "rb") as file:
        records = [
            record.reader.read()
            for record in ArchiveIterator(file, parse_http=False, record_types=WarcRecordType.request)
        ]
    sent = [head for heads in server.heads for head in heads if b"/page" in head]
    assert records == sent
    assert sent[0].startswith(b"GET /page? HTTP/1.1\r\n")


def test_a_connection_serves_the_next_request_when_its_body_was_read(server: NotingServer) -> None:
    assert ask(server, "/1", "/2", "/3") == [b"<html>"] * 3
    assert len(server.heads) == 1


def test_a_connection_whose_body_has_not_all_come_is_closed(server: NotingServer) -> None:
    server.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<html>"]
    ask(server, "/1", "/2", read=False)
    assert [len(heads) for heads in server.heads] == [1, 1]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts whose turn was taken for a request, in order."""
    taken: list[str] = []
    take = Hosts.turn
    monkeypatch.setattr(Hosts, "turn", lambda self, host, address: taken.append(host) or take(self, host, address))
    return taken


def test_a_request_on_a_closed_connection_is_repeated_in_another_turn(
    server: NotingServer, crawl: Any, turns: list[str]
) -> None:
    """The server closes the kept connection when the page is requested on it."""
    server.answers = [PAGE, PAGE, None, PAGE]
    [row] = crawl([f"http://127.0.0.1:{server.port}/page"], allow_address=("127.0.0.1",)).values()
    asked = [[head.split()[1] for head in heads] for heads in server.heads]
    assert asked == [[b"/robots.txt", b"/.well-known/tdmrep.json", b"/page"], [b"/page"]]
    assert (row["reason"], row["requests"], len(turns)) == (None, 2, 4)


def test_a_request_on_a_new_connection_that_is_closed_is_not_repeated(
    server: NotingServer, crawl: Any, turns: list[str]
) -> None:
    server.answers = [None, PAGE]
    [row] = crawl([f"http://127.0.0.1:{server.port}/page"], allow_address=("127.0.0.1",)).values()
    assert (row["reason"], row["requests"]) == ("robots_unreachable", 0)
    assert [len(heads) for heads in server.heads] == [1]
    assert len(turns) == 1


def test_interim_answers_are_skipped(server: NotingServer) -> None:
    server.answers = [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3 + PAGE]
    assert ask(server, "/1") == [b"<html>"]


@pytest.mark.parametrize("target", ["/a\r\nX: y", "/a\nX: y", "/a\0"])
def test_a_target_that_would_end_the_line_is_never_sent(server: NotingServer, target: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        ask(server, target)
    assert server.heads == []
