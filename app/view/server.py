"""The viewer's server: loopback only, GET only, for the one who has the token of its address.

The token comes in the first address and then in a cookie, which other sites can't send (SameSite=Strict). A request with
another Host (a name that was bound to 127.0.0.1) or from another origin is refused. Pages run no script but ours.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from markupsafe import Markup

from webtext.app.chain import SETS, BuildLayout
from webtext.app.inspect.trace import Tracer, find_cluster
from webtext.app.inspect.trace_text import trace_text
from webtext.app.reports.report import make_report
from webtext.app.reports.report_charts import CURVES, curve, loss_curves
from webtext.app.reports.report_html import report_page
from webtext.app.view.search import PAGE_ROWS, Query, Search
from webtext.base.errors import ConfigError, InputError, MachineError, WebtextError
from webtext.base.html_pages.charts import Line, chart, thinned
from webtext.base.html_pages.rendering import Section, cut, own_file, render, sections_page, stream
from webtext.base.storage import Folder
from webtext.tokenizer import Tokenizer
from webtext.train.metrics import METRICS, read_metrics

TEXT_CHARACTERS = 200_000
CLUSTER_MEMBERS = 50
TOKENS_SHOWN = 5_000
CHARACTERS_TOKENIZED = 40_000
CURVE_POINTS = 300
RELOAD_SECONDS = 5
HTML, CSS, JAVASCRIPT = "text/html; charset=utf-8", "text/css; charset=utf-8", "text/javascript; charset=utf-8"
CSP = "default-src 'none'; style-src 'self'; script-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'"
DRAWN = ("/", "/training/curves")  # their charts and bars have styles of their own
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Connection": "close",  # what follows a request, such as a body, is not another request
}


class Viewer(ThreadingHTTPServer):
    """A server of one build, on 127.0.0.1. Raises InputError if `root` has no build, MachineError if the port is taken."""

    daemon_threads = True

    def __init__(self, root: str, port: int = 0) -> None:
        self.root, self.layout, self.search = root, BuildLayout.existing(root), Search(root)
        self.token = secrets.token_urlsafe(24)
        self._drawn: tuple[Any, str] | None = None
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

    def handle_error(self, *_: Any) -> None:
        """Print nothing: `_Handler._answer` handles all errors but a browser that leaves."""

    def answer(self, path: str, values: dict[str, str]) -> tuple[str, Iterable[str]]:
        """Return the type and the pieces of a page. InputError if the build has no such thing, ConfigError for a value."""
        if path == "/":
            return HTML, [self._report()]
        if path == "/search":
            return HTML, self._search(Query.of(values))
        if path == "/document":
            return HTML, [self._document(values.get("id", ""))]
        if path == "/training":
            return HTML, [self._training()]
        if path == "/training/curves":
            return HTML, [self._curves()]
        if path == "/style.css":
            return CSS, [own_file("webtext.base.html_pages/style.css")]
        if path == "/keys.js":
            return JAVASCRIPT, [own_file("webtext.app.view/keys.js")]
        raise InputError(f"unknown page '{path[:100]}'", "go to the overview")

    def _report(self) -> str:
        """Return the report's page, made again once a set or a file of the model has changed."""
        sets = [opened.hash for name in SETS if (opened := self.layout.open(name))]
        state = sets, Folder(self.layout.model).files()
        if self._drawn is None or self._drawn[0] != state:
            page = report_page(make_report(self.root), frame="webtext.app.view/frame.html", records=_records)
            self._drawn = state, page
        return self._drawn[1]

    def _search(self, query: Query) -> Iterator[str]:
        rows = self.search.rows(query)
        first = next(rows, None)  # an error in the query is raised here, before anything is sent
        yield from stream(
            "webtext.app.view/search.html",
            title="search",
            query=query,
            reasons=self.search.reasons(query.set),
            rows=[] if first is None else chain([first], rows),
            page_rows=PAGE_ROWS,
            number=query.first_row // PAGE_ROWS + 1,
            marked=lambda text: _marked(text, query.text),
        )

    def _document(self, identifier: str) -> str:
        tracer = Tracer(self.root)
        trace = tracer.why(identifier)
        row = trace.document
        if row is None:
            return _message(trace.url, [], trace_text(trace))
        text = tracer.text(trace)
        cluster = find_cluster(self.root, row["id"])
        dropped = sorted(cluster.dropped, key=lambda row: (-(row["value"] or 0), row["id"])) if cluster else []
        return _page(
            "document",
            row["title"] or row["url"] or trace.url,
            trace=trace,
            cluster=cluster,
            members=dropped[:CLUSTER_MEMBERS],
            posts=[post for link in trace.links or [row] for post in link["posts"]],
            text=text or "removed on request",
            tokens=self._tokens(text),
        )

    def _tokens(self, text: str) -> list[tuple[int, str]]:
        """Return the first tokens of a text: ids, and texts in which bytes that aren't UTF-8 are escaped."""
        try:
            ids = self.tokenizer.encode(text[:CHARACTERS_TOKENIZED])[:TOKENS_SHOWN]
        except WebtextError:  # the build has no tokenizer yet
            return []
        return [(id_, self.tokenizer.decode_bytes([id_]).decode("utf-8", "backslashreplace")) for id_ in ids]

    def _training(self) -> str:
        if Folder(self.layout.model).exists(METRICS):
            return _message("training", [], frame=True)
        return _message("training", ["Nothing has been trained in this build yet: run `webtext train run`."])

    def _curves(self) -> str:
        rows = read_metrics(Folder(self.layout.model), "start a run with webtext train run")
        training, held_out = (curve(rows, name) for name in ("loss", "validation_loss"))
        sections = []
        if training or held_out:
            drawn = loss_curves(thinned(training, CURVE_POINTS), held_out)
            notes = [
                _newest(f"{name} loss", points) for name, points in (("training", training), ("held-out", held_out))
            ]
            sections.append(Section(title="Loss, nats per token", chart=drawn, notes=list(filter(None, notes))))
        for name, label in CURVES.items():
            if points := curve(rows, name):
                drawn = chart({label: [Line(thinned(points, CURVE_POINTS), "held-out")]}, x="step", y=label, height=260)
                sections.append(Section(title=label, chart=drawn, notes=[_newest(label, points)]))
        return sections_page("Training", sections)


