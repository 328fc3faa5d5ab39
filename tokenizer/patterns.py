"""How text is cut into pieces before any merge: GPT-2's rule by name, other rules by regular expression.

GPT-2's rule ("Language Models are Unsupervised Multitask Learners", section 2.2): no merge crosses a character category,
except over one leading space. The categories are letters, numbers, white space and everything else; which character
belongs to which is decided by tables of one Unicode version, so that pieces never change with a library.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from webtext.base.errors import ConfigError
from webtext.tokenizer import _bpe

GPT2 = "gpt2"

GPT2_REGEX = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
"""The rule as a regular expression; what it means is fixed by `gpt2_regex`."""

NATIVE = ("gpt2", "gpt2-superwords")
"""Patterns that have a scanner."""

_SAME_AS_GPT2 = {
    GPT2_REGEX,
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
}

SUPERWORDS = "gpt2-superwords"

SUPERWORDS_REGEX = (
    r"""(?:'(?:[sdmt]|ll|ve|re)| ?\p{L}+)(?:'(?:[sdmt]|ll|ve|re)| \p{L}+)*"""
    r"""| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
)
"""GPT-2's rule with words in a row as one piece (superwords.py)."""

CL100K_REGEX = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K_REGEX = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def pattern_name(pattern: str) -> str:
    """'gpt2' for GPT-2's rule in any of its spellings, else the regular expression itself.

    ConfigError when it is none, or when it can match nothing.

    >>> pattern_name(GPT2_REGEX)
    'gpt2'
    """
    if pattern == GPT2 or pattern in _SAME_AS_GPT2:
        return GPT2
    if pattern in (SUPERWORDS, SUPERWORDS_REGEX):
        return SUPERWORDS
    compiled(pattern)
    return pattern


def unicode_version(pattern: str) -> str:
    """The Unicode version that decides categories: pinned for 'gpt2', else whatever the `regex` module knows."""
    if pattern in NATIVE:
        return _bpe.UNICODE_VERSION
    import regex  # type: ignore[import-untyped]

    return f"regex {regex.__version__}"


@functools.cache
def compiled(pattern: str) -> Any:
    """The pattern for the `regex` module, 'gpt2' with its categories spelled out; ConfigError when it is no regex."""
    import regex

    try:
        return regex.compile(_pinned(pattern) if pattern in NATIVE else pattern)
    except regex.error as error:
        raise ConfigError(
            f"the pattern {pattern!r} is neither 'gpt2' nor a regular expression: {error}",
            "give 'gpt2' or an expression of the `regex` module",
        ) from None


def cut(pattern: str, text: str) -> Iterator[str]:
    """The pieces of a text, which joined are the text again: what the pattern does not match is a piece of its own."""
    start = 0
    for match in compiled(pattern).finditer(text):
        if match.start() > start:
            yield text[start : match.start()]
        if match.end() > match.start():
            yield match.group()
        start = match.end()
    if start < len(text):
        yield text[start:]


@functools.cache
def _pinned(pattern: str) -> str:
    r"""A native pattern with \p{L}, \p{N} and \s as explicit ranges of the pinned Unicode version."""
    letter, number, space = (_ranges(kind) for kind in ("letter", "number", "space"))
    contraction = "'(?:[sdmt]|ll|ve|re)"
    words = (
        f"{contraction}| ?[{letter}]+"
        if pattern == GPT2
        else f"(?:{contraction}| ?[{letter}]+)(?:{contraction}| [{letter}]+)*"
    )
    return f"{words}| ?[{number}]+| ?[^{space}{letter}{number}]+|[{space}]+(?![^{space}])|[{space}]+"


def _ranges(kind: str) -> str:
    return "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in _bpe.character_ranges(kind))
