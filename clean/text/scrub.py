"""Replaces e-mail addresses and public IP addresses with placeholders, as FineWeb did (Penedo et al. 2024).

    email@example.com   for an e-mail address in RFC 5321's form; its domain need not exist
    192.0.2.1           for a public IPv4 address; it is in a range that RFC 5737 reserves for documentation

Placeholders are left alone, so scrubbing is idempotent. All addresses get the same placeholder: FineWeb's code rotates
among several, so its texts depend on which documents the process saw earlier.
"""

from __future__ import annotations

import ipaddress
import re

EMAIL = "email@example.com"
IP = "192.0.2.1"
MAX_LOCAL_PART = 64  # RFC 5321, 4.5.3.1.1
MAX_DOMAIN = 255  # RFC 5321, 4.5.3.1.2

# Matched only around an '@' and bounded on both sides, so a million letters without an '@' cost nothing.
_LOCAL_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_!#$%&'*+/=?^`{|}~-.")
_DOMAIN = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?(?![\w-])", re.I | re.A
)
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)", re.ASCII)
_RANGES = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24"
    " 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
)
_NOT_PUBLIC = list(map(ipaddress.IPv4Network, _RANGES.split()))
"""IANA's special-purpose ranges, multicast and reserved. Python's `is_global` changes between versions."""


def scrub(text: str) -> tuple[str, int]:
    """Return the text with placeholders and the number of replaced addresses. Idempotent, in linear time.

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
    """Return where the local part before the '@' begins, at `done` or later; `at` if it isn't valid."""
    start = at
    while start > max(done, at - MAX_LOCAL_PART) and text[start - 1] in _LOCAL_CHARACTERS:
        start -= 1
    if start > 0 and text[start - 1] in _LOCAL_CHARACTERS:
        return at  # too long, or joined to the previous address
    while start < at and text[start] == ".":
        start += 1
    local_part = text[start:at]
    return at if ".." in local_part or local_part.endswith(".") else start


def _end_of_domain(text: str, at: int) -> int:
    """Return where the domain after the '@' ends; `at` if there is none."""
    match = _DOMAIN.match(text, at + 1, at + 1 + MAX_DOMAIN)
    return match.end() if match is not None and match.end() < at + 1 + MAX_DOMAIN else at


def _is_public(address: str) -> bool:
    try:
        parsed = ipaddress.IPv4Address(address)
    except ValueError:  # a number above 255, or a leading zero
        return False
    return not any(parsed in network for network in _NOT_PUBLIC)
