"""E-mail addresses and public IP addresses to placeholders, as FineWeb did before it was published (Penedo et al. 2024).

    email@example.com   for an e-mail address: RFC 5321's form, with or without a domain that exists
    192.0.2.1           for a public IPv4 address: of the range that RFC 5737 keeps for documentation

A placeholder is left as it is, so scrubbing twice is scrubbing once. Every address gets the same one: FineWeb's code
takes turns among several, so that its texts depend on which documents the process saw before.
"""

from __future__ import annotations

import ipaddress
import re

EMAIL = "email@example.com"
IP = "192.0.2.1"
MAX_LOCAL_PART = 64  # RFC 5321, 4.5.3.1.1
MAX_DOMAIN = 255  # RFC 5321, 4.5.3.1.2

# Tried at each '@' and bounded on both sides of it, so a run of a million letters costs nothing for want of one.
_LOCAL_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_!#$%&'*+/=?^`{|}~-.")
_DOMAIN = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?(?![\w-])", re.I | re.A
)
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)", re.ASCII)
_NOT_PUBLIC = [
    ipaddress.IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
]
"""IANA's special-purpose ranges, multicast and reserved; Python's own notion changes with its version."""


def scrub(text: str) -> tuple[str, int]:
    """The text with placeholders, and how many addresses gave way; idempotent, linear in the length of `text`.

    >>> scrub("Ask ann.lee@mail.example.org, or 8.8.8.8 (not 10.0.0.1).")
    ('Ask email@example.com, or 192.0.2.1 (not 10.0.0.1).', 2)
    """
    text, n_emails = _scrub_emails(text)
    n_addresses = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal n_addresses
        if not _is_public(match[0]):
            return match[0]
        n_addresses += 1
        return IP

    text = _IPV4.sub(replaced, text)
    return text, n_emails + n_addresses


def _scrub_emails(text: str) -> tuple[str, int]:
    pieces: list[str] = []
    done = n_emails = 0
    at = text.find("@")
    while at >= 0:
        start, end = _start_of_local_part(text, done, at), _end_of_domain(text, at)
        if start < at < end:
            n_emails += text[start:end] != EMAIL
            pieces += text[done:start], EMAIL
            done = end
        at = text.find("@", max(at + 1, done))
    return "".join([*pieces, text[done:]]), n_emails


def _start_of_local_part(text: str, done: int, at: int) -> int:
    """Where the local part before the '@' begins, not before `done`; `at` when there is none or it is no valid one."""
    start = at
    while start > max(done, at - MAX_LOCAL_PART) and text[start - 1] in _LOCAL_CHARACTERS:
        start -= 1
    if start > 0 and text[start - 1] in _LOCAL_CHARACTERS:
        return at  # longer than may be, or grown together with the address before
    while start < at and text[start] == ".":
        start += 1
    local_part = text[start:at]
    return at if ".." in local_part or local_part.endswith(".") else start


def _end_of_domain(text: str, at: int) -> int:
    """Where the domain after the '@' ends; `at` when there is none."""
    match = _DOMAIN.match(text, at + 1, at + 1 + MAX_DOMAIN)
    return match.end() if match is not None and match.end() < at + 1 + MAX_DOMAIN else at


def _is_public(address: str) -> bool:
    try:
        parsed = ipaddress.IPv4Address(address)
    except ValueError:  # a number above 255, or a leading zero
        return False
    return not any(parsed in network for network in _NOT_PUBLIC)
