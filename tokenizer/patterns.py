r"""How text is cut into pieces before any merge: rules by name, other rules by regular expression.

GPT-2's rule ("Language Models are Unsupervised Multitask Learners", section 2.2): no merge crosses a character category,
except over one leading space. The categories are letters, numbers, white space and everything else; which character
belongs to which is decided by tables of one Unicode version, so that pieces never change with a library. Named rules are
scanned by hand in `native/`; here each is also a regular expression for the `regex` module, in which `pinned_regex.py`
spells the categories out. So it does with any other expression, where it can.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from webtext.base.errors import ConfigError
from webtext.tokenizer import _bpe
from webtext.tokenizer.arguments import shown
from webtext.tokenizer.pattern_limits import check_pattern
from webtext.tokenizer.pinned_regex import PINNED, pinned

UNICODE_VERSION = _bpe.UNICODE_VERSION
"""The version that tiktoken 0.14 and HF tokenizers 0.23 know."""

GPT2 = "gpt2"

GPT2_REGEX = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

CL100K_REGEX = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
"""tiktoken 0.14's. White space at the end of a text is one piece, which sets it apart from LLAMA3_REGEX."""

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

REGEXES = {
    GPT2: GPT2_REGEX,
    "cl100k": CL100K_REGEX,
    "o200k": O200K_REGEX,
    "llama3": LLAMA3_REGEX,
    "qwen2": QWEN2_REGEX,
}
"""The named rules. qwen2 is also that of Qwen 2.5 and 3."""

ALIASES = {"r50k": GPT2, "p50k": GPT2}

_SPELLINGS = {regex: name for name, regex in REGEXES.items()} | {
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""": GPT2,
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""": GPT2,
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""": GPT2,
    CL100K_REGEX.replace("{1,3}+", "{1,3}"): "cl100k",
}


def pattern_name(pattern: str) -> str:
    """The name of a rule, given by name or in any spelling known, else the regular expression itself.

    ConfigError when it is none.

    >>> pattern_name(GPT2_REGEX), pattern_name("r50k")
    ('gpt2', 'gpt2')
    """
    if not isinstance(pattern, str):
        raise ConfigError(f"the pattern is {shown(pattern)}", f"expected one of {', '.join(REGEXES)}, or an expression")
    name = _SPELLINGS.get(pattern) or ALIASES.get(pattern, pattern)
    if name not in REGEXES:
        compiled(name)
    return name


def is_native(pattern: str) -> bool:
    """Whether a pattern (as `pattern_name` gives it) has a scanner in `native/`."""
    return pattern in REGEXES


def checked_version(pattern: str, version: str = UNICODE_VERSION) -> str:
    r"""The Unicode version that decides the categories of a pattern (as `pattern_name` gives it): the one asked for.

    An expression that asks for more than the tables hold (`\w`, scripts) goes by the `regex` module, whose version is then
    the answer. ConfigError for a version without tables, or for another than the default with such an expression.

    >>> checked_version("gpt2"), checked_version(r"\p{L}+", "15.1.0")
    ('16.0.0', '15.1.0')
    """
    if is_native(pattern) or pinned(pattern, UNICODE_VERSION) is not None:
        if version not in _bpe.UNICODE_VERSIONS:
            raise ConfigError(
                f"there are no tables of Unicode {version}", f"expected {', '.join(_bpe.UNICODE_VERSIONS)}"
            )
        return version
    import regex  # type: ignore[import-untyped]

    if version != UNICODE_VERSION and not version.startswith("regex "):
        raise ConfigError(
            f"the pattern {pattern[:60]!r} asks for more than the tables of Unicode {version} hold",
            f"leave out unicode_version, or use no more than {PINNED}",
        )
    return f"regex {regex.__version__}"


@functools.cache
def compiled(pattern: str, version: str = UNICODE_VERSION) -> Any:
    """The pattern for the `regex` module, its categories spelled out where they can be; ConfigError when it is no regex."""
    import regex

    expression = REGEXES.get(pattern, pattern)
    if pattern not in REGEXES:
        check_pattern(pattern)
    try:
        regex.compile(expression)  # so that an error shows the pattern as it was given
        spelled = pinned(expression, version) if version in _bpe.UNICODE_VERSIONS else None
        return regex.compile(spelled or expression)
    except regex.error as error:
        raise ConfigError(
            f"the pattern {pattern!r} is neither a name nor a regular expression: {error}",
            f"give one of {', '.join([*REGEXES, *ALIASES])}, or an expression of the `regex` module",
        ) from None


def cut(pattern: str, text: str, version: str = UNICODE_VERSION) -> Iterator[str]:
    """The pieces of a text, which joined are the text again: what the pattern does not match is a piece of its own."""
    start = 0
    for match in compiled(pattern, version).finditer(text):
        if match.start() > start:
            yield text[start : match.start()]
        if match.end() > match.start():
            yield match.group()
        start = match.end()
    if start < len(text):
        yield text[start:]
