"""Scrubbing: placeholders replace e-mail and public IP addresses, and scrubbing is idempotent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.clean.text.scrub import EMAIL, IP, scrub


def test_addresses_in_a_sentence_are_replaced_and_counted() -> None:
    text = "Write to <Ann.Lee+news@mail.example.org>, bob@example.net or 8.8.8.8; at home it is 192.168.0.1."
    assert scrub(text) == (f"Write to <{EMAIL}>, {EMAIL} or {IP}; at home it is 192.168.0.1.", 3)


@pytest.mark.parametrize(
    "text",
    [
        "no address", "@example.org", "a@", "a@b", "a@b.1", "a..b@example.org", "a.@example.org", "a @ example.org",
        f"{'a' * 65}@example.org", f"a@{'b.' * 200}org", f"a@{'b' * 64}.org", "a@example.org_", EMAIL, IP,
        "10.0.0.1", "127.0.0.1", "172.16.9.9", "169.254.1.1", "198.51.100.7", "224.0.0.1", "255.255.255.255",
        "256.1.1.1", "8.8.8", "8.8.8.8.8", "v8.8.8.8", "8.8.8.8a", "08.8.8.8", "",
    ],
)  # fmt: skip
def test_text_that_is_not_a_public_address_is_kept(text: str) -> None:
    assert scrub(text) == (text, 0)


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("a@example.org.", f"{EMAIL}."),
        ("mailto:a@example.org?subject=x", f"mailto:{EMAIL}?subject=x"),
        ("é.a@example.org", f"é.{EMAIL}"),
        ("a@example.org@example.net", f"{EMAIL}@example.net"),
        ("a@example.org,b@example.org", f"{EMAIL},{EMAIL}"),
        ("(1.1.1.1)", f"({IP})"),
        ("http://1.1.1.1:80/", f"http://{IP}:80/"),
        ("1.1.1.1. 9.9.9.9", f"{IP}. {IP}"),
    ],
)
def test_addresses_end_where_they_end(text: str, scrubbed: str) -> None:
    assert scrub(text)[0] == scrubbed


PARTS = (
    "a",
    "ann",
    ".",
    "..",
    "@",
    "@",
    "example",
    ".org",
    "-",
    "+",
    "_",
    " ",
    "8",
    "8.8.8.8",
    "é",
    "\n",
    EMAIL,
    IP,
    "a" * 64,
)


@given(st.text() | st.lists(st.sampled_from(PARTS), max_size=30).map("".join))
def test_scrubbing_twice_is_scrubbing_once(text: str) -> None:
    scrubbed, n = scrub(text)
    assert scrub(scrubbed) == (scrubbed, 0)
    assert (scrubbed == text) == (n == 0)


@pytest.mark.usefixtures("linear_time")
@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, "a@" * 100_000, "a.b-" * 200_000 + "@", "8." * 200_000, "a@b." * 50_000]
)
def test_hostile_texts_are_scrubbed_in_linear_time(text: str) -> None:
    scrub(text)
