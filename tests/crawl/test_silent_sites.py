"""Sites that never answer: the row has the cause, and archived pages may be taken once enough runs have asked."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hostile_answers as hostile
import pytest
from warc_exchanges import page, record

from webtext.base.errors import RunFailed
from webtext.base.parts.outcomes import check_settled
from webtext.base.parts.partset import PartSet
from webtext.crawl.fetch.robots.cache import DAY, SILENT_SITES, SilentSites

LATE = {"total_seconds": 1.0, "connect_seconds": 1.0}
"""Settings for a crawl of sites that never answer."""
AT_ONCE = {"take_gone_sites": True, "gone_runs": 1, "gone_days": 0.0}


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound but not listening
        yield int(held.getsockname()[1])


@pytest.fixture
def port_without_tls() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))

    def talk() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"HTTP/1.1 400 no TLS here\r\n\r\n")

    threading.Thread(target=talk, daemon=True).start()
    yield int(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def dead(closed_port: int, port_without_tls: int, web: Any) -> dict[str, str]:
    """Return URLs of sites that don't answer, as the fetch log's reason -> URL."""
    web.plant("/robots.txt", hostile.silence, host=2)
    return {
        "connection_failed": f"http://127.0.0.1:{closed_port}/a",
        "timed_out": web.url("/b", 2),
        "tls_failed": f"https://127.0.0.1:{port_without_tls}/c",
    }


@pytest.fixture
def archive(tmp_path: Path) -> Callable[[Iterable[str]], dict[str, Any]]:
    """Write a WARC file with a page of each URL. Returns settings that ask the web first, then this file."""

    def write(urls: Iterable[str]) -> dict[str, Any]:
        path = tmp_path / "a.warc.gz"
        path.write_bytes(b"".join(record(url, page(b"<html>" + url.encode())) for url in urls))
        return {"sources": ("web", "warc"), "warc": (str(path),), "allow_address": ("127.0.0.0/8",)}

    return write


@pytest.fixture
def run_at(crawl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[PartSet, Any]]:
    """Fetch into the same folder on a given day, and return the set and its rows."""

    def fetch(day: float, links: str, **changes: Any) -> tuple[PartSet, Any]:
        clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: 1.5e9 + day * DAY)
        monkeypatch.setattr("webtext.crawl.fetch.robots.cache.time", clock)
        rows = crawl(links, **changes)
        return PartSet.open(str(tmp_path / "pages"), "pages"), rows

    return fetch


def test_the_row_records_why_robots_txt_could_not_be_fetched(
    dead: dict[str, str], crawl: Any, web: Any, make_links: Any
) -> None:
    web.page("/robots.txt", "", host=4, status="503 Busy")
    rows = crawl(list(dead.values()), "dead", allow_address=("127.0.0.0/8",), **LATE)
    urls = dead | {"http_503": web.url("/d", 4)}
    rows |= crawl(make_links([urls["http_503"]], "busy"), "answers")
    assert {row["reason"] for row in rows.values()} == {"robots_unreachable"}
    assert {name: rows[url]["cause"].partition(":")[0] for name, url in urls.items()} == {name: name for name in urls}


def test_without_the_setting_a_silent_site_is_not_looked_for_in_archives(
    dead: dict[str, str], archive: Any, crawl: Any, tmp_path: Path
) -> None:
    rows = crawl(list(dead.values()), **archive(dead.values()), **LATE)
    assert {(row["outcome"], row["reason"], row["source"]) for row in rows.values()} == {
        ("refused", "robots_unreachable", "web")
    }
    assert SILENT_SITES not in {path.name for path in (tmp_path / "pages").iterdir()}


def test_archived_pages_are_taken_for_sites_silent_in_enough_runs(
    dead: dict[str, str], archive: Any, crawl: Any, bodies: Any
) -> None:
    rows = crawl(list(dead.values()), **archive(dead.values()), **LATE, **AT_ONCE)
    assert {(row["outcome"], row["source"], *row["opt_outs"]) for row in rows.values()} == {
        ("fetched", "warc", "robots_unreachable")
    }
    assert bodies() == {url: b"<html>" + url.encode() for url in dead.values()}


def test_a_site_that_answers_anything_is_not_gone(archive: Any, crawl: Any, web: Any) -> None:
    urls = [web.url("/busy", 4), web.page("/alive", host=5)]
    web.page("/robots.txt", "", host=4, status="503 Busy")
    rows = crawl(urls, **archive(urls), **AT_ONCE)
    expected = [("refused", "robots_unreachable"), ("fetched", None)]
    assert [(rows[url]["outcome"], rows[url]["reason"]) for url in urls] == expected


def test_all_links_of_a_silent_site_get_the_same_result(closed_port: int, archive: Any, crawl: Any) -> None:
    """Including those that are not requested, because the host kept failing."""
    urls = [f"http://127.0.0.1:{closed_port}/{i}" for i in range(12)]
    rows = crawl(urls, **archive(urls), **AT_ONCE, max_host_failures=2, retry_seconds=0.0)
    assert {(row["outcome"], row["source"]) for row in rows.values()} == {("fetched", "warc")}


def test_links_of_silent_sites_wait_until_enough_runs_over_enough_days_have_asked(
    dead: dict[str, str], archive: Any, run_at: Any, web: Any, make_links: Any
) -> None:
    alive = web.page("/alive", host=5)
    links = make_links([dead["connection_failed"], alive])
    given = archive(dead.values()) | {"take_gone_sites": True}
    for day in (0.0, 0.1, 0.2, 29.0):  # four runs, but not thirty days
        pages, rows = run_at(day, links, **given)
        assert (list(rows), pages.complete) == ([alive], False), day
        with pytest.raises(RunFailed, match="is not complete: some links have no row yet"):
            check_settled(pages)
    pages, rows = run_at(30.5, links, **given)
    assert (rows[dead["connection_failed"]]["source"], pages.complete) == ("warc", True)
    assert pages.counts.records_in == 2
    assert web.paths(5) == ["/alive"]


def test_two_runs_far_apart_are_too_few(dead: dict[str, str], archive: Any, run_at: Any, make_links: Any) -> None:
    links = make_links([dead["connection_failed"]])
    for day, is_complete in ((0.0, False), (50.0, False), (50.1, True)):
        pages, rows = run_at(day, links, **archive(dead.values()), take_gone_sites=True)
        assert (pages.complete, len(rows)) == (is_complete, int(is_complete)), day


def test_without_archives_an_unreachable_robots_txt_always_forbids(
    dead: dict[str, str], archive: Any, run_at: Any, make_links: Any
) -> None:
    given = archive(dead.values()) | LATE | AT_ONCE | {"sources": ("web",), "warc": ()}
    pages, rows = run_at(0.0, make_links(list(dead.values())), **given)
    assert {row["reason"] for row in rows.values()} == {"robots_unreachable"}
    assert pages.complete


def test_an_answer_resets_the_count_and_an_incomplete_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / SILENT_SITES
    sites = SilentSites(path, 1, 0.0)
    for origin in ("http://a", "http://b"):
        sites.did_not_answer(origin)
        sites.did_not_answer(origin)
    sites.answered("http://a")
    path.write_text(path.read_text() + "http://c\t1\t2")
    for each in (sites, SilentSites(path, 1, 0.0), SilentSites(path, 1, 0.0)):
        assert [each.is_gone(f"http://{name}") for name in "abc"] == [False, True, False]
    assert not SilentSites(path, 2, 0.0).is_gone("http://b"), "two tries of one run are one"
    assert SilentSites(path, 2, 0.0).is_waiting("http://b")
    assert not SilentSites(None, 2, 0.0).is_waiting("http://b")


@pytest.mark.parametrize("kind", ["warc", "common-crawl"])
@pytest.mark.parametrize("n_failures", [0, 1, 2])
def test_each_host_of_archived_pages_is_looked_up_once_and_again_only_where_nobody_answered(
    kind: str, n_failures: int, crawl: Any, archive: Any, crawl_archive: Any, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()

    async def look_up(_: Any, host: str) -> list[str]:
        asked[host] += 1
        if asked[host] <= n_failures:
            raise socket.gaierror(socket.EAI_AGAIN, "temporary failure")
        if host == "gone.example":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return ["127.0.0.5"]

    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.Names.look_up", look_up)
    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.RETRY_WAITS", (0.01, 0.01))
    urls = [f"http://{host}.example:{web.port}/{i}" for host in ("gone", "there") for i in range(20)]
    if kind == "warc":
        given = archive(urls) | {"sources": ("warc",)}
    else:
        for url in urls:
            crawl_archive.page(url)
        crawl_archive.write_index()
        given = crawl_archive.settings
    given |= {"contact": "https://example.org/", "take_gone_sites": True, "max_host_failures": 3}
    rows = crawl(urls, **given)
    assert {(row["outcome"], row["reason"]) for row in rows.values()} == {("fetched", None)}
    assert asked == {"gone.example": 1 + n_failures, "there.example": 1 + n_failures}


def test_an_unanswered_name_is_not_gone(replay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(_: Any, host: str) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN if host == "a.example" else socket.EAI_FAIL, "no answer")

    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.Names.look_up", look_up)
    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.RETRY_WAITS", (0.01, 0.01))
    urls = ["http://a.example/", "http://b.example/"]
    records = [record(url, page()) for url in urls]
    assert replay(urls, *records, contact="https://example.org/", take_gone_sites=True) == {}
    rows = replay(urls, *records, out="more", contact="https://example.org/")
    assert {row["reason"] for row in rows.values()} == {"dns_unanswered"}
