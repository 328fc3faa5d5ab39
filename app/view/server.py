"""The viewer's server: loopback only, GET only, for the one who has the token of its address.

The token comes in the first address and then in a cookie, which other sites can't send (SameSite=Strict). A request with
another Host (a name that was bound to 127.0.0.1) or from another origin is refused. Pages run no script but ours.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Iterator
from functools import cached_property
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from webtext.app.chain import Layout
from webtext.app.inspect.trace import Tracer, find_cluster
from webtext.app.inspect.trace_text import trace_text
from webtext.app.view import pages
from webtext.app.view.search import Query, Search
from webtext.base.charts import Line
from webtext.base.errors import ConfigError, InputError, MachineError, WebtextError
from webtext.base.storage import Folder
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.show.view import TOKEN_STYLE, boxes
from webtext.train.evaluate.curve import CURVE_POINTS, thinned
from webtext.train.evaluate.page import Section, as_page, chart
from webtext.train.metrics import METRICS, read_metrics

STAGES = ("links", "pages", "documents", "corpus", "tokens")
TOKENS_SHOWN = 5_000
CHARACTERS_TOKENIZED = 40_000
RELOAD_SECONDS = 5
CURVES = {
    "loss": "training loss, nats per token",
    "validation_loss": "held-out loss, nats per token",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "tokens_per_second": "tokens per second",
}
HTML, CSS, JAVASCRIPT = "text/html; charset=utf-8", "text/css; charset=utf-8", "text/javascript; charset=utf-8"
CSP = "default-src 'none'; style-src 'self'; script-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Viewer(ThreadingHTTPServer):
    """A server of one build, on 127.0.0.1. Raises InputError if `root` has no build, MachineError if the port is taken."""

    daemon_threads = True

    def __init__(self, root: str, port: int = 0) -> None:
        self.root, self.layout, self.search = root, Layout.existing(root), Search(root)
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise MachineError(
                f"port {port} of 127.0.0.1 cannot be used: {error.strerror}", "choose another --port"
            ) from None
        self.origins = {f"http://{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}
        self.cookie = f"webtext-{self.server_port}"  # cookies are shared by the ports of a host

    @property
    def url(self) -> str:
        """The address to open."""
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.layout.tokenizer)

    def answer(self, path: str, values: dict[str, str]) -> tuple[str, Iterable[str]]:
        """Return the type and the pieces of a page. InputError if the build has no such thing, ConfigError for a value."""
        if path == "/":
            return HTML, [self._overview()]
        if path == "/search":
            return HTML, self._search(Query.of(values))
        if path == "/document":
            return HTML, [self._document(values.get("id", ""))]
        if path == "/training":
            return HTML, [pages.training(Folder(self.layout.model).exists(METRICS))]
        if path == "/training/curves":
            return HTML, [self._curves()]
        if path == "/style.css":
            return CSS, [_own_file("style.css"), TOKEN_STYLE]
        if path == "/keys.js":
            return JAVASCRIPT, [_own_file("keys.js")]
        raise InputError(f"unknown page '{path[:100]}'", "go to the overview")

    def _overview(self) -> str:
        stages, missing = [], []
        for name in STAGES:
            try:
                stages.append((name, self.search.open(name).counts.to_json()))
            except InputError:
                missing.append(name)
        return pages.overview(self.root, stages, missing)

    def _search(self, query: Query) -> Iterator[str]:
        rows = self.search.rows(query)
        first = next(rows, None)  # an error in the query is raised here, before anything is sent
        yield "".join(pages.page_start("search"))
        yield pages.search_form(query, self.search.reasons())
        yield from pages.results(query, [] if first is None else _chained(first, rows))
        yield pages.PAGE_END

    def _document(self, identifier: str) -> str:
        tracer = Tracer(self.root)
        trace = tracer.why(identifier)
        if trace.document is None:
            return pages.trace_only(trace, trace_text(trace))
        own = trace.document["id"]
        removed = trace.decision is not None and trace.decision["request"] is not None
        text = "removed on request" if removed else tracer.text(own)
        return pages.document(trace, find_cluster(self.root, own), text, "" if removed else self._tokens(text))

    def _tokens(self, text: str) -> str:
        try:
            view = self.tokenizer.view(text[:CHARACTERS_TOKENIZED])
        except WebtextError:  # the build has no tokenizer yet
            return ""
        return boxes(view, TOKENS_SHOWN) + f"<p>{pages.shown(view.summary())}</p>"

    def _curves(self) -> str:
        rows = read_metrics(Folder(self.layout.model), "start a run with webtext train run")
        sections = []
        for name, label in CURVES.items():
            points = [
                (int(row["step"]), float(row[name])) for row in rows if _is_number(row.get(name)) and "step" in row
            ]
            if points:
                drawn = chart({label: [Line(thinned(points, CURVE_POINTS), "held-out")]}, x="step", y=label, height=260)
                sections.append(
                    Section(title=label, chart=drawn, notes=[f"now {points[-1][1]:,.4g}, step {points[-1][0]:,}"])
                )
        return as_page("Training", sections)


class _Handler(BaseHTTPRequestHandler):
    server: Viewer
    timeout = 30
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "webtext", ""

    def do_GET(self) -> None:
        path, values = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query, max_num_fields=50))
        refusal = self._refusal()
        if refusal is not None:
            self._send(HTTPStatus.FORBIDDEN, [pages.failure("refused", [refusal])])
        elif _same(values.get("token"), self.server.token):
            del values["token"]
            self._enter(path + ("?" + urlencode(values) if values else ""))
        elif not self._has_cookie():
            line = "open the address that `webtext view` printed: it contains a token"
            self._send(HTTPStatus.FORBIDDEN, [pages.failure("refused", [line])])
        else:
            self._answer(path, values)

    def _refusal(self) -> str | None:
        """Return why a request isn't from this viewer's own pages or the address bar."""
        if f"http://{self.headers.get('Host', '')}" not in self.server.origins:
            return "the request names another host"
        if self.headers.get("Origin", next(iter(self.server.origins))) not in self.server.origins:
            return "the request comes from another site"
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and not self._is_entry():
            return "the request comes from another site"
        return None

    def _is_entry(self) -> bool:
        """Whether it follows a link with the token, e.g. in a notebook or a chat."""
        return self.headers.get("Sec-Fetch-Mode") == "navigate" and "token=" in self.path

    def _has_cookie(self) -> bool:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return cookie is not None and _same(cookie.value, self.server.token)

    def _enter(self, place: str) -> None:
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", place if place.startswith("/") else "/")
        self.send_header("Set-Cookie", f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, path: str, values: dict[str, str]) -> None:
        try:
            kind, pieces = self.server.answer(path, values)
            pieces = iter(pieces)
            first = next(pieces, "")
        except WebtextError as error:
            status = HTTPStatus.BAD_REQUEST if isinstance(error, ConfigError) else HTTPStatus.NOT_FOUND
            self._send(status, [pages.failure("this can't be shown", error.lines)])
        else:
            self._send(HTTPStatus.OK, _chained(first, pieces), kind, reload=path == "/training/curves")

    def _send(self, status: HTTPStatus, pieces: Iterable[str], kind: str = HTML, *, reload: bool = False) -> None:
        """Send the pieces as they come, in chunks. A browser that leaves ends the search behind them."""
        self.send_response(status)
        # The curves are drawn with styles of their own, in a frame that may load nothing.
        csp = (
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
            if reload
            else f"{CSP}; frame-ancestors 'none'"
        )
        headers = HEADERS | {"Content-Type": kind, "Content-Security-Policy": csp, "Transfer-Encoding": "chunked"}
        for name, value in (headers | ({"Refresh": str(RELOAD_SECONDS)} if reload else {})).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for piece in pieces:
                if data := piece.encode("utf-8", "replace"):
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        except WebtextError as error:  # after the first piece: the page says so at its end
            data = "".join(f"<p>{pages.shown(line)}</p>" for line in error.lines).encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: addresses contain what was searched for."""


def _own_file(name: str) -> str:
    return files("webtext.app.view").joinpath(name).read_text("utf-8")


def _chained(first: Any, rest: Iterable[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _same(one: str | None, other: str) -> bool:
    return one is not None and hmac.compare_digest(one.encode(), other.encode())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value and abs(value) != float("inf")
