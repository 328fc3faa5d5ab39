from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webtext.clean.text.clean_text import clean_text

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