class _Handler(BaseHTTPRequestHandler):
    server: Viewer
    timeout = 30
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "webtext", ""

    def do_GET(self) -> None:
        try:
            address = urlsplit(self.path)
            path, values = address.path, dict(parse_qsl(address.query, max_num_fields=50))
        except ValueError as error:
            self._send(HTTPStatus.BAD_REQUEST, [_message("not an address of the viewer", [str(error)])])
            return
        refusal = self._refusal()
        if refusal is not None:
            self._send(HTTPStatus.FORBIDDEN, [_message("refused", [refusal])])
        elif _same(values.get("token"), self.server.token):
            del values["token"]
            self._enter(path + ("?" + urlencode(values) if values else ""))
        elif not self._has_cookie():
            line = "open the address that `webtext view` printed: it contains a token"
            self._send(HTTPStatus.FORBIDDEN, [_message("refused", [line])])
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
        self.send_header("Connection", "close")
        self.end_headers()

    def _answer(self, path: str, values: dict[str, str]) -> None:
        """Send the page, or a page about any error: whatever is asked for, and whatever the build contains."""
        try:
            kind, pieces = self.server.answer(path, values)
            pieces = iter(pieces)
            first = next(pieces, "")
        except Exception as error:
            kinds = {ConfigError: HTTPStatus.BAD_REQUEST, WebtextError: HTTPStatus.NOT_FOUND}
            of_kind = (status for kind, status in kinds.items() if isinstance(error, kind))
            self._send(
                next(of_kind, HTTPStatus.INTERNAL_SERVER_ERROR), [_message("this can't be shown", _lines(error))]
            )
        else:
            self._send(HTTPStatus.OK, chain([first], pieces), kind, path)

    def _send(self, status: HTTPStatus, pieces: Iterable[str], kind: str = HTML, path: str = "") -> None:
        """Send the pieces as they come, in chunks. A browser that leaves ends the search behind them."""
        self.send_response(status)
        csp = CSP.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'") if path in DRAWN else CSP
        reload = path == "/training/curves"  # in a frame of the page on training
        csp += "; frame-ancestors 'self'" if reload else "; frame-ancestors 'none'"
        headers = HEADERS | {"Content-Type": kind, "Content-Security-Policy": csp, "Transfer-Encoding": "chunked"}
        for name, value in (headers | ({"Refresh": str(RELOAD_SECONDS)} if reload else {})).items():
            self.send_header(name, value)
        self.end_headers()
        for piece in _until_error(pieces):
            if data := piece.encode("utf-8", "replace"):
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because addresses contain the words of searches."""


def _until_error(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of a page, which says at its end why it is not complete."""
    try:
        yield from pieces
    except Exception as error:
        yield from (Markup("<p>{}</p>").format(cut(line)) for line in _lines(error))


def _lines(error: Exception) -> Sequence[str]:
    defect = f"webtext has a defect, or the build is damaged: {error!r}", "check it with webtext inspect set --verify"
    return error.lines if isinstance(error, WebtextError) else defect


def _newest(name: str, points: Sequence[tuple[int, float]]) -> str:
    return f"{name} now {points[-1][1]:,.4g}, step {points[-1][0]:,}" if points else ""


def _marked(text: str, wanted: str) -> Markup:
    """Return a text with each place of another one marked, in any case."""
    pieces = re.split(f"({re.escape(wanted)})", " ".join(text.split()), flags=re.IGNORECASE)
    pieces[0], pieces[-1] = f"…{pieces[0]}", f"{pieces[-1]}…"
    return Markup().join(
        Markup("<mark>{}</mark>").format(cut(each)) if i % 2 else cut(each) for i, each in enumerate(pieces)
    )


def _records(stage: str, kind: str, reason: str) -> str:
    """Return where a reason's records are; posts that `links` drops, and pages that `documents` drops, aren't stored."""
    if stage == "pages" or (stage, kind) == ("corpus", "dropped"):
        return Query(set="pages" if stage == "pages" else "dropped", reason=reason).url()
    return "#failed" * (kind == "failed")


def _page(template: str, title: str, **values: Any) -> str:
    return render(f"webtext.app.view/{template}.html", title=title, most=TEXT_CHARACTERS, **values)


def _message(title: str, lines: Sequence[str], text: str = "", *, frame: bool = False) -> str:
    return _page("message", title, lines=lines, text=text, frame=frame)


def _same(one: str | None, other: str) -> bool:
    return one is not None and hmac.compare_digest(one.encode(), other.encode())
