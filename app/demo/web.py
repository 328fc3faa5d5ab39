"""The demo's web server: one host on each of eight loopback addresses, with good and hostile pages.

Run as `python -m webtext.app.demo.web FOLDER PORT`. It prints "ready" when all addresses listen, and exits when its
standard input closes, so it never outlives its parent.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from webtext.app.demo.pages import NAMES
from webtext.app.demo.plan import CANARY, HOSTS, Planted, make_plan, robots_txt

ENDLESS_BYTES = 64 * 2**20  # the "endless" page does end
NESTING = 100_000

GERMAN = """<p>Wer eine Sammlung von Texten aufbaut, muss zuerst entscheiden, welche Seiten er lesen will. Diese Seite
ist auf Deutsch geschrieben und gehört deshalb nicht in einen englischen Bestand. Sie erzählt von einem kleinen Dorf am
Rande der Berge, in dem jeden Morgen der Bäcker als Erster das Licht anmacht und die Kinder auf dem Weg zur Schule ein
warmes Brötchen bekommen. Im Winter liegt der Schnee so hoch, dass man die Zäune nicht mehr sieht, und im Sommer riecht
es nach Heu und nach reifen Äpfeln.</p>"""


class _Site:
    """The addresses and their answers."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        names = json.loads((folder / NAMES).read_text(encoding="utf-8"))
        self.names = frozenset(names)
        self.answers = {page.url: page for page in make_plan(names, port).all}

    def page(self, name: str) -> str:
        return (self._folder / f"{name}.html").read_text(encoding="utf-8")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "demo"
    site: _Site

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        host = f"http://{self.headers.get('Host', '')}"
        path = urlsplit(self.path).path
        planted = self.site.answers.get(host + self.path)
        if path == "/robots.txt":
            self._send(200, robots_txt(self.headers["Host"].partition(":")[0]).encode(), "text/plain")
        elif (name := path.removeprefix("/unlinked/").removesuffix(".html")) in self.site.names:
            self._send_html(self.site.page(name))
        elif planted is None:
            self._send(404, b"not found", "text/plain")
        else:
            getattr(self, f"_answer_{planted.content}")(planted)

    def _answer_page(self, planted: Planted) -> None:
        self._send_html(self.site.page(planted.page) if planted.page else _page(planted.label, planted.label))

    _answer_copy = _answer_page

    def _answer_edited(self, planted: Planted) -> None:
        """Send the page with every hundredth 'the' replaced."""
        count = iter(range(10**9))
        text = re.sub(r"\bthe\b", lambda m: "this" if next(count) % 100 == 50 else m[0], self.site.page(planted.page))
        self._send_html(text)

    def _answer_redirect(self, planted: Planted) -> None:
        self._send(302, b"", "text/html", {"Location": planted.location})

    def _answer_missing(self, planted: Planted) -> None:
        self._send(404, b"gone", "text/html")

    def _answer_pdf(self, planted: Planted) -> None:
        self._send(200, b"%PDF-1.4\n" + b"0" * 4096, "application/pdf")

    def _answer_short(self, planted: Planted) -> None:
        self._send_html(_page("Short", "<p>This page says very little indeed.</p>"))

    def _answer_german(self, planted: Planted) -> None:
        self._send_html(_page("Deutsch", GERMAN * 3, language="de"))

    def _answer_canary(self, planted: Planted) -> None:
        text = self.site.page(planted.page)
        self._send_html(text.replace("<p>", f"<p>{CANARY}\n", 1))

    def _answer_deep(self, planted: Planted) -> None:
        self._send_html(_page("Deep", "<div>" * NESTING + "text" + "</div>" * NESTING))

    def _answer_endless(self, planted: Planted) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Connection", "close")
        self.end_headers()
        block = b"<p>And on it goes.</p>\n" * 2048
        try:
            for _ in range(ENDLESS_BYTES // len(block)):
                self.wfile.write(block)
        except OSError:
            pass  # the crawler closed the connection, as it should
        self.close_connection = True

    def _send_html(self, text: str) -> None:
        self._send(
            200, gzip.compress(text.encode(), 1, mtime=0), "text/html; charset=utf-8", {"Content-Encoding": "gzip"}
        )

    def _send(self, status: int, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing; the fetch log has everything."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: some pages are meant to make the crawler close the connection."""


def serve(folder: Path, port: int) -> list[_Server]:
    """Listen on every address, each server in its own daemon thread."""
    handler = type("Handler", (_Handler,), {"site": _Site(folder, port)})
    servers = [_Server((host, port), handler) for host in HOSTS]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    return servers


def _page(title: str, body: str, language: str = "en") -> str:
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body><main><h1>{title}</h1>{body}</main></body></html>"
    )


if __name__ == "__main__":
    try:
        serve(Path(sys.argv[1]), int(sys.argv[2]))
    except OSError as error:
        sys.exit(f"cannot listen: {error.strerror}")  # the parent reports the rest
    print("ready", flush=True)
    sys.stdin.read()
