"""robots.txt and other opt-outs as the server sees them, and the pace of requests."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from webtext.crawl.fetch.hosts import Hosts, Pace
from webtext.crawl.fetch.settings import FetchSettings


def test_robots_txt_is_fetched_first_and_obeyed(crawl: Any, web: Any) -> None:
    web.page(
        "/robots.txt",
        "User-agent: *\nDisallow: /private\n\nUser-agent: CCBot\nDisallow: /no-training\n",
        "Content-Type: text/plain",
    )
    urls = [web.page(path) for path in ("/public", "/private/a", "/no-training?x")]
    rows = crawl(urls)
    assert [rows[url]["reason"] for url in urls] == [None, "robots_disallowed", "robots_disallowed_ai_training"]
    asked = ["/robots.txt", "/.well-known/tdmrep.json", "/public"]
    assert web.paths(robots=True) == asked, "the site's files are asked for once, a forbidden page never"
    assert {request.headers["user-agent"] for request in web.requests} == {"webtext/0.1.0"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [("404 Not Found", None), ("403 Forbidden", None)]
    + [(status, "robots_unreachable") for status in ("500 Error", "429 Slow")],
)
def test_a_missing_robots_txt_allows_and_a_failing_one_forbids(
    crawl: Any, web: Any, status: str, reason: str | None
) -> None:
    web.page("/robots.txt", "User-agent: *\nDisallow: /", status=status)
    [row] = crawl([web.page("/a")]).values()
    assert row["reason"] == reason


def test_a_robots_txt_that_cannot_be_decoded_forbids(crawl: Any, web: Any) -> None:
    web.page("/robots.txt", gzip.compress(b"User-agent: *\nDisallow: /\n")[:10], "Content-Encoding: gzip")
    web.page("/robots.txt", b"\x1f\x9d\x90\x00", "Content-Encoding: compress", host=2)
    rows = crawl([web.page("/a"), web.page("/a", host=2)])
    assert {row["reason"] for row in rows.values()} == {"robots_unreachable"}


def test_a_redirected_endless_or_compressed_robots_txt_is_read(crawl: Any, web: Any) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nUser-agent: *\nDisallow: /forbidden\n")
        while True:
            writer.write(b"# filler\n" * 1000)
            await writer.drain()

    web.redirect("/robots.txt", web.plant("/real-robots", endless, host=2))
    packed = gzip.compress(b"User-agent: *\nDisallow: /forbidden\n" + b"#" * 10_000_000)
    web.page("/robots.txt", packed, "Content-Encoding: gzip", host=3)
    urls = [web.page(path, host=host) for host in (1, 3) for path in ("/forbidden", "/open")]
    rows = crawl(urls)
    assert [rows[url]["reason"] for url in urls] == ["robots_disallowed", None, "robots_disallowed", None]


def test_the_robots_txt_of_a_redirect_target_applies_too(crawl: Any, web: Any) -> None:
    web.page("/robots.txt", "User-agent: *\nDisallow: /", host=2)
    link = web.redirect("/a", web.page("/b", host=2))
    [row] = crawl([link]).values()
    assert row["reason"] == "robots_disallowed"
    assert web.paths(host=2) == []


def test_switched_off_opt_outs_are_recorded_and_not_obeyed(crawl: Any, web: Any) -> None:
    web.page("/robots.txt", "User-agent: *\nDisallow: /")
    url = web.page("/a", "<html>", "X-Robots-Tag: noai")
    off = {f"obey_{name}": False for name in ("robots", "ai_robots", "content_signal", "noai")}
    [row] = crawl([url], **off).values()
    assert (row["outcome"], row["requests"]) == ("fetched", 1)
    assert row["opt_outs"] == ["robots_disallowed", "noai_header"]


def times_between_requests(web: Any, host: int) -> list[float]:
    times = [request.time for request in web.requests if request.host == f"127.0.0.{host}"]
    return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]


TIMER = 0.01
"""The event loop counts in whole milliseconds, so it may wake up slightly early. Load only makes a wait longer, and a
request is logged before the wait for the next one starts, so the times below have only a lower bound."""


class Together:
    """Answers 404 on each of these hosts once all of them were asked. If hosts wait for each other, it never does."""

    def __init__(self, web: Any, hosts: tuple[int, ...]) -> None:
        self._missing = set(hosts)
        self._complete = asyncio.Event()
        for host in hosts:
            web.plant("/robots.txt", lambda writer, host=host: self._reply(writer, host), host=host)

    async def _reply(self, writer: asyncio.StreamWriter, host: int) -> None:
        self._missing.discard(host)
        if not self._missing:
            self._complete.set()
        await self._complete.wait()
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


def test_requests_to_one_host_are_spaced_and_hosts_run_in_parallel(crawl: Any, web: Any) -> None:
    Together(web, (1, 2, 3, 4))
    urls = [web.page(f"/{i}", host=host) for host in (1, 2, 3, 4) for i in range(4)]
    rows = crawl(urls, delay=0.15)
    assert {row["reason"] for row in rows.values()} == {None}, "hosts wait for each other"
    for host in (1, 2, 3, 4):
        assert min(times_between_requests(web, host)) >= 0.15 - TIMER


def test_concurrent_requests_are_limited(crawl: Any, web: Any) -> None:
    """The first three requests wait for each other. A fourth would have time to come, and must not."""
    under_way, most = 0, 0
    three = asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 3:
            three.set()
        await three.wait()
        await asyncio.sleep(0.1)
        under_way -= 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\r\nx")

    urls = [web.plant("/slow", slow, host=host) for host in range(1, 9)]
    crawl(urls, concurrency=3)
    assert most == 3


@pytest.mark.parametrize(("gib", "hard_limit", "expected"), [(4, -1, 512), (4, 1024, 128), (64, 1 << 20, 2048)])
def test_concurrency_follows_memory_and_open_files(
    gib: int, hard_limit: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": gib << 18, "SC_PAGE_SIZE": 4096}.__getitem__)
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, hard_limit))
    assert FetchSettings().requests_at_once == expected
    assert FetchSettings(concurrency=7).requests_at_once == 7


def test_hosts_that_wait_for_one_address_leave_room_for_others(crawl: Any, web: Any) -> None:
    """Two hosts share an address, which answers after a third host is done. There are two slots, one per address."""
    n_free = 2
    is_through = asyncio.Event()

    async def answer_last(writer: asyncio.StreamWriter) -> None:
        await is_through.wait()
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    async def answer_at_once(writer: asyncio.StreamWriter) -> None:
        if len(web.paths(2)) == n_free:
            is_through.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\r\nx")

    web.plant("/robots.txt", answer_last)
    web.page("/a")
    busy = [web.url("/a"), f"http://localhost:{web.port}/a"]
    free = [web.plant(f"/{i}", answer_at_once, host=2) for i in range(n_free)]
    rows = crawl([*busy, *free], delay=0.05, concurrency=2)
    assert {row["reason"] for row in rows.values()} == {None}


def test_hosts_that_share_a_busy_address_make_room_for_others(
    crawl: Any, web: Any, names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty hosts share an address that answers only after all others are done. There is room for six hosts."""
    monkeypatch.setattr("webtext.crawl.fetch.host_queues.HOSTS_AT_ONCE", 6)
    names |= {f"blog{i}.example": ["127.0.0.1"] for i in range(30)}
    own = [web.page(f"/{i}", host=host) for host in range(2, 9) for i in range(2)]
    are_through = asyncio.Event()
    asked_before: list[int] = []

    async def answer_last(writer: asyncio.StreamWriter) -> None:
        await are_through.wait()
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    def answer(host: str, path: str) -> Any:
        if sum(len(web.paths(each)) for each in range(2, 9)) == len(own) and not are_through.is_set():
            asked_before.append(len(web.paths(1, robots=True)))
            are_through.set()
        return answer_last if host == "127.0.0.1" and path == "/robots.txt" else planted(host, path)

    planted, web.answer = web.answer, answer
    shared = [f"http://blog{i}.example:{web.port}/{n}" for i in range(30) for n in range(3)]
    for n in range(3):
        web.page(f"/{n}")
    rows = crawl([*shared, *own], contact="test@example.org", concurrency=64)
    assert {row["reason"] for row in rows.values()} == {None}, "the others waited for the shared address"
    assert asked_before == [1], "an address gets one request at a time"


