"""Host names: looked up once, all addresses checked, and the connection made to the checked address."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import socket
import threading
from typing import Any

import pytest

from webtext.crawl.exchange.addresses import AddressRule
from webtext.crawl.exchange.failures import Refused
from webtext.crawl.exchange.resolver import PinnedResolver

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
    outcomes: Any, web: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = itertools.chain([["127.0.0.5"]], itertools.repeat(["10.0.0.1"]))
    monkeypatch.setattr("webtext.crawl.exchange.resolver.system_lookup", lambda _: next(answers))
    web.page("/a", host=5)
    web.page("/b", host=5)
    url = f"http://rebinding.example:{web.port}"
    rows = outcomes({"a": f"{url}/a", "b": f"{url}/b"}, **CONTACT)
    assert {row["reason"] for row in rows.values()} == {None}
    assert set(wire.reached) == {("127.0.0.5", web.port)}
    assert {request.headers["host"] for request in web.requests} == {f"rebinding.example:{web.port}"}


def test_an_alias_of_a_private_host_is_rejected_by_its_address(
    outcomes: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def canonical_name_first(*_: Any, **__: Any) -> list[Any]:
        chain = (
            "internal.example"  # what the resolver found at the end of www.example -> cdn.example -> internal.example
        )
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, chain, ("192.168.0.9", 0))]

    monkeypatch.setattr("socket.getaddrinfo", canonical_name_first)
    [row] = outcomes({"alias": "http://www.example/"}, **CONTACT).values()
    assert (row["reason"], row["cause"]) == ("address_not_public", "www.example is 192.168.0.9, port 80")
    assert wire.reached == []


def test_names_that_are_unknown_or_whose_servers_fail_or_hang_are_counted(
    outcomes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    errors = {
        "unknown.example": socket.EAI_NONAME,
        "failing.example": socket.EAI_AGAIN,
        "empty.example": socket.EAI_NODATA,
        "broken.example": socket.EAI_FAIL,
    }

    def look_up(host: str) -> list[str]:
        if host in errors:
            raise socket.gaierror(errors[host], "no answer")
        done.wait(5)
        return []

    monkeypatch.setattr("webtext.crawl.exchange.resolver.system_lookup", look_up)
    monkeypatch.setattr("webtext.crawl.exchange.resolver.LOOKUP_SECONDS", 0.1)
    try:
        rows = outcomes({host: f"http://{host}/" for host in (*errors, "hanging.example")}, **CONTACT)
    finally:
        done.set()
    assert {host: row["reason"] for host, row in rows.items()} == {
        "unknown.example": "dns_failed",
        "failing.example": "dns_unanswered",
        "empty.example": "dns_failed",
        "broken.example": "dns_unanswered",
        "hanging.example": "dns_unanswered",
    }
    assert all(row["requests"] == 0 for row in rows.values())


def test_ten_thousand_answers_are_all_judged() -> None:
    public = [str(ipaddress.ip_address("8.0.0.0") + i) for i in range(10_000)]

    async def ask(answers: list[str]) -> str:
        resolver = PinnedResolver(AddressRule(), lambda _: answers)
        try:
            return await resolver.address("many.example", 80)
        finally:
            await resolver.close()

    assert asyncio.run(ask(["8.8.8.8", "1.1.1.1"])) == "8.8.8.8"
    assert asyncio.run(ask(public)) == "8.0.0.0"
    with pytest.raises(Refused):
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
