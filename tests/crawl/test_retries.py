"""Retries of failures that may pass, the adapting pace of hosts, dead hosts, and clocks that survive a kill."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hostile_answers as hostile
import pytest
from hostile_answers import IN_A_SECOND, answer, redirect
from local_web import SITE_FILES

from webtext.crawl.fetch.client.addresses import AddressRule
from webtext.crawl.fetch.client.client import Client
from webtext.crawl.fetch.client.headers import retry_after
from webtext.crawl.fetch.client.resolver import PinnedResolver
from webtext.crawl.fetch.clock_file import NAME, ClockFile, NotedClock
from webtext.crawl.fetch.hosts import Hosts, Pace
from webtext.crawl.pages.visit import FetchRefused

SOON = {"retries": 2, "retry_seconds": 0.05}


def fails_first(n: int, status: str, *headers: str) -> Callable[[asyncio.StreamWriter], Any]:
    """Answer `n` times with this status, then with a page."""
    asked = itertools.count()

    async def reply(writer: asyncio.StreamWriter) -> None:
        failure = answer(b"", *headers, status=status)
        writer.write(failure if next(asked) < n else answer(b"<html>at last"))

    return reply


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_status_that_may_pass_is_retried(status: int, outcomes: Any) -> None:
    rows = outcomes({"twice": fails_first(2, f"{status} X"), "thrice": fails_first(3, f"{status} X")}, **SOON)
    assert (rows["twice"]["reason"], rows["twice"]["requests"]) == (None, 3)
    assert (rows["thrice"]["reason"], rows["thrice"]["requests"]) == (f"http_{status}", 3)
    assert rows["thrice"]["status"] == status


def test_only_broken_connections_and_timeouts_are_retried(outcomes: Any) -> None:
    plan = {"reset": hostile.reset, "404": answer(status="404 Not Found")}
    plan |= {"too large": hostile.endless, "no HTTP": b"220 smtp\r\n\r\n"}
    assert [row["requests"] for row in outcomes(plan, **SOON).values()] == [3, 1, 1, 1]
    late = outcomes({"silent": hostile.silence}, out="late", **SOON, **IN_A_SECOND | {"total_seconds": 0.2})
    assert late["silent"]["requests"] == 3


def test_an_unanswered_look_up_is_retried_and_an_unknown_name_is_not(
    outcomes: Any, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()

    async def look_up(_: Any, host: str) -> list[str]:
        asked[host] += 1
        if host == "unknown.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host == "never.example" or asked[host] < 3:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ["127.0.0.1"]

    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.Names.look_up", look_up)
    web.page("/page")
    names = ("later", "never", "unknown")
    plan = {name: f"http://{name}.example:{web.port}/page" for name in names}
    rows = outcomes(plan, contact="test@example.org", **SOON)
    assert [rows[name]["reason"] for name in names] == [None, "dns_unanswered", "dns_failed"]
    assert asked == {"later.example": 3, "never.example": 3, "unknown.example": 1}


def test_a_retry_resumes_at_the_redirect_that_failed(outcomes: Any, web: Any) -> None:
    web.plant("/end", fails_first(1, "503 Busy"), host=2)
    rows = outcomes({"start": redirect(web.url("/end", 2))}, **SOON)
    assert (rows["start"]["reason"], rows["start"]["requests"]) == (None, 3)
    assert rows["start"]["redirects"] == [rows["start"]["url"]]
    assert web.paths(1) == ["/link0"]


def test_a_host_continues_while_a_link_waits_for_a_retry(crawl: Any, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of its wait is stopped until the others were asked, however long that takes."""
    again = web.plant("/again", fails_first(1, "500 Oops"))
    others = [web.page(f"/{i}") for i in range(5)]
    stopped_at: list[float] = []

    def clock() -> float:
        if len(web.paths()) > len(others) and not stopped_at:
            stopped_at.append(time.monotonic())
        return time.monotonic() - stopped_at[0] if stopped_at else 0.0

    monkeypatch.setattr("webtext.crawl.fetch.host_queues.time", SimpleNamespace(monotonic=clock))
    rows = crawl([again, *others], retries=1, retry_seconds=0.6)
    assert {row["reason"] for row in rows.values()} == {None}
    asked = [request for request in web.requests if request.path not in SITE_FILES]
    assert asked[-1].path == "/again", "the others waited for it"
    assert asked[-1].time - stopped_at[0] >= 0.29, "a wait is at least half of what is set"


