r"""Patterns as Hugging Face's pre-tokenizers: their libraries cut as we do, whoever wrote the expression."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import regex
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from webtext.base.errors import WebtextError
from webtext.tokenizer.formats.pre_tokenizers import byte_level, pattern_of, pre_tokenizer_of
from webtext.tokenizer.patterns.limits import check_pattern
from webtext.tokenizer.patterns.named import cut
from webtext.tokenizer.vocabulary import byte_characters

from .peers import RULES
from .test_format_shapes import split


def theirs(pre_tokenizer: dict[str, Any], text: str) -> list[str]:
    """Return the pieces that `tokenizers` cuts a text into."""
    whole = {"version": "1.0", "pre_tokenizer": pre_tokenizer, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    cutter = tokenizers.Tokenizer.from_str(json.dumps(whole)).pre_tokenizer
    table = byte_characters()[0]
    return [bytes(table[character] for character in piece).decode() for piece, _ in cutter.pre_tokenize_str(text)]


def foreign(expression: str) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": [split(expression), byte_level(use_regex=False)]}


@pytest.mark.parametrize(
    ("pattern", "oniguruma"),
    [
        (r"\p{N}{1,3}+|a", r"(?>\p{N}{1,3})|a"),
        (r"(?:ab|[}+{1,3}+]){2}+x", r"(?>(?:ab|[}+{1,3}+]){2})x"),
        (r"a(b(c)){,2}+\{1,3}+", r"a(?>(b(c)){,2})\{1,3}+"),
        (r"\s++$|^x|\$\^[$^]|y\Z", r"\s++(?=\n?\z)|\Ax|\$\^[$^]|y\z"),
        (r"a{1,3}+{2}", r"(?>a{1,3}){2}"),
        (r"(?P<P>s)(?is-i:.)s", r"(?<P>s)(?im-i:.)s"),
    ],
)
def test_syntax_with_another_meaning_is_translated(pattern: str, oniguruma: str) -> None:
    assert pre_tokenizer_of(pattern)["pretokenizers"][0]["pattern"]["Regex"] == oniguruma


def test_a_foreign_possessive_interval_is_a_repeated_one() -> None:
    """A tokenizer.json with tiktoken's cl100k expression cuts differently from tiktoken; we cut like the former."""
    cl100k, text = RULES[1].tiktoken, "1234567 ab\n\n  x \n"
    assert theirs(foreign(cl100k), text)[0] == "1234567"
    pattern, _ = pattern_of(foreign(cl100k), "x")
    assert list(cut(pattern, text)) == theirs(foreign(cl100k), text)
    assert list(cut(cl100k, text))[0] == "123"
    assert theirs(pre_tokenizer_of(cl100k), text) == list(cut(cl100k, text))


def test_a_foreign_flag_for_dots_that_match_line_ends_is_translated() -> None:
    pattern, _ = pattern_of(foreign("(?m:a.)"), "x")
    assert list(cut(pattern, "a\nam^")) == theirs(foreign("(?m:a.)"), "a\nam^") == ["a\n", "am", "^"]


def test_an_expression_equal_to_a_patterns_name_is_an_expression() -> None:
    assert pattern_of(foreign("gpt2"), "x") == ("(?:gpt2)", False)


ATOMS = ["a", "b", "1", r"\n", r"\p{N}", r"[ab]", r"[^a\n]", r"\s", " ", "."]
quantified = st.tuples(
    st.sampled_from(ATOMS), st.sampled_from(["", "{1,2}+", "{2}+", "{1,3}", "+", "*+", "?", "++", "+?"])
)
sequences = st.recursive(
    quantified.map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["{1,2}+", "{2}+", "+", "?", ""])).map(lambda two: f"(?:{two[0]}){two[1]}"),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join).map("({})".format),
    ),
    max_leaves=5,
)
anchored = st.tuples(st.sampled_from(["", "", "^"]), sequences, st.sampled_from(["", "", "$", r"\Z"])).map("".join)
expressions = st.lists(anchored, min_size=1, max_size=3).map("|".join)
texts = st.lists(st.text("ab1 \n", max_size=12), min_size=1, max_size=6)


def matches_nothing(expression: str) -> bool:
    """Return whether the expression can match nothing: engines continue differently after an empty match."""
    return any(
        regex.compile(expression).match(text, place) is not None and not regex.compile(expression).match(text, place)[0]
        for text in ("", "a\n", "b1 \n", "\n\na")
        for place in range(len(text) + 1)
    )


def is_accepted(check: Callable[[], object]) -> bool:
    """Return whether an expression isn't rejected for its possible cost (test_pattern_limits.py)."""
    try:
        check()
    except WebtextError:
        return False
    return True


@settings(deadline=None, max_examples=50)
@given(expression=expressions, texts=texts)
def test_tokenizers_cuts_like_us_with_our_expressions(expression: str, texts: list[str]) -> None:
    assume(is_accepted(lambda: check_pattern(expression)))
    assume(not matches_nothing(expression))
    pre_tokenizer = pre_tokenizer_of(expression)
    for text in texts:
        assert theirs(pre_tokenizer, text) == list(cut(expression, text))


@settings(deadline=None, max_examples=50)
@given(expression=expressions, texts=texts)
def test_we_cut_like_tokenizers_with_others_expressions(expression: str, texts: list[str]) -> None:
    assume(is_accepted(lambda: pattern_of(foreign(expression), "x")))
    pattern, _ = pattern_of(foreign(expression), "x")
    assume(not matches_nothing(pattern))
    for text in texts:
        assert list(cut(pattern, text)) == theirs(foreign(expression), text)
