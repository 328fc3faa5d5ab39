"""Links, names and redirects to each class of address that is not public: no connection is ever attempted."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from webtext.crawl.fetch.client.addresses import AddressRule, is_own_address

pytestmark = pytest.mark.usefixtures("wire")

CLASSES = {
    "the loopback address": ["127.0.0.1"],
    "the end of the loopback network": ["127.255.255.255"],
    "IPv6's loopback address": ["::1"],
    "the unspecified address": ["0.0.0.0", "::"],  # noqa: S104 - nothing is bound here
    "the private network 10/8": ["10.0.0.1", "10.255.255.255"],
    "the private network 172.16/12": ["172.16.0.1", "172.31.255.254"],
    "the private network 192.168/16": ["192.168.0.1", "192.168.255.254"],
    "the metadata service of clouds": ["169.254.169.254"],
    "carrier-grade NAT": ["100.64.0.1", "100.127.255.254"],
    "IETF protocol assignments": ["192.0.0.8"],
    "benchmark networks": ["198.18.0.1", "198.19.255.255"],
    "documentation networks": ["192.0.2.1", "198.51.100.1", "203.0.113.1"],
    "multicast": ["224.0.0.1", "239.1.1.1"],
    "reserved and broadcast addresses": ["240.0.0.1", "255.255.255.255"],
    "IPv4-mapped IPv6": ["::ffff:10.0.0.1"],
    "IPv4-compatible IPv6": ["::10.0.0.1"],
    "IPv4-translated IPv6": ["::ffff:0:10.0.0.1"],
    "NAT64": ["64:ff9b::a00:1", "64:ff9b::808:808"],
    "local NAT64": ["64:ff9b:1::1"],
    "6to4": ["2002:a00:1::1"],
    "Teredo": ["2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    "unique local addresses": ["fd00:ec2::254", "fc00::1"],
    "site-local addresses": ["fec0::1"],
    "IPv6 multicast": ["ff02::1"],
    "IPv6 documentation, discard and segment-routing prefixes": ["2001:db8::1", "3fff::1", "100::1", "5f00::1"],
}


@pytest.mark.parametrize("addresses", CLASSES.values(), ids=CLASSES)
def test_nothing_is_sent_to(
    addresses: list[str], outcomes: Any, web: Any, wire: Any, names: dict[str, list[str]]
) -> None:
    plan: dict[str, Any] = {}
    for i, address in enumerate(addresses):
        literal = f"[{ipaddress.ip_address(address).compressed}]" if ":" in address else address
        names[f"name{i}.example"] = [address]
        plan[f"link {address}"] = f"http://{literal}/"
        plan[f"name {address}"] = f"http://name{i}.example/"
        to = f"HTTP/1.1 302 Found\r\nLocation: http://{literal}:8080/\r\nContent-Length: 0\r\n\r\n"
        plan[f"redirect {address}"] = to.encode()
    rows = outcomes(plan, contact="test@example.org")
    assert {row["reason"] for row in rows.values()} == {"address_not_public"}
    causes = {name.split()[1]: row["cause"] for name, row in rows.items() if "name" in name}
    for address, cause in causes.items():
        found = cause.partition(" is ")[2].removesuffix(", port 80")
        assert ipaddress.ip_address(found) == ipaddress.ip_address(address)
    assert set(wire.reached) <= {(f"127.0.0.{i}", web.port) for i in range(1, 9)}
    assert wire.reached, "the guard saw not even the local web"


def test_nothing_is_sent_to_a_link_local_address_with_a_zone(
    outcomes: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look_up(_: Any, host: str) -> list[str]:
        return ["fe80::1%eth0"]

    monkeypatch.setattr("webtext.crawl.fetch.client.resolver.Names.look_up", look_up)
    [row] = outcomes({"zone": "http://zone.example/"}, contact="test@example.org").values()
    assert row["reason"] == "address_not_public"
    assert wire.reached == []


def test_nothing_is_sent_to_an_address_of_this_machine(
    outcomes: Any, wire: Any, names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_own_address(ipaddress.ip_address("127.0.0.1"))
    assert not is_own_address(ipaddress.ip_address("192.0.2.7"))
    own = ipaddress.ip_address("8.8.4.4")  # as if a public address were ours
    monkeypatch.setattr("webtext.crawl.fetch.client.addresses.is_own_address", lambda address: address == own)
    assert AddressRule().refusal("8.8.4.4", 443) == "address_not_public"
    assert AddressRule().refusal("8.8.8.8", 443) is None
    names["ours.example"] = ["8.8.4.4"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        plan = {"own": "http://ours.example:8080/", "listener": f"http://127.0.0.1:{port}/"}
        rows = outcomes(plan, contact="test@example.org")
    assert {row["reason"] for row in rows.values()} == {"address_not_public"}
    assert wire.reached == []
