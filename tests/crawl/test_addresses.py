"""Which addresses may be connected to, and how a name is resolved to one of them."""

from __future__ import annotations

import asyncio
import socket

import pytest

from webtext.base.errors import ConfigError
from webtext.crawl.fetch.client.addresses import AddressRule, AllowedAddress, is_loopback_host
from webtext.crawl.fetch.client.resolver import Names, PinnedResolver, guarded_socket
from webtext.crawl.pages.visit import FetchRefused

# fmt: off
FORBIDDEN = [
    "127.0.0.1", "127.255.255.255", "::1", "0.0.0.0", "::", "10.0.0.1", "10.255.255.255", "172.16.0.1",
    "172.31.255.254", "192.168.0.1", "169.254.169.254", "100.64.0.1", "100.127.255.254", "192.0.0.8", "198.18.0.1",
    "198.19.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
    "255.255.255.255", "192.88.99.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::10.0.0.1", "::ffff:0:10.0.0.1",
    "64:ff9b::a00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2002:a00:1::1", "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0",
    "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1",
]
PUBLIC = [
    "8.8.8.8", "1.1.1.1", "100.63.255.254", "100.128.0.1", "172.15.255.255", "172.32.0.1", "192.0.1.1",
    "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "64:ff9c::1", "2001:4860:4860::8888",
    "2400:cb00::1",
]
# fmt: on


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert AddressRule().refusal(address, 80) == "address_not_public"


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_connected_to(address: str) -> None:
    assert AddressRule().refusal(address, 443) is None


def test_text_that_is_not_an_address_is_refused() -> None:
    assert AddressRule().refusal("example.com", 80) == "address_not_public"


@pytest.mark.parametrize("port", [1, 21, 22, 25, 81, 110, 993, 2375, 3306, 6379, 6667, 9200, 11211, 27017])
def test_a_port_of_another_service_is_refused(port: int) -> None:
    assert AddressRule().refusal("8.8.8.8", port) == "port_not_web"


@pytest.mark.parametrize("port", [80, 443, 8000, 8080, 8443, 3000, 65535])
def test_a_port_of_web_servers_is_not_refused(port: int) -> None:
    assert AddressRule().refusal("8.8.8.8", port) is None


@pytest.mark.parametrize(
    ("text", "opens", "stays_closed"),
    [
        ("127.0.0.1", [("127.0.0.1", 80), ("127.0.0.1", 22)], [("127.0.0.2", 80)]),
        ("127.0.0.1:8080", [("127.0.0.1", 8080)], [("127.0.0.1", 80), ("127.0.0.1", 6379)]),
        ("10.0.0.0/8", [("10.200.0.1", 443)], [("11.0.0.1", 22), ("127.0.0.1", 443)]),
        ("10.0.0.0/8:99", [("10.200.0.1", 99)], [("10.200.0.1", 80)]),
        ("::1", [("::1", 80)], [("::2", 80)]),
        ("[::1]:8080", [("::1", 8080)], [("::1", 80)]),
        ("[fd00::/8]:80", [("fd12::1", 80)], [("fd12::1", 81), ("fc00::1", 80)]),
        ("8.8.8.8:22", [("8.8.8.8", 22)], [("8.8.8.8", 25)]),
    ],
)
def test_allow_address_opens_exactly_that(
    text: str, opens: list[tuple[str, int]], stays_closed: list[tuple[str, int]]
) -> None:
    rule = AddressRule((AllowedAddress.parse(text),))
    assert [rule.refusal(*each) for each in opens] == [None] * len(opens)
    assert None not in [rule.refusal(*each) for each in stays_closed]


@pytest.mark.parametrize(
    "text", ["", "example.com", "10.0.0.1/8", "127.0.0.1:0", "127.0.0.1:70000", "[::1", "1.2.3.4:x"]
)
def test_allow_address_rejects_text_that_is_not_an_address(text: str) -> None:
    with pytest.raises(ConfigError, match="--allow-address"):
        AllowedAddress.parse(text)


def test_without_a_contact_only_this_machine_is_open() -> None:
    rule = AddressRule((AllowedAddress.parse("127.0.0.0/8"), AllowedAddress.parse("10.0.0.1")), has_contact=False)
    assert rule.refusal("127.0.0.3", 80) is None
    assert rule.refusal("8.8.8.8", 80) == rule.refusal("10.0.0.1", 80) == "contact_missing"


def test_loopback_hosts_are_recognized_by_name_and_by_number() -> None:
    hosts = ("LOCALHOST.", "127.1.2.3", "localhost.example.com", "10.0.0.1")
    assert list(map(is_loopback_host, hosts)) == [True, True, False, False]


def test_a_name_is_looked_up_once_so_a_second_answer_cannot_differ() -> None:
    answers = iter([["8.8.8.8"], ["127.0.0.1"]])

    async def look_up(_: str) -> list[str]:
        return next(answers)

    async def ask() -> list[str]:
        resolver = PinnedResolver(AddressRule(), look_up)
        first = await asyncio.gather(*(resolver.address("rebind.example", 80) for _ in range(5)))
        return first + [(await resolver.resolve("rebind.example", 80))[0]["host"]]

    assert asyncio.run(ask()) == ["8.8.8.8"] * 6


def test_the_next_address_is_pinned_on_request() -> None:
    async def look_up(_: str) -> list[str]:
        return ["8.8.8.8", "8.8.4.4"]

    async def ask() -> list[str]:
        resolver = PinnedResolver(AddressRule(), look_up)
        first = await resolver.address("a.example", 80)
        assert resolver.next_address("a.example")
        assert not resolver.next_address("b.example")
        return [first, await resolver.address("a.example", 80)]

    assert asyncio.run(ask()) == ["8.8.8.8", "8.8.4.4"]


def test_no_socket_is_made_for_a_forbidden_address() -> None:
    make = guarded_socket(AddressRule())
    with pytest.raises(FetchRefused, match="address_not_public"):
        make((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80)))
    with pytest.raises(FetchRefused, match="address_not_public"):
        make((socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("::ffff:127.0.0.1", 80, 0, 0)))
    with make((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.8.8", 80))) as made:
        assert made.type == socket.SOCK_STREAM


@pytest.mark.parametrize("host", ["", "a" * 64 + ".example", ".".join(["a" * 60] * 5), "nul\0.example"])
@pytest.mark.usefixtures("names")
def test_text_that_is_not_a_host_name_raises_os_error(host: str) -> None:
    with pytest.raises(socket.gaierror) as error:
        asyncio.run(Names().look_up(host))
    assert error.value.errno == socket.EAI_NONAME
