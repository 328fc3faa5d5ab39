"""Fixtures: a small real web on loopback, good and hostile, and links sets that point into it."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from warcio.archiveiterator import ArchiveIterator

from webtext.base.parts.identifiers import link_id, split_of
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.base.web.urls import registrable_domain
from webtext.crawl import command
from webtext.crawl.visits.settings import FetchSettings

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
HOSTS = [f"127.0.0.{i}" for i in range(1, 9)]


class Request(NamedTuple):
    time: float
    host: str  # the address it came in on
    path: str
    headers: dict[str, str]


class LocalWeb:
    """A server on one port of 127.0.0.1 ... 127.0.0.8 that sends exactly the bytes a test plants, and logs requests."""

    def __init__(self, hosts: Sequence[str] = HOSTS) -> None:
        self._hosts = hosts
        self.requests: list[Request] = []
        self.hold_after: int | None = None
        """If this is a number, that request and all later ones get no answer, so that the crawler stops there."""
        self.port = 0
        self._servers: list[asyncio.Server] = []
        self._answers: dict[tuple[str, str], bytes | Answer] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def url(self, path: str, host: int = 1) -> str:
        return f"http://127.0.0.{host}:{self.port}{path}"

    def plant(self, path: str, answer: bytes | Answer, host: int = 1) -> str:
        """Answer `path` on that host with raw bytes or by a coroutine. Returns its URL."""
        self._answers[f"127.0.0.{host}", path] = answer
        return self.url(path, host)

    def page(
        self, path: str, body: bytes | str = "<html>page</html>", *headers: str, host: int = 1, status: str = "200 OK"
    ) -> str:
        """Plant an ordinary answer; text/html unless a header says otherwise. Returns its URL."""
        data = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(data)}"]
        if not any(header.lower().startswith("content-type:") for header in headers):
            lines.append("Content-Type: text/html; charset=utf-8")
        return self.plant(path, "\r\n".join([*lines, "", ""]).encode() + data, host)

    def redirect(self, path: str, to: str, host: int = 1) -> str:
        return self.page(path, b"", f"Location: {to}", host=host, status="302 Found")

    def answer(self, host: str, path: str) -> bytes | Answer:
        """Return what is planted at that address. A test may replace this function."""
        return self._answers.get((host, path), b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    def paths(self, host: int = 1, robots: bool = False) -> list[str]:
        """Return the paths requested from that host, in order."""
        asked = [request.path for request in self.requests if request.host == f"127.0.0.{host}"]
        return [path for path in asked if robots or path != "/robots.txt"]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _cancel_all(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        for host in self._hosts:
            server = await asyncio.start_server(self._serve, host, self.port)
            self._servers.append(server)
            self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                host, path = writer.get_extra_info("sockname")[0], head[0].split(" ")[1]
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                self.requests.append(Request(time.monotonic(), host, path, headers))
                number = len(self.requests)
                while self.hold_after is not None and number >= self.hold_after:
                    await asyncio.sleep(0.005)
                answer = self.answer(host, path)
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                else:
                    await answer(writer)
                    break
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
def web() -> Iterator[LocalWeb]:
    local_web = LocalWeb()
    yield local_web
    local_web.close()


class Wire:
    """The addresses that this process connected or sent datagrams to, recorded by the interpreter's audit hook."""

    def __init__(self, web: LocalWeb) -> None:
        self.reached: list[tuple[str, int]] = []
        self.allowed = {(host, web.port) for host in HOSTS}

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            sock, address = arguments[0], arguments[-1]
            is_probe = event == "socket.connect" and sock.type == socket.SOCK_DGRAM  # sends nothing
            if isinstance(address, tuple) and not is_probe:
                self.reached.append((str(address[0]), int(address[1])))

    @property
    def strays(self) -> list[tuple[str, int]]:
        return [place for place in self.reached if place not in self.allowed]


_listening: list[Wire] = []
sys.addaudithook(lambda event, arguments: [wire.note(event, arguments) for wire in _listening] and None)


@pytest.fixture
def wire(web: LocalWeb) -> Iterator[Wire]:
    """Fail the test that uses this fixture if anything but the local web was reached."""
    guard = Wire(web)
    _listening.append(guard)
    try:
        yield guard
    finally:
        _listening.remove(guard)
    assert guard.strays == []


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What the system's resolver knows in this test, as host name -> addresses. All other names are unknown."""
    known: dict[str, list[str]] = {}

    def look_up(host: str) -> list[str]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return known[host]

    monkeypatch.setattr("webtext.crawl.exchange.resolver.system_lookup", look_up)
    return known


