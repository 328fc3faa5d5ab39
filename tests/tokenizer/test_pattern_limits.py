"""Expressions that could take forever or differ elsewhere are rejected; published tokenizers' patterns are accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import regex
from hypothesis import assume, given, settings

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.patterns.limits import check_pattern
from webtext.tokenizer.patterns.named import REGEXES, pattern_name
from webtext.tokenizer.train.counts import PieceCounts

from .peers import RULES
from .test_format_shapes import byte_level, file_of, split
from .test_pre_tokenizers import expressions, is_accepted

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PUBLISHED = {
    **REGEXES,
    **{f"{rule.name} in tiktoken": rule.tiktoken for rule in RULES},
    "Phi-4": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "DeepSeek-V3": (
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "DeepSeek, digits": r"\p{N}{1,3}",
    "DeepSeek, CJK": r"[一-龥぀-ゟ゠-ヿ]+",
    "StarCoder": r"\d|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "digits from the right": r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))|\P{N}+",
    "byte strings": r"(?s:.)",
}
OTHERWISE = "uses syntax that other libraries read otherwise"  # which would change ids
HOSTILE = {
    r"(a|aa)+$": r"several ways: '\+' \(character 7\)",
    r"(a+)+$": "several ways",
    r"(?:\w+\s?)*x": "several ways",
    r"((a|aa){3}){3}": "several ways",
    r"(?:a|aa){40}b": "several ways",
    r"(?:a|aa){40}+b": "several ways",
    r"(?:a*?)*?b": "several ways",
    r"(?:(?:a|b)?c)+": "several ways",
    r"x|(?=(a|aa)+$)a": "several ways",
    r"(?>(?:a|aa)*b)": "several ways",
    r"(?R)": r"uses syntax that isn't allowed: '\(\?' \(character 1\)",
    r"a(?1)?(b)": "uses syntax that isn't allowed",
    r"(?P<x>a)(?&x)": "uses syntax that isn't allowed",
    r"(?P<x>a)(?P>x)": "uses syntax that isn't allowed",
    r"(a*)\1": r"uses syntax that isn't allowed: '\\\\1'",
    r"(?P<x>a*)(?P=x)": "uses syntax that isn't allowed",
    r"(?P<x>a*)\g<x>": "uses syntax that isn't allowed",
    r"(a)?(?(1)b|c)": "uses syntax that isn't allowed",
    r"(?:foo){e<=3}": "uses syntax that isn't allowed: '{'",
    r"(?V1)[[a](]": "uses syntax that isn't allowed",
    "(?x)a # (\n)": "uses syntax that isn't allowed",
    r"(?|(a)|b)": "uses syntax that isn't allowed",
    r"(*PRUNE)a": "uses syntax that isn't allowed",
    r"\L<words>": "uses syntax that isn't allowed",
    "a?" * 30 + "a" * 30: "repeats too much",
    "a*" * 12 + "b": "repeats too much",
    "a{0,200}" * 8 + "b": "repeats too much",
    "(?:(?:a{100}){100}){100}": "repeats too much",
    "a" * 10_001: "has 10,001 characters",
    "(" * 60 + "a" + ")" * 60: "nests too deeply",
    **dict.fromkeys([r"[^\s[.,]]+", r"[a-c&&b]", r"\h+", r"[^\h]", r"\N", r"\G", r"\pL", r"\U00000061"], OTHERWISE),
    **dict.fromkeys([r"a{2}?", r"a{,}", r"a(?i)b|c", r"(?u)a", r"[[:digit:]]", r"\p{Script=Han}"], OTHERWISE),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_patterns_are_accepted(name: str) -> None:
    check_pattern(PUBLISHED[name])
    assert pattern_name(PUBLISHED[name])


@pytest.mark.usefixtures("linear_time")
@pytest.mark.parametrize("expression", HOSTILE)
def test_an_expression_that_takes_forever_or_differs_is_rejected_in_every_source(
    expression: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=HOSTILE[expression]) as caught:
        Tokenizer.train(["aaa"], vocab_size=260, pattern=expression)
    assert len(caught.value.lines) <= 3
    with pytest.raises(ConfigError, match=HOSTILE[expression]):
        PieceCounts(expression)
    file = file_of("gpt2")
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split(expression), byte_level()]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    with pytest.raises(InputError, match="has a pattern"):
        Tokenizer.load(tmp_path / "tokenizer.json")
    file["model"]["webtext"] = {"format": 1, "pattern": expression, "unicode_version": "16.0.0", "rules": "merges"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    with pytest.raises(InputError, match="has a pattern"):
        Tokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    "expression", [r"(?:a|aa)++$", r"(?>a|aa)+$", r"(?:\w++\s?+)*x", r"(?:a{3}){2}b", r"\{x\}", r"[(|+]+[)]+"]
)
def test_possessive_and_atomic_repetitions_are_accepted(expression: str) -> None:
    check_pattern(expression)
    regex.compile(expression)


@pytest.mark.slow
@pytest.mark.usefixtures("linear_time")
@settings(max_examples=300)
@given(expression=expressions)
def test_no_accepted_expression_takes_exponential_time(expression: str) -> None:
    """Thirty equal characters and one that doesn't match: an exponential matcher would need 2**30 steps."""
    assume(is_accepted(lambda: check_pattern(expression)))
    compiled = regex.compile(expression)
    for character in "ab1\n ":
        assert len([*compiled.finditer(character * 30 + "x")]) <= 63
