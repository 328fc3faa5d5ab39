"""HTTP server on loopback that serves ranges of a folder's files and records them; it can be slow, or fail."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SLICE_BYTES = 1 << 18


class RangeServer(ThreadingHTTPServer):
    """Serves `folder`; `requests` has "GET name" of each, `asked` (name, first byte, end) of each answered range."""

    daemon_threads = True

    def __init__(self, folder: Path, *, seconds_to_answer: float = 0, bytes_per_second: float | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.seconds_to_answer = seconds_to_answer
        self.bytes_per_second = bytes_per_second
        self.asked: list[tuple[str, int, int]] = []
        self.requests: list[str] = []
        self.alter: Callable[[str, int, bytes], bytes] = lambda name, start, data: data
        self.serves_ranges = True
        self.refusals = 0
        """Number of next range requests to answer with 503."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        name = self.path.lstrip("/")
        self.server.requests.append(f"{self.command} {name}")
        path = self.server.folder / name
        if name and not path.is_file():
            self._head(404, 0)
            return
        size = path.stat().st_size if name else 0
        wanted = self.headers.get("Range", "") if self.server.serves_ranges else ""
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
        start, stop = (int(asked[1]), min(int(asked[2]) + 1, size)) if asked else (0, size)
        if asked and self.server.refusals:
            self.server.refusals -= 1
            self._head(503, 0)
            return
        time.sleep(self.server.seconds_to_answer)
        if asked:
            self.server.asked.append((name, start, stop))
        self._head(206 if asked else 200, stop - start, f"bytes {start}-{stop - 1}/{size}" if asked else "")
        if with_body and stop > start:
            self._send(path, name, start, stop)

    def _send(self, path: Path, name: str, start: int, stop: int) -> None:
        with open(path, "rb") as file:
            file.seek(start)
            data = self.server.alter(name, start, file.read(stop - start))
        for at in range(0, len(data), SLICE_BYTES):
            piece = data[at : at + SLICE_BYTES]
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(piece)
            if self.server.bytes_per_second:
                time.sleep(len(piece) / self.server.bytes_per_second)

    def _head(self, status: int, length: int, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, **options: float) -> Iterator[RangeServer]:
    """Run a server during a `with` block."""
    with RangeServer(folder, **options) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
