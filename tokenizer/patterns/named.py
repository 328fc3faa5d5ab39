r"""Patterns that cut text into pieces before any merge: named patterns and regular expressions.

GPT-2's rule ("Language Models are Unsupervised Multitask Learners", section 2.2): no merge crosses a character
category, except over one leading space. The categories are letters, numbers, white space and everything else. Tables of
one Unicode version decide which category a character has, so pieces don't change when a library is updated. Named
patterns have hand-written scanners in `native/`. Here each of them is also a regular expression for the `regex` module.
In these, and where possible in any other expression, `pinned.py` replaces the categories by ranges.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from webtext.base.errors import ConfigError, did_you_mean
from webtext.tokenizer import _bpe
from webtext.tokenizer.arguments import shown
from webtext.tokenizer.patterns.limits import check_pattern
from webtext.tokenizer.patterns.pinned import PINNED, pinned

UNICODE_VERSION = _bpe.UNICODE_VERSION
"""The version that tiktoken 0.14 and HF tokenizers 0.23 use."""

GPT2 = "gpt2"

GPT2_REGEX = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

CL100K_REGEX = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
"""The expression in tiktoken 0.14. Unlike with LLAMA3_REGEX, white space at the end of a text is one piece."""

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3_REGEX = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_REGEX = LLAMA3_REGEX.replace("{1,3}", "")

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K_REGEX = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

REGEXES = {GPT2: GPT2_REGEX, "cl100k": CL100K_REGEX, "o200k": O200K_REGEX, "llama3": LLAMA3_REGEX, "qwen2": QWEN2_REGEX}
"""The named patterns. Qwen 2.5 and 3 also use qwen2."""

THEN = "(?#then)"
"""Stands between expressions that cut one after the other: each cuts the pieces of the one before it."""
MAX_STEPS = 20

ALIASES = {"r50k": GPT2, "p50k": GPT2}

SPELLINGS = {regex: name for name, regex in REGEXES.items()} | {
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""": GPT2,
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""": GPT2,
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""": GPT2,
    CL100K_REGEX.replace("{1,3}+", "{1,3}"): "cl100k",
}


def pattern_name(pattern: str) -> str:
    """Return the name of a pattern given by name or by a known spelling of its expression, or the expression itself.

    Raises ConfigError if it isn't a valid expression.

    >>> pattern_name(GPT2_REGEX), pattern_name("r50k")
    ('gpt2', 'gpt2')
    """
    if not isinstance(pattern, str):
        raise ConfigError(f"the pattern is {shown(pattern)}", f"expected one of {', '.join(REGEXES)}, or an expression")
    if THEN in pattern:
        steps = pattern.split(THEN)
        if len(steps) > MAX_STEPS:
            raise ConfigError(f"the pattern has {len(steps):,} steps", f"expected at most {MAX_STEPS}")
        return THEN.join(REGEXES.get(name, name) for name in map(pattern_name, steps))
    name = SPELLINGS.get(pattern) or ALIASES.get(pattern, pattern)
    if name not in REGEXES:
        compiled(name)
    return name


def is_native(pattern: str) -> bool:
    """Return whether a pattern (as returned by `pattern_name`) has a scanner in `native/`."""
    return pattern in REGEXES


def checked_version(pattern: str, version: str = UNICODE_VERSION) -> str:
    r"""Return the Unicode version that decides the categories of a pattern (as returned by `pattern_name`).

    This is `version`, unless the expression uses classes that our tables don't contain (`\w`, scripts). Then the
    `regex` module's tables decide, and its version is returned. Raises ConfigError for a version without tables, and
    for a version other than the default with such an expression.

    >>> checked_version("gpt2"), checked_version(r"\p{L}+", "15.1.0")
    ('16.0.0', '15.1.0')
    """
    if is_native(pattern) or all(pinned(step, UNICODE_VERSION) is not None for step in pattern.split(THEN)):
        if version not in _bpe.UNICODE_VERSIONS:
            raise ConfigError(
                f"there are no tables of Unicode {version}", f"expected {', '.join(_bpe.UNICODE_VERSIONS)}"
            )
        return version
    import regex  # type: ignore[import-untyped]

    if version != UNICODE_VERSION and not version.startswith("regex "):
        raise ConfigError(
            f"the pattern {pattern[:60]!r} uses classes that the tables of Unicode {version} don't contain",
            f"leave out unicode_version, or use only {PINNED}",
        )
    return f"regex {regex.__version__}"


@functools.cache
def compiled(pattern: str, version: str = UNICODE_VERSION) -> Any:
    """Return the pattern compiled by the `regex` module, pinned to the version where possible, or raise ConfigError."""
    import regex

    expression = REGEXES.get(pattern, pattern)
    if pattern not in REGEXES:
        check_pattern(pattern)
    try:
        regex.compile(expression)  # so that an error quotes the pattern as the user wrote it
        spelled = pinned(expression, version) if version in _bpe.UNICODE_VERSIONS else None
        return regex.compile(spelled or expression)
    except regex.error as error:
        raise ConfigError(
            f"the pattern {pattern!r} is neither a name nor a regular expression: {error}",
            did_you_mean(pattern[:100], [*REGEXES, *ALIASES]),
            "or give an expression of the `regex` module",
        ) from None


def cut(pattern: str, text: str, version: str = UNICODE_VERSION) -> Iterator[str]:
    """Yield the pieces of a text; text between two matches is a piece of its own, so the joined pieces are the text."""
    step, then, rest = pattern.partition(THEN)
    if then:
        for piece in cut(step, text, version):
            yield from cut(rest, piece, version)
        return
    start = 0
    for match in compiled(pattern, version).finditer(text):
        if match.start() > start:
            yield text[start : match.start()]
        if match.end() > match.start():
            yield match.group()
        start = match.end()
    if start < len(text):
        yield text[start:]
