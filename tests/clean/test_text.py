"""The text of a document: its form, and the addresses that scrubbing replaces."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webtext.clean.text.clean_text import clean_text
from webtext.clean.text.scrub import EMAIL, IP, scrub

ANY_TEXT = st.text(st.characters(codec=None) | st.sampled_from("\r\n\t \x00\x0b\x0c\x85\u2028\ud83d\ude00\xa0"))


def test_line_ends_blanks_and_empty_lines_follow_the_rule_and_indentation_is_kept() -> None:
    assert clean_text("\n\nif x:\r\n\treturn  \t\r\r\r\n  y\u2028z\x0c") == "if x:\n\treturn\n\n  y\nz"


@given(ANY_TEXT)
@example("\ud83d\ude00 \ud83d x")
def test_any_string_becomes_a_valid_document_text_and_cleaning_is_idempotent(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode("utf-8")
    assert not any(ord(c) < 0x20 and c not in "\n\t" for c in cleaned)
    assert "\n\n\n" not in cleaned
    assert cleaned == cleaned.strip("\n")
    assert all(line == line.rstrip() for line in cleaned.split("\n"))
    assert clean_text(cleaned) == cleaned


@given(st.text(st.characters(categories=("L", "M", "N", "P", "S"))))
def test_letters_marks_and_symbols_are_never_changed(text: str) -> None:
    assert clean_text(text) == text


def test_surrogates_that_make_a_pair_become_the_character_and_lone_ones_are_replaced() -> None:
    assert clean_text("\ud83d\ude00") == "\U0001f600"
    assert clean_text("a\ud83db") == "a\ufffdb"


@pytest.mark.usefixtures("linear_time")
def test_a_million_blanks_inside_a_line_take_linear_time() -> None:
    assert clean_text("a" + " " * 1_000_000 + "b").endswith("b")


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


PARTS = (*"@@8-+_ é\n", "a", "ann", ".", "..", "example", ".org", "8.8.8.8", EMAIL, IP, "a" * 64)


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