@pytest.mark.parametrize(
    ("host", "address"), [("a.example", "127.0.0.2"), ("b.example", "127.0.0.1"), ("b.example", "127.0.0.2")]
)
def test_a_cancelled_wait_for_a_turn_releases_it(host: str, address: str) -> None:
    """The cancelled task waits for the host, for the address, or for the only slot."""

    async def take_turns() -> None:
        hosts = Hosts(Pace(delay=0.0, concurrency=1))

        async def one_turn() -> None:
            async with hosts.turn(host, address):
                pass

        async with hosts.turn("a.example", "127.0.0.1"):
            waiting = asyncio.ensure_future(one_turn())
            for _ in range(10):
                await asyncio.sleep(0)
            waiting.cancel()
            assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
        for name in (host, "a.example"):
            for place in (address, "127.0.0.1"):
                async with hosts.turn(name, place):
                    pass
        assert {clock.users for clock in hosts._clocks.values()} == {0}

    asyncio.run(asyncio.wait_for(take_turns(), 60))


def test_two_names_of_one_address_share_its_pause(crawl: Any, web: Any) -> None:
    urls = [web.page("/a"), web.page("/b")]
    named = f"http://localhost:{web.port}/c"
    web.page("/c")
    crawl([*urls, named], delay=0.1)
    assert len(times_between_requests(web, 1)) == 6  # two robots.txt and tdmrep.json, three pages
    assert min(times_between_requests(web, 1)) >= 0.1 - TIMER


