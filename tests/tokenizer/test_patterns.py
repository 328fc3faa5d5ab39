"""GPT-2's rule: no merge crosses a character category, except over one leading space."""

from __future__ import annotations

import pickle
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer, _bpe
from webtext.tokenizer.patterns.named import CL100K_REGEX, REGEXES, checked_version, cut, pattern_name
from webtext.tokenizer.patterns.pinned import pinned

from .conftest import native_pieces
from .peers import GPT2_RULE

TRICKY = (
    "aZé中ǅ०9Ⅷ²①_.'’!́ \t\n\r\v\f\x1c\x85\xa0\u1680\u180e\u2003\u2028\u200b\u3000\ufeff\U0001f600stmdlrevſSLʰ/\u0903"
)


def in_category(*names: str) -> Callable[[str], bool]:
    return lambda character: unicodedata.category(character).startswith(names)


MEMBERS: dict[str, Callable[[str], bool]] = {
    r"\p{L}": in_category("L"),
    r"\P{L}": lambda character: not in_category("L")(character),
    r"\p{Lu}": in_category("Lu"),
    r"\p{^Ll}": lambda character: not in_category("Ll")(character),
    r"\p{Lt}": in_category("Lt"),
    r"\p{Lm}\p{Lo}": in_category("Lm", "Lo"),
    r"\p{M}": in_category("M"),
    r"\pN": in_category("N"),
    r"\p{S}": in_category("S"),
    r"\p{P}": in_category("P"),
    r"\d": in_category("Nd"),
    r"\D": lambda character: not in_category("Nd")(character),
    r"\s": lambda character: character.isspace() and character != "\x1c",
    r"\S": lambda character: not character.isspace() or character == "\x1c",
    "a": lambda character: character == "a",
    "é-中": lambda character: "é" <= character <= "中",
}
"""Members of a set and their meaning; TRICKY's characters are older than any version used here."""


def pieces(text: str, pattern: str = "gpt2", version: str = "16.0.0") -> list[str]:
    return [piece.decode() for piece in native_pieces(text, pattern, version)]


def test_merge_never_crosses_character_category() -> None:
    """The paper's example: `dog` occurs as `dog.`, `dog!` and `dog?`, which must not become separate tokens."""
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


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("cl100k", "we'LL don'T 'ſx", ["we", "'LL", " don", "'T", " '", "ſx"]),  # the blank takes the apostrophe
        ("cl100k", "x'ſx", ["x", "'ſ", "x"]),  # the long s is an s if case is ignored
        ("cl100k", "12345\tx(y", ["123", "45", "\tx", "(y"]),
        ("cl100k", "a!\r\n\r\n  b", ["a", "!\r\n\r\n", " ", " b"]),
        ("cl100k", "a \n\n  b", ["a", " \n\n", " ", " b"]),
        ("cl100k", "a\n  ", ["a", "\n  "]),
        ("llama3", "a\n  ", ["a", "\n", "  "]),
        ("llama3", "12345", ["123", "45"]),
        ("qwen2", "12345", ["1", "2", "3", "4", "5"]),
        ("qwen2", "it'S", ["it", "'S"]),
        ("o200k", "camelCase HTTPServer", ["camel", "Case", " HTTPServer"]),
        ("o200k", "it's IT'S x'ſ", ["it's", " IT'S", " x'ſ"]),
        (
            "o200k",
            "中Z Z中a",
            ["中", "Z", " Z中a"],
        ),  # a letter without case counts as lower case if no lower case follows
        ("o200k", "\u0301ZZ \u0301a !\u0301", ["\u0301", "ZZ", " \u0301a", " !\u0301"]),
        ("o200k", "x;//\n/y", ["x", ";//\n/", "y"]),
    ],
)
def test_pieces_of_chosen_texts_by_later_patterns(pattern: str, text: str, expected: list[str]) -> None:
    assert pieces(text, pattern) == list(cut(pattern, text)) == expected