def test_a_link_is_retried_after_the_site_s_retry_after(outcomes: Any, web: Any) -> None:
    """Without the answer's Retry-After of a second, the retry would come after an hour, and the test would not end."""
    rows = outcomes({"busy": fails_first(1, "503 Busy", "Retry-After: 1")}, retries=1, retry_seconds=7200.0)
    assert (rows["busy"]["reason"], rows["busy"]["requests"]) == (None, 2)
    first, second = (request.time for request in web.requests if request.path == "/link0")
    assert second - first >= 1.0


def test_a_robots_file_fetched_at_the_second_try_is_obeyed(outcomes: Any, web: Any) -> None:
    asked = itertools.count()

    async def robots(writer: asyncio.StreamWriter) -> None:
        works = next(asked)
        writer.write(answer(b"User-agent: *\nDisallow: /link0", status="200 OK" if works else "503 Busy"))

    web.plant("/robots.txt", robots)
    rows = outcomes({"closed": answer()}, **SOON)
    assert (rows["closed"]["reason"], rows["closed"]["requests"]) == ("robots_disallowed", 0)


def test_the_queue_of_a_dead_host_is_given_up(crawl: Any, web: Any) -> None:
    urls = [web.plant(f"/{i}", hostile.reset) for i in range(12)]
    rows = crawl([*urls, web.page("/", host=2)], max_host_failures=3)
    reasons = [rows[url]["reason"] for url in urls]
    assert (reasons.count("connection_failed"), reasons.count("host_kept_failing")) == (3, 9)
    assert {row["requests"] for row in rows.values() if row["reason"] == "host_kept_failing"} == {0}
    assert rows[web.url("/", 2)]["reason"] is None


def test_a_host_that_never_answers_is_dead_too(crawl: Any, web: Any) -> None:
    web.plant("/robots.txt", hostile.silence)
    urls = [web.plant(f"/{i}", hostile.silence) for i in range(12)]
    rows = crawl(urls, max_host_failures=3, **IN_A_SECOND | {"total_seconds": 0.1})
    reasons = [rows[url]["reason"] for url in urls]
    assert (reasons.count("timed_out"), reasons.count("host_kept_failing")) == (2, 10)  # robots.txt is the third


@pytest.fixture
def dead_address(web: Any) -> Iterator[str]:
    """An address where connections time out: a listener's queue is full, so the kernel drops what would open another."""
    place = ("127.0.0.9", web.port)
    with socket.create_server(place, backlog=0), socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(place)
        yield place[0]


