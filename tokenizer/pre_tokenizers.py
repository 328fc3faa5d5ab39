r"""The part of a tokenizer.json that cuts text: Hugging Face's pre-tokenizers for our patterns, and back.

Their regular expressions are Oniguruma's (Ruby syntax), ours the `regex` module's. What is written alike and means
something else is translated, both ways: `\p{N}{1,3}+` is a possessive interval here and a repeated one there; `^` and `$`
are the ends of the text here and of a line there; `\Z` is the very end here and may precede a last "\n" there, where the
very end is `\z`. The classes of rare characters (`\w` of "²", letters of the newest Unicode) still differ: findings.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer.pattern_limits import MAX_CHARACTERS
from webtext.tokenizer.patterns import ALIASES, GPT2, REGEXES, is_native, pattern_name

_PARTS = re.compile(
    r"(?P<interval>\{\d*,?\d*\}\+)|(?P<quantifier>\{\d*,?\d*\}\??|[*+?][+?]?)|(?P<open>\(\??)|(?P<close>\))"
    r"|(?P<atom>\\[pPNxgk]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:[^\]]*:\]|[^\]\\])*\]|.)",
    re.DOTALL,
)
_REPEATED = "(?:{})+"
_ANY_NUMBER = re.compile(
    r"\{(?:(?P<one>1)(?:,\d*)?|0,|0?,[1-9]\d*)\}\+"
)  # what is repeated `{1,3}` times is repeated `+` times
_TO_ONIGURUMA = {"^": r"\A", "$": r"(?=\n?\z)", r"\Z": r"\z"}
_FROM_ONIGURUMA = {"^": r"(?:\A|(?<=\n))", "$": r"(?=\n|\Z)", r"\Z": r"(?=\n?\Z)", r"\z": r"\Z"}


def byte_level(use_regex: bool) -> dict[str, Any]:
    """Bytes as GPT-2's characters, and with `use_regex` its pattern before that."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def pre_tokenizer_of(pattern: str) -> dict[str, Any]:
    """What cuts as `pattern` (a name or a regular expression of the `regex` module) does."""
    if pattern == GPT2:
        return byte_level(use_regex=True)
    regex = _translated(REGEXES.get(pattern, pattern), "(?>{})", _TO_ONIGURUMA)
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, byte_level(use_regex=False)]}


def pattern_of(pre_tokenizer: Any, place: str) -> str:
    """The pattern that a pre-tokenizer cuts by: a name where it is known, else a regular expression."""
    match _steps(pre_tokenizer):
        case [{"type": "ByteLevel", "add_prefix_space": False} as step] if step.get("use_regex", True):
            return GPT2
        case [
            {"type": "Split", "pattern": {"Regex": str(regex)}} as split,
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ] if (keeps := _keeps(split)) is not None:
            pattern = _pattern(regex, place)
            if keeps == "all" or is_native(pattern):  # what a named pattern matches is everything
                return pattern
    raise InputError(
        f"'{place}' has a pre-tokenizer that cannot be read: {str(pre_tokenizer)[:80]}",
        "expected ByteLevel without add_prefix_space, or one isolated Split by regex before it",
    )


def _steps(pre_tokenizer: Any) -> list[Any]:
    match pre_tokenizer:
        case {"type": "Sequence", "pretokenizers": list(steps)}:
            return steps
    return [pre_tokenizer]


def _keeps(split: Mapping[str, Any]) -> str | None:
    """What of a text a Split leaves as pieces: 'all', 'matches', or None for what is no cutting by pattern alone."""
    match split:
        case {"behavior": "Isolated"}:  # inverted or not: matches and what lies between them are pieces
            return "all"
        case {"behavior": "Removed", "invert": True}:
            return "matches"
    return None


def _pattern(regex: str, place: str) -> str:
    """The pattern that means for us what `regex` means for Oniguruma."""
    if len(regex) > MAX_CHARACTERS:  # before anything reads it; the rest is checked by `pattern_name`
        raise InputError(f"'{place}' has a pattern of {len(regex):,} characters", "name a tokenizer file")
    try:
        translated = _translated(regex, _REPEATED, _FROM_ONIGURUMA)
        repeats = _translated(regex, _REPEATED, {}) != regex
        if regex in REGEXES or regex in ALIASES:  # an expression that happens to spell a name
            return f"(?:{regex})"
        if not repeats and is_native(name := pattern_name(regex)):
            return name
        if regex in _as_written():
            return _as_written()[regex]
        return pattern_name(translated)
    except (ConfigError, RecursionError, ValueError, OverflowError) as error:
        lines = str(error).splitlines()
        raise InputError(f"'{place}' has a pattern that cannot be read: {lines[0][:200]}", *lines[1:][-1:]) from None


@functools.cache
def _as_written() -> dict[str, str]:
    """The named patterns by what is written for them; other libraries leave our own field out when they save."""
    return {_translated(regex, "(?>{})", _TO_ONIGURUMA): name for name, regex in REGEXES.items()}


def _translated(regex: str, interval: str, anchors: Mapping[str, str]) -> str:
    """The expression with `interval` around what a `{m,n}+` repeats, and its anchors replaced."""
    parts: list[str] = []
    opened: list[int] = []
    atom = 0  # where in `parts` begins what a quantifier would repeat
    for found in _PARTS.finditer(regex):
        part = found.group()
        match found.lastgroup:
            case "interval":
                repeated = "".join(parts[atom:])
                if interval == _REPEATED and (any_number := _ANY_NUMBER.fullmatch(part)):
                    parts[atom:] = [f"(?:{repeated}){'+' if any_number['one'] else '*'}"]
                else:
                    parts[atom:] = [interval.format(repeated + part[:-1])]
            case "quantifier":
                parts.append(part)
            case "open":
                opened.append(len(parts))
                parts.append(part)
            case "close":
                atom = opened.pop() if opened else len(parts)
                parts.append(part)
            case _:
                atom = len(parts)
                parts.append(anchors.get(part, part))
    return "".join(parts)