@pytest.mark.parametrize("pattern", REGEXES)
@given(text=st.text(alphabet=TRICKY, max_size=30) | st.text(max_size=30))
def test_native_scanners_equal_the_regular_expressions(pattern: str, text: str) -> None:
    assert pieces(text, pattern) == list(cut(pattern, text))


# Names


def test_patterns_are_known_by_name_and_by_known_expressions() -> None:
    assert [pattern_name(regex) for regex in REGEXES.values()] == list(REGEXES)
    assert [pattern_name(name) for name in ("r50k", "p50k", GPT2_RULE.tiktoken)] == ["gpt2"] * 3
    assert pattern_name(CL100K_REGEX.replace("{1,3}+", "{1,3}")) == "cl100k"
    assert pattern_name(r"\w+") == r"\w+"


def test_later_patterns_are_those_of_tiktoken() -> None:
    """Compare with tiktoken's list of OpenAI's encodings, without downloads."""

    def no_ranks(*args: object, **kwargs: object) -> dict[bytes, int]:
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", no_ranks)
        patch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", no_ranks)
        names = {
            encoding: pattern_name(make()["pat_str"]) for encoding, make in openai_public.ENCODING_CONSTRUCTORS.items()
        }
    assert names == {
        "gpt2": "gpt2",
        "r50k_base": "gpt2",
        "p50k_base": "gpt2",
        "p50k_edit": "gpt2",
        "cl100k_base": "cl100k",
        "o200k_base": "o200k",
        "o200k_harmony": "o200k",
    }


# Unicode versions

LETTER_SINCE = {
    "14.0.0": "\u0870",
    "15.0.0": "\U0001df25",
    "15.1.0": "\U0002ebf0",
    "16.0.0": "\ua7da",
    "17.0.0": "\u088f",
}
"""A letter added by each version, from Unicode's DerivedAge."""


@pytest.mark.parametrize("version", LETTER_SINCE)
@pytest.mark.parametrize(
    "pattern", ["gpt2", r"\p{L}+|\P{L}+", *(pytest.param(name, marks=pytest.mark.slow) for name in list(REGEXES)[1:])]
)
def test_a_letter_is_one_from_its_version_on(pattern: str, version: str) -> None:
    for since, letter in LETTER_SINCE.items():
        cuts = list(cut(pattern, f"1{letter}.", version))
        assert (cuts == ["1", letter, "."]) == (since <= version), (since, version)
        assert pattern not in REGEXES or pieces(f"1{letter}.", pattern, version) == cuts


def test_categories_of_this_pythons_version_are_those_of_unicodedata() -> None:
    version = unicodedata.unidata_version
    if version not in _bpe.UNICODE_VERSIONS:
        version = "14.0.0"  # characters changed category only in corrections, and none was removed
        letters = {code for first, last in _bpe.character_ranges("L", version) for code in range(first, last + 1)}
        assert all(unicodedata.category(chr(code))[0] == "L" for code in letters)
        return
    theirs = np.array([unicodedata.category(chr(code)) for code in range(0x110000)])
    for category in ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S"):
        ours = np.zeros(0x110000, bool)
        for first, last in _bpe.character_ranges(category, version):
            ours[first : last + 1] = True
        assert (ours == np.char.startswith(theirs, category)).all(), category


def test_training_and_files_keep_the_chosen_version(tmp_path: Path) -> None:
    """U+A7DA is a letter since 16.0: before it, nothing merges across it."""
    texts = ["a\ua7da " * 9]
    new, old = (
        Tokenizer.train(texts, vocab_size=265, pattern="llama3", unicode_version=v) for v in ("16.0.0", "15.1.0")
    )
    assert (new.unicode_version, old.unicode_version) == ("16.0.0", "15.1.0")
    assert len(new.encode("a\ua7da")) == 1 < len(old.encode("a\ua7da"))
    assert new.hash != Tokenizer(replace(new._vocabulary, unicode_version="15.1.0")).hash
    old.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.pattern, again.unicode_version, again.hash) == ("llama3", "15.1.0", old.hash)
    assert pickle.loads(pickle.dumps(again)).unicode_version == "15.1.0"
    with pytest.raises(InputError, match=r"can't name the Unicode version, which is 15\.1\.0\nsave as tokenizer.json"):
        old.save(tmp_path / "ranks.tiktoken")
    with pytest.raises(InputError, match="can't store the pattern and the Unicode version"):
        Tokenizer(replace(old._vocabulary, pattern="gpt2")).save(tmp_path / "vocab.json")


