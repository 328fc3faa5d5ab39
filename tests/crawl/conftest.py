"""Fixtures: a small real web on loopback, good and hostile, archives and Reddit's API, and sets of links and pages."""

from __future__ import annotations

import functools
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pycares
import pytest
from warcio.archiveiterator import ArchiveIterator

from webtext.app.main import run as webtext
from webtext.base.parts.identifiers import link_id, split_of
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.base.web.urls import registrable_domain
from webtext.crawl import command
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.links.reddit_api import listing as reddit_api
from webtext.crawl.links.reddit_api.harvest import harvest_inputs
from webtext.crawl.links.settings import ApiSettings, LinkSettings

sys.path.insert(0, str(Path(__file__).parent))  # for all test files here: the servers and other helpers

from local_common_crawl import LocalCommonCrawl  # noqa: E402
from local_names import LocalNames, Plan  # noqa: E402
from local_reddit import CLIENT_ID, SECRET, LocalReddit, constants  # noqa: E402
from local_wayback import LocalWayback  # noqa: E402
from local_web import HOSTS, Answer, LocalWeb  # noqa: E402


@pytest.fixture
def web() -> Iterator[LocalWeb]:
    local_web = LocalWeb()
    yield local_web
    local_web.close()


class Wire:
    """The addresses that this process connected or sent datagrams to, recorded by the interpreter's audit hook.

    Answers of the test's name server are left out.
    """

    name_servers: ClassVar[set[tuple[str, int]]] = set()

    def __init__(self, web: LocalWeb) -> None:
        self.reached: list[tuple[str, int]] = []
        self.allowed = {(host, web.port) for host in HOSTS}

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            sock, address = arguments[0], arguments[-1]
            if sock.fileno() >= 0 and sock.family == socket.AF_INET and sock.getsockname() in self.name_servers:
                return
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
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNames]:
    """A real name server, which is the only one of this test."""
    server = LocalNames({})
    Wire.name_servers.add(server.place)
    only = functools.partial(pycares.Channel, servers=["{}:{}".format(*server.place)])
    monkeypatch.setattr("pycares.Channel", only)
    yield server
    Wire.name_servers.remove(server.place)
    server.close()


@pytest.fixture
def names(name_server: LocalNames) -> dict[str, Plan]:
    """What the name server knows in this test: host name -> addresses, for example. All other names are unknown."""
    name_server.known = known = {}
    return known


@pytest.fixture
def outcomes(crawl: Callable[..., Rows], web: LocalWeb, make_links: Callable[..., str]) -> Callable[..., Rows]:
    """Crawl links, given as name -> URL or as name -> answer to plant, on hosts in turn. Returns the rows by name."""

    def run(plan: Mapping[str, str | bytes | Answer], out: str = "pages", **changes: Any) -> Rows:
        urls = {
            name: answer if isinstance(answer, str) else web.plant(f"/link{i}", answer, host=i % len(HOSTS) + 1)
            for i, (name, answer) in enumerate(plan.items())
        }
        rows = crawl(make_links(list(urls.values()), f"links-{out}"), out, **changes)
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
    voted = {"karma": karma, "karma_sum": karma, "first_created": 1, "posts": [post]}
    identified = {"link_id": link_id(url), "split": split_of(link_id(url))}
    return identified | voted | {"url": url, "url_raw": url, "domain": registrable_domain(url)}


Rows = dict[str, dict[str, Any]]
CONSTANTS = {
    "max_delay": ("fetch.run.MAX_DELAY", "archives.sources.MAX_DELAY"),
    "max_host_failures": ("fetch.run.MAX_HOST_FAILURES",),
    "retry_seconds": ("fetch.host_queues.RETRY_SECONDS", "fetch.robots.cache.RETRY_SECONDS"),
    "connect_seconds": ("fetch.answers.CONNECT_SECONDS",),
    "min_rate": ("fetch.answers.MIN_RATE",),
    "gone_runs": ("fetch.run.GONE_RUNS",),
    "gone_days": ("fetch.run.GONE_DAYS",),
    "max_gap": ("archives.common_crawl.MAX_GAP",),
}
"""Constants by the names with which `settings_for` changes them for a test."""


@pytest.fixture
def settings_for(web: LocalWeb, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FetchSettings]:
    """Settings with small limits that open the local web and nothing else.

    Values of CONSTANTS are changed until the test's end.

    Its time limits are long. A test of a time limit sets its own, and requests only what is to be late.
    """

    def make(**changes: Any) -> FetchSettings:
        limits = {"max_bytes": 100_000, "total_seconds": 60.0, "connect_seconds": 60.0}
        limits |= {"delay": 0.0, "max_delay": 0.0, "retries": 0, "max_host_failures": 1000}
        values = {**limits, "allow_address": (f"127.0.0.0/8:{web.port}",), **changes}
        for name in CONSTANTS.keys() & values.keys():
            value = values.pop(name)
            for place in CONSTANTS[name]:
                monkeypatch.setattr(f"webtext.crawl.{place}", value)
        return FetchSettings(**values)

    return make