@pytest.mark.parametrize("is_online", [True, False])
def test_of_the_hosts_at_a_dead_address_only_a_few_wait_for_a_connection(
    is_online: bool, crawl: Any, web: Any, names: Any, dead_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three connections time out, then one after a rest. At most eight visits are under way at an address.

    While no other address answers, this machine may be offline, and all hosts are asked.
    """

    def tried(hosts: Hosts, address: str, **result: bool) -> None:
        if is_online:
            register(hosts, "127.0.0.1", has_answered=True)
        register(hosts, address, **result)

    register = Hosts.tried
    monkeypatch.setattr(Hosts, "tried", tried)
    names |= {f"blog{i}.example": [dead_address] for i in range(20)}
    given = {"contact": "https://example.org/", "connect_seconds": 0.3, "max_host_failures": 3, "max_pause": 0.1}
    rows = crawl([f"http://{name}:{web.port}/" for name in names], **given).values()
    n_late = sum(str(row["cause"]).startswith("timed_out:") for row in rows)
    refused = {row["cause"] for row in rows if (row["outcome"], row["reason"]) == ("failed", "host_kept_failing")}
    assert (n_late, refused) == ((4, {"no connection to 127.0.0.9"}) if is_online else (20, set()))


def test_an_address_that_connects_again_is_not_given_up_and_a_host_has_others_left() -> None:
    async def look_up(host: str) -> list[str]:
        return ["8.8.8.8", "8.8.4.4"][: len(host) - len(".example")]

    async def ask() -> None:
        hosts = Hosts(Pace(delay=0.0, max_host_failures=2, max_pause=0.0))
        async with Client("test", AddressRule(), hosts) as client:
            client.resolver = PinnedResolver(AddressRule(), look_up)
            for result in ("is_late", "is_late", "has_answered", "is_late", "is_late"):
                hosts.tried("8.8.8.8", **{result: True})
            assert await client.address("http://a.example/") == "8.8.8.8"
            hosts.tried("8.8.8.8", is_late=True)
            assert await client.address("http://ab.example/") == "8.8.4.4"
            with pytest.raises(FetchRefused, match="host_kept_failing: no connection to 8.8.8.8"):
                await client.address("http://a.example/")

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1000000000", 1e9),
        ("9" * 400, 999_999_999_999.0),
        ("120", 120.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 59.0),
        ("Fri Dec 31 23:59:59 1999", 59.0),
        *((f"Fri, 31 Dec {year} 23:58:59 GMT", 0.0) for year in (1999, 99999)),
        *((value, 0.0) for value in ("-5", "NaN", "inf", "1e9", "soon", "")),
    ],
)
def test_a_retry_after_of_any_form_is_a_number_of_seconds(value: str, seconds: float, in_hawaii: None) -> None:
    assert retry_after(value, "Fri, 31 Dec 1999 23:59:00 GMT") == seconds


@pytest.fixture
def in_hawaii(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC+10")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_host_that_asks_for_a_long_pause_is_not_asked_again(crawl: Any, web: Any) -> None:
    busy = answer(b"", "Retry-After: 1000000000", status="503 Busy")
    urls = [web.plant(f"/{i}", busy) for i in range(3)]
    rows = crawl(urls, **SOON)
    assert sorted(row["reason"] for row in rows.values()) == ["host_asked_to_wait"] * 3
    assert len(web.paths()) == 1
    web.requests.clear()
    later = crawl([*urls, web.page("/later")], **SOON)
    assert later[web.url("/later")]["reason"] == "host_asked_to_wait", "a later run forgot what it was asked"
    assert web.requests == []


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_host_s_delay_grows_with_failures_and_recovers(is_busy: bool) -> None:
    hosts = Hosts(Pace(delay=1.0, max_delay=10.0))
    delays = []
    for _ in range(5):
        hosts.failed("a.example", is_busy=is_busy)
        delays.append(hosts._clocks["a.example"].delay)
    assert delays == [2.0, 4.0, 8.0, 10.0, 10.0]
    for _ in range(4):
        hosts.answered("a.example", 0.1)
        delays.append(hosts._clocks["a.example"].delay)
    assert delays[5:] == [5.0, 2.5, 1.25, 1.0]
    hosts.answered("a.example", 7.0)
    assert hosts._clocks["a.example"].delay == 7.0, "a slow answer slows us down"
    hosts.answered("a.example", 99.0)
    assert hosts._clocks["a.example"].delay == 10.0


def test_a_pause_requested_during_a_turn_is_obeyed() -> None:
    async def take_turns() -> float:
        hosts = Hosts(Pace(delay=0.0))
        async with hosts.turn("a.example", "127.0.0.1"):
            begun = time.monotonic()
            hosts.pause("a.example", 0.2)
        async with hosts.turn("a.example", "127.0.0.1"):
            return time.monotonic() - begun

    assert asyncio.run(take_turns()) >= 0.19


def stop_clocks(monkeypatch: pytest.MonkeyPatch, now: float = 1e9) -> None:
    """Stop the clocks, so that no time passes between writing and reading the journal, even on a busy machine."""
    monkeypatch.setattr("webtext.crawl.fetch.hosts.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("webtext.crawl.fetch.clock_file.time", SimpleNamespace(time=lambda: now))


def test_clocks_are_recalled_by_a_new_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clocks(monkeypatch)
    pace = Pace(delay=1.0)
    hosts = Hosts(pace, ClockFile(tmp_path))
    hosts.pause("paused.example", 100.0)
    hosts.ask_for_delay("slow.example", 20.0)
    hosts.pause("gone.example", 1e9)

    async def one_turn() -> None:
        async with hosts.turn("asked.example", "127.0.0.1"):
            pass

    asyncio.run(one_turn())
    with open(tmp_path / NAME, "a") as file:
        file.write("torn.example\t17")
    later = Hosts(pace, ClockFile(tmp_path))
    assert [later.wait(name) for name in ("paused.example", "asked.example", "@127.0.0.1")] == [100.0, 1.0, 1.0]
    assert later._clocks["slow.example"].delay == 20.0
    assert later.refusal("gone.example") == "host_asked_to_wait"
    assert "torn.example" not in later._clocks


@pytest.mark.parametrize("hours", [-1000, -1, 0])
def test_a_clock_that_was_set_back_doesn_t_change_waits(
    hours: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_clocks(monkeypatch)
    journal = ClockFile(tmp_path)
    journal.begin([])
    journal.note(("a.example", 60.0, 1.0))
    stop_clocks(monkeypatch, 1e9 + 3600.0 * hours)
    [noted] = journal.read()
    assert noted.wait == 60.0


def test_invalid_lines_of_a_journal_are_skipped(tmp_path: Path) -> None:
    lines = ["", "a\tb\tc\td", "a\t1\t1e999\t1", "a\t1\t2", "a\tnan\tnan\tnan", "a\tinf\tinf\t1", "\xff\t1\t2\t3"]
    (tmp_path / NAME).write_text("\n".join(lines) + "\n", encoding="latin-1")
    journal = ClockFile(tmp_path)
    assert journal.read() == []
    journal.begin(journal.read())  # with a name that isn't ASCII it couldn't be written


def test_a_long_journal_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clocks(monkeypatch)
    monkeypatch.setattr("webtext.crawl.fetch.clock_file.MAX_LINES", 10)
    hosts = Hosts(Pace(delay=1.0), ClockFile(tmp_path))
    for i in range(100):
        hosts.pause("a.example", 50.0 + i)
    assert len((tmp_path / NAME).read_text().splitlines()) < 15
    [noted] = ClockFile(tmp_path).read()
    assert isinstance(noted, NotedClock)
    assert noted.wait == 149.0


@pytest.mark.parametrize("name", ["a.example", "@127.0.0.1"])
def test_a_host_or_address_given_up_refuses_waiting_requests(name: str) -> None:
    async def wait_in_line() -> str:
        hosts = Hosts(Pace(delay=0.0, max_host_failures=1))
        async with hosts.turn("a.example", "127.0.0.1"):
            waiting = asyncio.ensure_future(one_turn(hosts))
            await asyncio.sleep(0)
            hosts.failed(name)
        with pytest.raises(FetchRefused) as refused:
            await waiting
        return refused.value.reason

    async def one_turn(hosts: Hosts) -> None:
        async with hosts.turn("a.example", "127.0.0.1"):
            raise AssertionError("asked a host that was given up")

    assert asyncio.run(wait_in_line()) == "host_kept_failing"


def pauses_noted(journal: Path, name: str) -> list[tuple[float, float]]:
    """Return (seconds, end) of each pause of a clock in the journal, without a line that is being written."""
    lines = journal.read_text().splitlines(keepends=True) if journal.exists() else []
    fields = [line.split("\t") for line in lines if line.endswith("\n")]
    found = [(float(until) - float(written), float(until)) for clock, written, until, _ in fields if clock == name]
    return [(0.0, 0.0), *sorted(found)]


@pytest.mark.slow
def test_after_a_kill_no_host_is_asked_before_its_time(web: Any, make_links: Any, tmp_path: Path) -> None:
    """The first host has asked for a pause, and the second is in the middle of an answer. The journal then has the time
    when each may be asked again."""
    is_killed = threading.Event()

    async def reply(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0 if is_killed.is_set() else 600)
        writer.write(answer())

    busy = web.plant("/busy", answer(b"", "Retry-After: 3", status="503 Busy"), host=1)
    links = make_links([busy, web.page("/after", host=1), *(web.plant(f"/{i}", reply, host=2) for i in range(2))])
    journal = tmp_path / "pages" / NAME
    child = web.start_crawl(links, tmp_path / "pages", "--retries", "0")
    while child.poll() is None and not (web.paths(2) and pauses_noted(journal, "127.0.0.1")[-1][0] > 2.0):
        time.sleep(0.01)
    child.kill()
    child.wait()
    is_killed.set()
    asked, wall = len(web.requests), time.time() - time.monotonic()
    due = {host: max(until for _, until in pauses_noted(journal, host)) for host in ("127.0.0.1", "127.0.0.2")}
    again = web.start_crawl(links, tmp_path / "pages", "--retries", "0")
    assert b"1 record failed; another run could change" in again.communicate()[1]
    for host, moment in due.items():
        assert min(request.time for request in web.requests[asked:] if request.host == host) + wall >= moment - 0.05


def test_only_the_latest_clocks_of_failed_hosts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, a crawl of a million dead hosts would keep a clock for each."""
    monkeypatch.setattr("webtext.crawl.fetch.hosts.CLOCKS_KEPT", 20)

    async def ask() -> list[str | None]:
        hosts = Hosts(Pace(delay=0.0, max_delay=0.0, max_host_failures=1))
        for number in range(1000):
            async with hosts.turn(f"host{number}", f"192.0.2.{number}"):
                hosts.failed(f"host{number}")
        assert len(hosts._clocks) <= 2 * 20
        return [hosts.refusal(f"host{number}") for number in (0, 998, 999)]

    assert asyncio.run(ask()) == [None, "host_kept_failing", "host_kept_failing"]