def test_a_crawl_delay_is_obeyed_up_to_thirty_seconds(crawl: Any, web: Any) -> None:
    web.page("/robots.txt", "User-agent: *\nCrawl-delay: 0.3\n")
    crawl([web.page("/a"), web.page("/b")], delay=0.01)
    assert times_between_requests(web, 1)[1] >= 0.3 - TIMER
    hosts = Hosts(Pace(delay=1.0))
    hosts.ask_for_delay("slow.example", 86_400.0)
    assert hosts._clocks["slow.example"].delay == 30.0


def test_the_pages_of_a_site_that_asks_for_a_longer_crawl_delay_are_skipped(crawl: Any, web: Any) -> None:
    web.page("/robots.txt", "User-agent: *\nCrawl-delay: 31\nDisallow: /closed\n")
    web.page("/robots.txt", "User-agent: *\nCrawl-delay: 31\n\nUser-agent: webtext\nDisallow: /x\n", host=2)
    urls = [web.page("/a"), web.page("/closed"), web.page("/a", host=2)]
    rows = crawl(urls)
    assert [rows[url]["reason"] for url in urls] == ["crawl_delay_too_long", "robots_disallowed", None]
    assert (rows[urls[0]]["outcome"], rows[urls[0]]["cause"]) == ("refused", "Crawl-delay: 31")
    assert web.paths() == []


@pytest.mark.parametrize("status", [403, 429, 500, 502, 503, 504])
@pytest.mark.parametrize(
    "headers",
    [("Retry-After: 1",), ("Retry-After: Fri, 31 Dec 1999 23:59:59 GMT", "Date: Fri, 31 Dec 1999 23:59:58 GMT")],
    ids=["seconds", "date"],
)
def test_a_busy_host_is_left_alone(status: int, headers: tuple[str, ...], crawl: Any, web: Any) -> None:
    busy = web.page("/busy", "later", *headers, status=f"{status} Later")
    rows = crawl([busy, web.page("/next")])
    assert rows[busy]["reason"] == f"http_{status}"
    assert times_between_requests(web, 1)[2] >= 1.0 - TIMER  # after robots.txt, tdmrep.json and /busy


@pytest.mark.parametrize("status", [403, 429, 500, 502, 503, 504])
def test_a_host_that_stays_busy_rests_once_and_is_then_given_up(status: int, crawl: Any, web: Any) -> None:
    urls = [web.page(f"/{i}", status=f"{status} Busy") for i in range(8)]
    rows = crawl(urls, max_host_failures=3, max_pause=0.3)
    reasons = [row["reason"] for row in rows.values()]
    assert (reasons.count(f"http_{status}"), reasons.count("host_kept_failing")) == (4, 4)
    assert times_between_requests(web, 1)[4] >= 0.3 - TIMER  # after robots.txt, tdmrep.json and three pages
    assert len(web.paths()) == 4


def test_a_host_that_recovers_while_it_rests_is_asked_on(crawl: Any, web: Any) -> None:
    def answer(host: str, path: str) -> Any:
        n_asked = len(web.paths())
        return b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n" if 1 <= n_asked <= 3 else planted(host, path)

    planted, web.answer = web.answer, answer
    rows = crawl([web.page(f"/{i}") for i in range(8)], max_host_failures=3, max_pause=0.1)
    assert sorted(str(row["reason"]) for row in rows.values()) == ["None"] * 5 + ["http_503"] * 3


def test_an_exception_in_the_fetcher_costs_one_page(crawl: Any, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(value: str | None) -> str | None:
        if value == "text/plain":
            raise RuntimeError("a bug")
        return "text/html"

    monkeypatch.setattr("webtext.crawl.fetch.answers.media_type", broken)
    bad, good = web.page("/bad", "x", "Content-Type: text/plain"), web.page("/good")
    rows = crawl([bad, good])
    assert (rows[bad]["reason"], rows[good]["reason"]) == ("fetcher_raised", None)