def test_an_unknown_version_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no tables of Unicode 9\.0\.0\nexpected 14\.0\.0, 15\.0\.0"):
        Tokenizer.train(["a"], vocab_size=257, unicode_version="9.0.0")
    with pytest.raises(ConfigError, match="uses classes that the tables of Unicode 15.0.0 don't contain"):
        Tokenizer.train(["a"], vocab_size=257, pattern=r"\w+|\W+", unicode_version="15.0.0")


def test_an_expression_uses_the_pinned_version_if_possible() -> None:
    assert checked_version(r"\p{L}+|[^\s\p{N}]") == checked_version("o200k") == "16.0.0"
    assert checked_version(r"\p{L}+", "17.0.0") == "17.0.0"
    assert checked_version(r"\w+").startswith("regex ")
    assert checked_version(r"\w+", "regex 2020.1.1").startswith("regex ")


# Other expressions


@pytest.mark.parametrize(
    ("expression", "is_pinned"),
    [
        (r"\p{L}\P{Lu}\p{^Nd}\pN\s\S\d\D", True),
        (r"[^\r\n\p{L}\P{N}\s-]+[]\]\p{M}][[:x]\p{S}", True),
        (r"(?i:'s|'t)?(?=\p{P})(?<x>a)(?:b)(?-i:c)(?m)\x41\u0042$", True),
        (r"\w", False),
        (r"\bx", False),
        (r"\p{Han}", False),
        (r"\p{Script=Greek}", False),
        (r"\X", False),
        (r"[[:alpha:]]", False),
        (r"(?i)\p{Lu}", False),
        (r"(?i:(a)[\p{Lu}])", False),
        (r"(?i:a)\p{Lu}", True),
        (r"(?x) \p{L} # [", False),
        (r"(?#[)\p{L}]", False),
        (r"(?V1)[\p{L}--a]", False),
    ],
)
def test_expressions_are_pinned_completely_or_not_at_all(expression: str, is_pinned: bool) -> None:
    spelled = pinned(expression, "16.0.0")
    assert (spelled is not None) == is_pinned
    regex.compile(spelled or expression)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(list(MEMBERS)), min_size=1, max_size=3), st.booleans())
def test_a_pinned_set_contains_what_its_members_mean(members: list[str], is_negated: bool) -> None:
    """Compared with `unicodedata`, because the `regex` module itself has errors with sets like [^\\p{L}\\P{L}]."""
    spelled = regex.compile(pinned(f"[{'^' * is_negated}{''.join(members)}]", "16.0.0"))
    for character in TRICKY:
        expected = any(MEMBERS[member](character) for member in members) != is_negated
        assert bool(spelled.fullmatch(character)) == expected, repr(character)


def test_white_space_equals_tiktokens_in_any_expression() -> None:
    assert list(cut(r"\s+|\S+", "a\x1c\x1db c")) == ["a\x1c\x1db", " ", "c"]


def test_text_that_a_pattern_does_not_match_is_kept_as_a_piece() -> None:
    assert list(cut(r"[a-z]+", "ab, cd!")) == ["ab", ", ", "cd", "!"]


@given(st.text(max_size=20))
def test_pieces_of_any_pattern_join_to_the_text(text: str) -> None:
    assert "".join(cut(r"x*|\d+", text)) == text


def test_a_broken_pattern_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"'\(' is neither a name nor a regular expression"):
        pattern_name("(")
