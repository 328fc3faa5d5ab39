"""A small real web on loopback: servers that run in the background and send exactly what a test plants."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from webtext.crawl.fetch.robots.robots_txt import TDM_PATH

SITE_FILES = ("/robots.txt", TDM_PATH)

T = TypeVar("T")
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
HOSTS = [f"127.0.0.{i}" for i in range(1, 9)]


class Request(NamedTuple):
    time: float
    host: str  # the address it came in on
    path: str
    headers: dict[str, str]


class InBackground:
    """A server in an event loop and a thread of its own, beside the code that asks it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def await_there(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self.await_there(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class LocalWeb(InBackground):
    """A server on one port of 127.0.0.1 ... 127.0.0.8 that sends exactly the bytes a test plants, and logs requests."""

    def __init__(self, hosts: Sequence[str] = HOSTS) -> None:
        super().__init__()
        self._hosts = hosts
        self.requests: list[Request] = []
        self.hold_after: int | None = None
        """If this is a number, that request and all later ones get no answer, so that the crawler stops there."""
        self.port = 0
        self._servers: list[asyncio.Server] = []
        self._answers: dict[tuple[str, str], bytes | Answer] = {}
        self.await_there(self._listen())

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
        """Return the paths requested from that host, in order; those of the site's opt-outs only with `robots`."""
        asked = [request.path for request in self.requests if request.host == f"127.0.0.{host}"]
        return [path for path in asked if robots or path not in SITE_FILES]

    def start_crawl(
        self, links: str, out: Path, *options: str, constants: Mapping[str, Any] = MappingProxyType({})
    ) -> subprocess.Popen[bytes]:
        """Start `webtext crawl fetch` of links to this web, in a process of its own with other values of constants."""
        command = ["crawl", "fetch", links, "--out", str(out), "--quiet", *options]
        command += ["--allow-address", f"127.0.0.0/8:{self.port}"]
        program = [sys.executable, str(Path(__file__).parent / "changed.py"), json.dumps(dict(constants))]
        return subprocess.Popen([*program, *command], stderr=subprocess.PIPE)

    def wait_for_requests(self, n: int, child: subprocess.Popen[bytes]) -> None:
        while len(self.requests) < n and child.poll() is None:
            time.sleep(0.002)

    async def _cancel_all(self) -> None:
        for server in self._servers:
            server.close()
        await super()._cancel_all()

    async def _listen(self) -> None:
        """Listen on one port of all hosts: another one if a program uses the first host's choice on the next."""
        for _ in range(20):
            self.port = 0
            try:
                for host in self._hosts:
                    self._servers.append(await asyncio.start_server(self._serve, host, self.port))
                    self.port = self._servers[0].sockets[0].getsockname()[1]
                return
            except OSError:
                while self._servers:
                    self._servers.pop().close()
        raise OSError(f"no port is free on all of {', '.join(self._hosts)}")

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