@pytest.fixture
def outcomes(
    crawl: Callable[..., Rows], web: LocalWeb, make_links: Callable[..., str], tmp_path: Path
) -> Callable[..., Rows]:
    """Crawl links, given as name -> URL or as name -> answer to plant, on hosts in turn. Returns the rows by name."""

    def run(plan: Mapping[str, str | bytes | Answer], out: str = "pages", **changes: Any) -> Rows:
        urls = {
            name: answer if isinstance(answer, str) else web.plant(f"/link{i}", answer, host=i % len(HOSTS) + 1)
            for i, (name, answer) in enumerate(plan.items())
        }
        rows = crawl(make_links(list(urls.values()), f"links-{out}"), tmp_path / out, **changes)
        return {name: rows[url] for name, url in urls.items()}

    return run


@pytest.fixture
def make_links(tmp_path: Path) -> Callable[..., str]:
    """Write a links set of these URLs and return its folder. When called again with more URLs, the set grows."""

    def make(urls: Sequence[str], name: str = "links", karma: Mapping[str, int] = MappingProxyType({})) -> str:
        writer = SetWriter(str(tmp_path / name), "links", Recipe(stage="test", code_version=1, settings={}))
        with writer.part(0, key="test") as part:
            part.write([_link(url, karma.get(url, 5)) for url in urls])
            published = part.publish()
        writer.seal([published])
        PartSet._verified.clear()
        return str(tmp_path / name)

    return make


def _link(url: str, karma: int) -> dict[str, object]:
    post = {"source": "test", "post_id": "p", "subreddit": "s", "score": karma, "created": 1, "retrieved": None}
    return {
        "link_id": link_id(url),
        "url": url,
        "url_raw": url,
        "domain": registrable_domain(url),
        "karma": karma,
        "karma_sum": karma,
        "first_created": 1,
        "posts": [post],
        "split": split_of(link_id(url)),
    }


Rows = dict[str, dict[str, Any]]


@pytest.fixture
def settings_for(web: LocalWeb) -> Callable[..., FetchSettings]:
    """Settings with small limits that open the local web and nothing else.

    Its time limits are long. A test of a time limit sets its own, and requests only what is to be late.
    """

    def make(**changes: Any) -> FetchSettings:
        limits = {"max_bytes": 100_000, "total_seconds": 60.0, "connect_seconds": 60.0}
        limits |= {"delay": 0.0, "max_delay": 0.0, "retries": 0, "max_host_failures": 1000}
        return FetchSettings(**{**limits, "allow_address": (f"127.0.0.0/8:{web.port}",), **changes})

    return make


@pytest.fixture
def crawl(settings_for: Callable[..., FetchSettings]) -> Callable[..., Rows]:
    """Fetch a links set into a folder, and return the rows by URL."""

    def fetch(links: str, out: Path, **changes: Any) -> Rows:
        pages = command.crawl(links, str(out), settings_for(**changes), Run.quiet())
        assert pages is not None
        return _rows_of(pages)

    return fetch


@pytest.fixture
def rows_of() -> Callable[[PartSet], Rows]:
    """Return the rows of a pages set by URL, and check that no link has two."""
    return _rows_of


@pytest.fixture
def bodies() -> Callable[[Path], dict[str, bytes]]:
    """Return target URI -> decoded body of every page, as read by warcio, and check that no URI occurs twice."""

    def read(folder: Path) -> dict[str, bytes]:
        found: list[tuple[str, bytes]] = []
        for path in sorted(folder.glob("*.warc.gz")):
            with open(path, "rb") as file:
                for record in ArchiveIterator(file, check_digests="raise"):
                    if record.rec_type in ("response", "revisit"):
                        uri = record.rec_headers.get_header("WARC-Target-URI")
                        content = record.content_stream().read()
                        found.append(
                            (uri, original_body(path.parent, record) if record.rec_type == "revisit" else content)
                        )
        assert len(dict(found)) == len(found)
        return dict(found)

    return read


def original_body(folder: Path, revisit: Any) -> bytes:
    """Return the decoded body that a revisit record, read by warcio, refers to."""
    header = revisit.rec_headers.get_header
    with open(folder / header("WARC-Refers-To-Filename"), "rb") as file:
        file.seek(int(header("WARC-Refers-To-File-Offset")))
        record = next(iter(ArchiveIterator(file)))
        content: bytes = record.content_stream().read()
    original = record.rec_headers.get_header
    assert (record.rec_type, original("WARC-Record-ID")) == ("response", header("WARC-Refers-To"))
    assert original("WARC-Target-URI") == header("WARC-Refers-To-Target-URI")
    assert original("WARC-Date") == header("WARC-Refers-To-Date")
    assert original("WARC-Payload-Digest") == header("WARC-Payload-Digest")
    return content


def _rows_of(pages: PartSet) -> Rows:
    rows = [row for part in pages.parts for row in pages.table(part).to_pylist()]
    assert len({row["link_id"] for row in rows}) == len(rows), "a link has two rows"
    return {row["url"]: row for row in rows}