@pytest.fixture
def crawl(
    settings_for: Callable[..., FetchSettings], make_links: Callable[..., str], tmp_path: Path
) -> Callable[..., Rows]:
    """Fetch a links set, or a new one of these URLs, into a folder of `tmp_path`. Returns the rows by URL."""

    def fetch(links: str | Sequence[str], out: str | Path = "pages", **changes: Any) -> Rows:
        folder = links if isinstance(links, str) else make_links(links)
        pages = command.crawl(folder, str(tmp_path / out), settings_for(**changes), Run.quiet())
        return _rows_of(pages)

    return fetch


@pytest.fixture
def rows_of() -> Callable[[PartSet], Rows]:
    """Return the rows of a pages set by URL, and check that no link has two."""
    return _rows_of


@pytest.fixture
def bodies(tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """Return target URI -> decoded body of every page, as read by warcio, and check that no URI occurs twice."""

    def read(out: str | Path = "pages") -> dict[str, bytes]:
        found: list[tuple[str, bytes]] = []
        for path in sorted((tmp_path / out).glob("*.warc.gz")):
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


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """A run with one worker for all tests: starting it takes longer than most of what it does here."""
    quiet = Run.quiet(workers=1)
    yield quiet
    quiet.engine.close()  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def two_workers() -> Iterator[Run]:
    quiet = Run.quiet(workers=2)
    yield quiet
    quiet.engine.close()  # type: ignore[attr-defined]


@pytest.fixture
def collect(run: Run, tmp_path: Path) -> Callable[..., PartSet]:
    """Collect the links of these inputs into a folder of `tmp_path`; other keywords are settings of the rule."""

    def make(
        *inputs: str | Path, out: str | Path = "links", by: Run = run, api: ApiSettings | None = None, **settings: Any
    ) -> PartSet:
        return command.collect(
            list(map(str, inputs)), str(tmp_path / out), LinkSettings(**settings), by, api or ApiSettings()
        )

    return make


@pytest.fixture
def verbs_take_this_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let verbs that are called in this process use the worker of all tests."""
    monkeypatch.setattr("webtext.base.workers.local_engine.LocalEngine", lambda **_: nullcontext(run.engine))


@pytest.fixture
def links_verb(verbs_take_this_run: None, tmp_path: Path) -> Callable[..., int]:
    """Run `webtext crawl links` into `links` of `tmp_path`. Returns the exit code."""

    def verb(*arguments: str | Path) -> int:
        return webtext(["crawl", "links", *map(str, arguments), "--out", str(tmp_path / "links")])

    return verb


@pytest.fixture
def reddit(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalReddit]:
    monkeypatch.setenv("WEBTEXT_REDDIT_CLIENT_ID", CLIENT_ID)
    monkeypatch.setenv("WEBTEXT_REDDIT_CLIENT_SECRET", SECRET)
    local = LocalReddit()
    for name, value in constants(local.port).items():
        monkeypatch.setattr(reddit_api, name, value)
    yield local
    local.close()


@pytest.fixture
def harvest(reddit: LocalReddit, run: Run, tmp_path: Path) -> Callable[..., list[str]]:
    """Ask the local Reddit for these inputs, and return the files with their answers; keywords change the settings."""

    def ask(*inputs: str, **changes: Any) -> list[str]:
        return harvest_inputs(inputs, str(tmp_path / "links"), reddit.settings(**changes), run)

    return ask


@pytest.fixture
def replay(crawl: Callable[..., Rows], tmp_path: Path) -> Callable[..., Rows]:
    """Crawl links with WARC files as the only source: these paths, or one file of these records."""

    def ask(links: str | Sequence[str], *given: bytes | str | Path, out: str = "pages", **changes: Any) -> Rows:
        records = [each for each in given if isinstance(each, bytes)]
        if records:
            (tmp_path / "a.warc.gz").write_bytes(b"".join(records))
        paths = (tmp_path / "a.warc.gz",) if records else given
        return crawl(links, out, **{"sources": ("warc",), "warc": tuple(map(str, paths)), **changes})

    return ask


@pytest.fixture
def wayback(web: LocalWeb, crawl: Callable[..., Rows]) -> LocalWayback:
    return LocalWayback(web, crawl)


@pytest.fixture
def crawl_archive(web: LocalWeb, crawl: Callable[..., Rows], tmp_path: Path) -> LocalCommonCrawl:
    return LocalCommonCrawl(web, tmp_path / "cc", crawl)
