"""Host names: looked up once, all addresses checked, and the connection made to the checked address."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pycares
import pytest
from local_names import (
    CNAME,
    NO_ERROR,
    REFUSED,
    SERVER_FAILURE,
    UNKNOWN_NAME,
    A,
    LocalNames,
    Plan,
    encoded,
    question,
    record,
    reply,
)

from webtext.crawl.fetch.client.addresses import AddressRule
from webtext.crawl.fetch.client.resolver import Names, PinnedResolver
from webtext.crawl.pages.visit import FetchRefused

pytestmark = pytest.mark.usefixtures("wire")

CONTACT = {"contact": "test@example.org"}


def test_a_name_with_a_private_address_is_refused(outcomes: Any, wire: Any, names: dict[str, list[str]]) -> None:
    names["intranet.example"] = ["10.0.0.1"]
    [row] = outcomes({"name": "http://intranet.example/"}, **CONTACT).values()
    assert (row["reason"], row["cause"]) == ("address_not_public", "intranet.example is 10.0.0.1, port 80")
    assert wire.reached == []


def test_one_private_answer_among_public_ones_refuses_the_name(
    outcomes: Any, wire: Any, names: dict[str, list[str]]
) -> None:
    names |= {"first.example": ["10.0.0.1", "8.8.8.8"], "last.example": ["8.8.8.8", "1.1.1.1", "::1"]}
    rows = outcomes({name: f"http://{name}/" for name in ("first.example", "last.example")}, **CONTACT)
    assert {row["reason"] for row in rows.values()} == {"address_not_public"}
    assert wire.reached == []


def test_a_name_that_changes_its_address_is_connected_to_at_the_checked_one(
    outcomes: Any, web: Any, wire: Any, names: dict[str, Plan], name_server: LocalNames
) -> None:
    def rebinding(query: bytes) -> bytes:
        return reply(query, "127.0.0.5" if name_server.asked.count(("rebinding.example", A)) == 1 else "10.0.0.1")

    names["rebinding.example"] = rebinding
    web.page("/a", host=5)
    web.page("/b", host=5)
    url = f"http://rebinding.example:{web.port}"
    rows = outcomes({"a": f"{url}/a", "b": f"{url}/b"}, **CONTACT)
    assert {row["reason"] for row in rows.values()} == {None}
    assert set(wire.reached) == {("127.0.0.5", web.port)}
    assert {request.headers["host"] for request in web.requests} == {f"rebinding.example:{web.port}"}


def test_an_alias_of_a_private_host_is_rejected_by_its_address(
    outcomes: Any, wire: Any, names: dict[str, Plan]
) -> None:
    chain = [record(CNAME, encoded("cdn.example")), record(CNAME, encoded("internal.example"), encoded("cdn.example"))]
    names["www.example"] = lambda query: reply(query, "192.168.0.9", before=tuple(chain), owner="internal.example")
    [row] = outcomes({"alias": "http://www.example/"}, **CONTACT).values()
    assert (row["reason"], row["cause"]) == ("address_not_public", "www.example is 192.168.0.9, port 80")
    assert wire.reached == []


def test_names_that_are_unknown_or_whose_servers_fail_are_counted(outcomes: Any, names: dict[str, Plan]) -> None:
    names |= {"failing.example": SERVER_FAILURE, "empty.example": [], "refusing.example": REFUSED}
    rows = outcomes({host: f"http://{host}/" for host in ("unknown.example", *names)}, **CONTACT)
    assert {host: row["reason"] for host, row in rows.items()} == {
        "unknown.example": "dns_failed",
        "failing.example": "dns_unanswered",
        "empty.example": "dns_failed",
        "refusing.example": "dns_unanswered",
    }
    assert all(row["requests"] == 0 for row in rows.values())


def test_names_that_are_never_answered_don_t_delay_others(outcomes: Any, web: Any, names: dict[str, Plan]) -> None:
    """Sixty names are unanswered until the pages of all others were requested, which then become unknown."""
    healthy = {f"there{i}": web.page(f"/{i}", host=i % 4 + 1) for i in range(40)}
    healthy = {name: f"http://{name}.example:{web.port}/{i}" for i, name in enumerate(healthy)}
    names |= {f"{name}.example": [f"127.0.0.{i % 4 + 1}"] for i, name in enumerate(healthy)}

    def late(query: bytes) -> bytes | None:
        asked = sum(len(web.paths(host)) for host in range(1, 5))
        return reply(query, code=UNKNOWN_NAME) if asked == len(healthy) else None

    names |= {f"late{i}.example": late for i in range(60)}
    hanging = {f"late{i}": f"http://late{i}.example/" for i in range(60)}
    rows = outcomes(hanging | healthy, **CONTACT)
    assert {rows[name]["reason"] for name in healthy} == {None}
    assert {rows[name]["reason"] for name in hanging} <= {"dns_failed", "dns_unanswered"}


def test_a_name_that_is_never_answered_fails_at_its_deadline(
    outcomes: Any, names: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    names["silent.example"] = None
    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.LOOKUP_SECONDS", 0.1)
    [row] = outcomes({"silent": "http://silent.example/"}, **CONTACT).values()
    assert (row["reason"], row["requests"]) == ("dns_unanswered", 0)


def another_id(query: bytes) -> bytes:
    good = reply(query, "127.0.0.1")
    return bytes([good[0] ^ 1]) + good[1:]


def another_question(query: bytes) -> bytes:
    return reply(query, "127.0.0.1").replace(b"hostile", b"hostage")


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "an answer to another query": another_id,
    "an answer to another question": another_question,
    "a loop of compressed names": lambda query: reply(query, before=(record(A, bytes(4), b"\xc0\x21"),)),
    "a record that is cut short": lambda query: reply(query, "127.0.0.1", "127.0.0.2")[:-2],
    "more records than announced": lambda query: query[:2] + b"\x81\x80\0\1\xff\xff\0\0\0\0" + query[12:],
    "a loop of aliases": lambda query: reply(query, before=(record(CNAME, b"\xc0\x0c"),) * 40),
    "an address of three bytes": lambda query: reply(query, before=(record(A, bytes(3)),)),
    "a head alone": lambda query: query[:2] + b"\x81\x80" + bytes(8),
    "a byte": lambda query: query[:1],
    "noise": lambda query: query[:2] + b"\x81\x80" + b"\xff" * 500,
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_false_or_damaged_answer_leads_to_no_address(
    answer: Any, outcomes: Any, web: Any, wire: Any, names: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.LOOKUP_SECONDS", 0.5)
    names["hostile.example"] = answer
    [row] = outcomes({"link": f"http://hostile.example:{web.port}/"}, **CONTACT).values()
    assert row["reason"] in ("dns_failed", "dns_unanswered")
    assert wire.reached == []


def addresses_of(host: str) -> list[str]:
    async def ask() -> list[str]:
        names = Names()
        try:
            return await names.look_up(host)
        finally:
            names.close()

    return asyncio.run(ask())


def test_addresses_of_both_families_are_found_even_if_one_family_fails(names: dict[str, Plan]) -> None:
    def only_ipv4(query: bytes) -> bytes:
        return reply(query, "8.8.8.8", code=NO_ERROR if question(query)[1] == A else SERVER_FAILURE)

    names |= {"both.example": ["8.8.8.8", "2606:4700::1"], "one.example": only_ipv4}
    assert sorted(addresses_of("both.example")) == ["2606:4700::1", "8.8.8.8"]
    assert addresses_of("one.example") == ["8.8.8.8"]


def test_an_answer_that_doesn_t_fit_a_datagram_comes_over_tcp(names: dict[str, Plan]) -> None:
    public = [str(ipaddress.ip_address("8.0.0.0") + i) for i in range(3000)]
    names["many.example"] = public
    assert sorted(addresses_of("many.example")) == sorted(public)


def test_names_in_the_hosts_file_need_no_server(name_server: LocalNames) -> None:
    lines = [line.partition("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines()]
    for address, *hosts in filter(None, lines):
        for host in hosts:
            assert ipaddress.ip_address(address) in map(ipaddress.ip_address, addresses_of(host))
    known = {str(sockaddr[0]) for *_, sockaddr in socket.getaddrinfo("localhost", None)}
    assert set(addresses_of("localhost")) == known
    assert name_server.asked == []


def test_search_domains_complete_a_short_name(names: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pycares.Channel", functools.partial(pycares.Channel, domains=["corp.example"]))
    names["wiki.corp.example"] = ["8.8.8.8"]
    assert addresses_of("wiki") == ["8.8.8.8"]


def test_an_unknown_name_is_asked_for_once_and_a_failing_server_again(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = {"unknown.example": socket.EAI_NONAME, "failing.example": socket.EAI_AGAIN}
    asked: Counter[str] = Counter()
    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.CACHE_HOSTS", 3)

    async def look_up(host: str) -> list[str]:
        asked[host] += 1
        raise socket.gaierror(errors.get(host, socket.EAI_NONAME), "no answer")

    async def ask() -> int:
        resolver = PinnedResolver(AddressRule(), look_up)
        for host in [*errors] * 5 + [f"unknown{i}.example" for i in range(10)]:
            with pytest.raises(OSError, match="no answer"):
                await resolver.address(host, 80)
        return len(resolver._answers)

    assert asyncio.run(ask()) == 3, "the memory of unknown names has no bound"
    assert (asked["unknown.example"], asked["failing.example"]) == (1, 5)


def test_the_cache_of_c_ares_is_emptied(names: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """Look-ups under way at that moment are answered."""
    made: list[Any] = []
    channel = pycares.Channel
    monkeypatch.setattr("pycares.Channel", lambda: made.append(channel()) or made[-1])
    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.LOOKUPS_PER_CHANNEL", 10)
    names |= {f"name{i}.example": [f"8.8.8.{i}"] for i in range(100)}

    async def ask() -> list[list[str]]:
        known = Names()
        return await asyncio.gather(*(known.look_up(f"name{i}.example") for i in range(100)))

    assert asyncio.run(ask()) == [[f"8.8.8.{i}"] for i in range(100)]
    assert len(made) == 10


def test_ten_thousand_answers_are_all_judged() -> None:
    public = [str(ipaddress.ip_address("8.0.0.0") + i) for i in range(10_000)]

    async def ask(answers: list[str]) -> str:
        async def look_up(_: str) -> list[str]:
            return answers

        return await PinnedResolver(AddressRule(), look_up).address("many.example", 80)

    assert asyncio.run(ask(["8.8.8.8", "1.1.1.1"])) == "8.8.8.8"
    assert asyncio.run(ask(public)) == "8.0.0.0"
    with pytest.raises(FetchRefused):
        asyncio.run(ask([*public, "127.0.0.1"]))


def test_a_proxy_variable_doesn_t_bypass_the_address_rule(
    outcomes: Any, web: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        rows = outcomes({"private": "http://10.0.0.1/", "local": web.page("/a")}, **CONTACT)
    assert [rows[name]["reason"] for name in ("private", "local")] == ["address_not_public", None]
    assert set(wire.reached) == {("127.0.0.1", web.port)}
