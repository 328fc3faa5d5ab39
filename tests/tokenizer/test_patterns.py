"""GPT-2's rule: no merge crosses a character category, except over one leading space."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.tokenizer import Tokenizer, _bpe
from webtext.tokenizer.patterns import CL100K_REGEX, GPT2_REGEX, O200K_REGEX, cut, pattern_name, unicode_version

from .conftest import TIKTOKEN_GPT2_PATTERN

TRICKY = "aZé中ǅ०9Ⅷ²①_.'’!́ \t\n\r\v\f\x1c\x85\xa0\u1680\u180e\u2003\u2028\u200b\u3000\ufeff\U0001f600stmdlrev"


def pieces(text: str) -> list[str]:
    return [piece.decode() for piece in _bpe.split(text)]


def test_merge_never_crosses_character_category() -> None:
    """The paper's example: `dog` occurs as `dog.`, `dog!` and `dog?`, and must not give a token for each."""
    tokenizer = Tokenizer.train(["dog. dog! dog? dog1 dog." * 50], vocab_size=1000, special_tokens=[])
    tokens = {tokenizer.decode([id_]) for id_ in range(tokenizer.vocab_size)}
    assert {"dog", " dog"} <= tokens
    assert not {token for token in tokens if "dog" in token} - {"dog", " dog"}


def test_one_leading_space_may_join_any_category() -> None:
    tokenizer = Tokenizer.train([" the 12 !!" * 50], vocab_size=1000, special_tokens=[])
    assert [len(tokenizer.encode(text)) for text in (" the", " 12", " !!")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don't DON'T don’t", ["don", "'t", " DON", "'", "T", " don", "’", "t"]),
        ("we'll've'd '''s", ["we", "'ll", "'ve", "'d", " '''", "s"]),
        ("a  b", ["a", " ", " b"]),
        ("a \n b", ["a", " \n", " b"]),
        ("a\n\nb  ", ["a", "\n", "\n", "b", "  "]),
        ("a\tb", ["a", "\t", "b"]),
        ("x123y", ["x", "123", "y"]),
        ("Ⅷ²①", ["Ⅷ²①"]),
        ("a\x1cb", ["a", "\x1c", "b"]),
        ("हिन्दी", ["ह", "ि", "न", "्", "द", "ी"]),
        ("\xa0\xa0y", ["\xa0", "\xa0", "y"]),
        ("", []),
        (" ", [" "]),
        ("'", ["'"]),
        ("'r", ["'", "r"]),
    ],
)
def test_pieces_of_chosen_texts(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected
    assert list(cut("gpt2", text)) == expected


@given(st.text(alphabet=TRICKY, max_size=30) | st.text(max_size=30))
def test_native_scanner_equals_the_regular_expression(text: str) -> None:
    assert pieces(text) == list(cut("gpt2", text))


@given(st.binary(max_size=20))
def test_any_bytes_are_cut_as_python_decodes_them(data: bytes) -> None:
    expected = [p.encode("utf-8", "surrogateescape") for p in cut("gpt2", data.decode("utf-8", "surrogateescape"))]
    assert _bpe.split(data) == expected


def test_spellings_of_the_gpt2_rule_are_known() -> None:
    assert pattern_name(GPT2_REGEX) == pattern_name(TIKTOKEN_GPT2_PATTERN) == pattern_name("gpt2") == "gpt2"
    assert pattern_name(r"\w+") == r"\w+"


def test_unicode_version_is_pinned_for_gpt2_and_named_for_others() -> None:
    assert unicode_version("gpt2") == "16.0.0"
    assert unicode_version(r"\w+").startswith("regex ")


def test_later_patterns_are_those_of_tiktoken() -> None:
    from tiktoken_ext import openai_public

    source = openai_public.__file__
    with open(source, encoding="utf-8") as file:
        assert CL100K_REGEX in file.read()
    text = "Hello World's camelCase HTTPServer 12345 it'S\r\n\n  x += 1;// ok\n"
    letters = list(cut(O200K_REGEX, text))
    assert "".join(letters) == text
    assert letters[:6] == ["Hello", " World's", " camel", "Case", " HTTPServer", " "]


def test_what_a_pattern_does_not_match_is_kept_as_a_piece() -> None:
    assert list(cut(r"[a-z]+", "ab, cd!")) == ["ab", ", ", "cd", "!"]


@given(st.text(max_size=20))
def test_pieces_of_any_pattern_join_to_the_text(text: str) -> None:
    assert "".join(cut(r"x*|\d+", text)) == text


def test_a_broken_pattern_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"'\(' is neither 'gpt2' nor a regular expression"):
        pattern_name("(")
