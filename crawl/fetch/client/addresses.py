"""Which addresses may be connected to: only public addresses of other machines, on ports that web servers use.

Python's `ipaddress.is_global` accepts NAT64, 6to4, IPv4-compatible, multicast and site-local addresses. So the
forbidden networks are listed here, following IANA's special-purpose registries (RFC 6890) and the registries of
deprecated transition prefixes. The user can open denied addresses one by one: `--allow-address 127.0.0.1:8080`.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from dataclasses import dataclass

from webtext.base.errors import ConfigError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

DENIED_NETWORKS: tuple[IPNetwork, ...] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, cloud metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        "::/96",  # unspecified, loopback, IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # local NAT64
        "100::/8",  # discard-only and dummy prefixes
        "2001::/23",  # IETF protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fc00::/7",  # unique local
        "fe80::/10",  # link-local
        "fec0::/10",  # site-local
        "ff00::/8",  # multicast
    )
)

WEB_PORTS_BELOW_1024 = frozenset({80, 443})
SERVICE_PORTS = frozenset(
    # From 1024 on: WHATWG Fetch, "port blocking"; then databases, caches, queues and daemons that obey plain text.
    [1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080]
    + [1433, 1521, 2375, 2379, 3306, 3389, 5432, 5672, 5900, 5984, 6379, 9042, 9200, 9300, 11211, 27017]
)

# Reasons for refusing a connection, as counted in the fetch log (`crawl/pages/reasons.py`).
ADDRESS_NOT_PUBLIC = "address_not_public"
PORT_NOT_WEB = "port_not_web"
CONTACT_MISSING = "contact_missing"

_ALLOWED = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<plain>[^\[\]]+?))(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class AllowedAddress:
    """An address or network that the user opened, on all ports or on one."""

    network: IPNetwork
    port: int | None

    @classmethod
    def parse(cls, text: str) -> AllowedAddress:
        """Parse `ADDRESS[/BITS][:PORT]`; an IPv6 address with a port is in brackets, together with its bits.

        >>> AllowedAddress.parse("127.0.0.0/8:8080")
        AllowedAddress(network=IPv4Network('127.0.0.0/8'), port=8080)
        >>> AllowedAddress.parse("[::1]:80")
        AllowedAddress(network=IPv6Network('::1/128'), port=80)
        >>> AllowedAddress.parse("fd00::/8")
        AllowedAddress(network=IPv6Network('fd00::/8'), port=None)
        """
        match = None if text.count(":") > 1 and "[" not in text else _ALLOWED.fullmatch(text)
        address = (match["v6"] or match["plain"]) if match else text
        port = int(match["port"]) if match and match["port"] else None
        try:
            network = ipaddress.ip_network(address)
        except ValueError:
            raise ConfigError(
                f"--allow-address '{text}' is not ADDRESS[/BITS][:PORT]", "e.g. 127.0.0.1:8080, 10.1.0.0/16, [::1]:80"
            ) from None
        if port is not None and not 0 < port < 65536:
            raise ConfigError(f"--allow-address '{text}': there is no port {port}")
        return cls(network, port)

    def covers(self, address: IPAddress, port: int) -> bool:
        return address in self.network and self.port in (None, port)


class AddressRule:
    """Decides whether one address and port may be used. Without a contact, only opened loopback addresses may."""

    def __init__(self, allowed: tuple[AllowedAddress, ...] = (), *, has_contact: bool = True) -> None:
        self._allowed = allowed
        self._has_contact = has_contact
        self.refusal = functools.lru_cache(maxsize=65536)(self._refusal)

    def _refusal(self, address: str, port: int) -> str | None:
        """Return why `port` of `address` (as returned by getaddrinfo) is refused; None if it is allowed.

        >>> AddressRule().refusal("64:ff9b::a00:1", 80), AddressRule().refusal("8.8.8.8", 443)
        ('address_not_public', None)
        """
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return ADDRESS_NOT_PUBLIC
        opened = any(allowed.covers(parsed, port) for allowed in self._allowed)
        if not self._has_contact and not parsed.is_loopback:
            return CONTACT_MISSING
        if opened:
            return None
        if any(parsed in network for network in DENIED_NETWORKS) or is_own_address(parsed):
            return ADDRESS_NOT_PUBLIC
        if port in SERVICE_PORTS or (port < 1024 and port not in WEB_PORTS_BELOW_1024):
            return PORT_NOT_WEB
        return None


def is_own_address(address: IPAddress) -> bool:
    """Whether the address belongs to an interface of this machine, whose firewall treats such connections as local.

    The system is asked for the source address of a datagram to that address; none is sent.
    """
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ipaddress.ip_address(probe.getsockname()[0]) == address
    except OSError:  # no route to the address
        return False


def is_loopback_host(host: str) -> bool:
    """Whether a URL's host (without brackets) is this machine; links that stay on it need no contact.

    >>> [is_loopback_host(host) for host in ("127.0.0.8", "::1", "localhost", "a.localhost", "example.com")]
    [True, True, True, True, False]
    """
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
