"""Addresses in odd spellings, URLs that hide their host, ports and schemes of other services, control characters."""

from __future__ import annotations

from typing import Any

import pytest
from hostile_answers import redirect

from webtext.base.web.urls import canonical_url

pytestmark = pytest.mark.usefixtures("wire")

CONTACT = {"contact": "test@example.org"}


SPELLINGS = {
    "one decimal number": "http://2130706433/",
    "hexadecimal": "http://0x7f.1/",
    "octal": "http://0177.0.0.1/",
    "fewer than four numbers": "http://127.1/",
    "circled digits": "http://①②⑦.⓪.⓪.①/",
    "a full stop behind": "http://127.0.0.1./",
    "a user before it": "http://user:pw@10.0.0.1/",
    "a host name as the user": "http://good.com@10.0.0.1/",
}


@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)
def test_a_disguised_private_address_is_recognised(spelled: str, outcomes: Any) -> None:
    url = canonical_url(spelled)
    assert url in ("http://127.0.0.1/", "http://10.0.0.1/")
    rows = outcomes({"link": url, "redirect": redirect(f"{spelled}secret")}, **CONTACT)
    assert {row["reason"] for row in rows.values()} == {"address_not_public"}


def test_localhost_by_any_name_is_refused(outcomes: Any, names: dict[str, list[str]]) -> None:
    hosts = ["localhost", "localhost.", "LOCALHOST", "x.localhost"]
    names.update({host.lower(): ["127.0.0.1", "::1"] for host in hosts})
    rows = outcomes({host: redirect(f"http://{host}/") for host in hosts}, **CONTACT)
    assert {row["reason"] for row in rows.values()} == {"address_not_public"}


def test_a_backslash_ends_the_host_as_it_does_in_browsers(outcomes: Any, names: dict[str, list[str]]) -> None:
    assert canonical_url("http://good.com\\@10.0.0.1/") == "http://good.com/@10.0.0.1/"
    names["good.com"] = ["10.9.9.9"]
    [row] = outcomes({"backslash": redirect("http://good.com\\@10.0.0.1/")}, **CONTACT).values()
    assert (row["reason"], row["cause"]) == ("address_not_public", "good.com is 10.9.9.9, port 80")


def test_ports_of_other_services_are_refused(outcomes: Any, wire: Any, names: dict[str, list[str]]) -> None:
    names["public.example"] = ["8.8.8.8"]
    ports = (22, 25, 6379, 0)
    rows = outcomes({str(port): f"http://public.example:{port}/" for port in ports}, **CONTACT)
    assert {row["reason"] for row in rows.values()} == {"port_not_web"}
    assert wire.reached == []
    assert canonical_url("http://public.example:65536/") is None


def test_schemes_other_than_http_are_rejected(outcomes: Any) -> None:
    elsewhere = ["file:///etc/passwd", "ftp://a.example/", "gopher://a.example/", "data:text/html,x"]
    elsewhere += ["javascript:alert(1)", "mailto:a@b.example", "magnet:?xt=urn:btih:0"]
    assert [canonical_url(url) for url in elsewhere] == [None] * len(elsewhere)
    rows = outcomes({url: redirect(url) for url in elsewhere})
    assert {row["reason"] for row in rows.values()} == {"bad_redirect"}


def test_impossible_hosts_and_ports_are_rejected(outcomes: Any) -> None:
    impossible = ["http:///", "http://:80/", "http://a.example:65536/", "http://a.example:x/", "http://[::1/"]
    rows = outcomes({url: redirect(url) for url in impossible})
    assert {rows[url]["reason"] for url in impossible[2:]} == {"bad_redirect"}
    assert {row["outcome"] for row in rows.values()} == {"failed"}
    too_long = [f"http://{'a' * 64}.example/", "http://" + ".".join(["a" * 60] * 5) + "/"]
    rows = outcomes({url: url for url in too_long}, "long", **CONTACT)
    assert {row["reason"] for row in rows.values()} == {"dns_failed"}


def test_control_characters_never_reach_a_request(outcomes: Any, web: Any) -> None:
    injected = "/a%0D%0AX-Injected:%20yes%00%09"
    plan = {
        "escaped in a link": web.page(injected),
        "escaped in a Location": redirect(injected + "?again"),
        "a tab in a Location": redirect(b"/a\tb"),
        "NUL in a Location": redirect(b"/a\x00b"),
        "a bare CR in a Location": redirect(b"/a\rX-Injected: yes"),
    }
    web.page(injected + "?again", host=2)
    web.page("/ab", host=3)
    rows = outcomes(plan)
    reasons = {name: row["reason"] for name, row in rows.items()}
    assert reasons["escaped in a link"] is reasons["escaped in a Location"] is reasons["a tab in a Location"] is None
    assert reasons["NUL in a Location"] == "invalid_header"
    assert rows["a bare CR in a Location"]["outcome"] == "failed"
    assert not any("x-injected" in request.headers for request in web.requests)
    assert not any(set(request.path) & set("\r\n\t\0") for request in web.requests)
