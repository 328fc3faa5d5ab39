r"""Translation between our patterns and Hugging Face's pre-tokenizers, the part of a tokenizer.json that cuts text.

Their regular expressions use Oniguruma (Ruby syntax), ours the `regex` module. Syntax with a different meaning is
translated both ways. `\p{N}{1,3}+` is a possessive interval here and a repeated interval there; `^` and `$` match at
the ends of the text here and at the ends of a line there; `\Z` is the very end here but can precede a final "\n" there,
where the very end is `\z`. Classes of rare characters (`\w` of "²", letters of the newest Unicode) still differ:
findings.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer.patterns.limits import MAX_CHARACTERS
from webtext.tokenizer.patterns.named import ALIASES, GPT2, REGEXES, is_native, pattern_name

_PARTS = re.compile(
    r"(?P<interval>\{\d*,?\d*\}\+)|(?P<quantifier>\{\d*,?\d*\}\??|[*+?][+?]?)|(?P<open>\(\??)|(?P<close>\))"
    r"|(?P<atom>\\[pPNxgk]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:[^\]]*:\]|[^\]\\])*\]|.)",
    re.DOTALL,
)
_REPEATED = "(?:{})+"
_ANY_NUMBER = re.compile(
    r"\{(?:(?P<one>1)(?:,\d*)?|0,|0?,[1-9]\d*)\}\+"
)  # `{1,3}` times, repeated, is the same as `+` times
_TO_ONIGURUMA = {"^": r"\A", "$": r"(?=\n?\z)", r"\Z": r"\z"}
_FROM_ONIGURUMA = {"^": r"(?:\A|(?<=\n))", "$": r"(?=\n|\Z)", r"\Z": r"(?=\n?\Z)", r"\z": r"\Z"}


def byte_level(use_regex: bool) -> dict[str, Any]:
    """Return the step that writes bytes as GPT-2's characters, and with `use_regex` first cuts by GPT-2's pattern."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def pre_tokenizer_of(pattern: str) -> dict[str, Any]:
    """Return the pre-tokenizer equivalent to `pattern` (a name or a regular expression of the `regex` module)."""
    if pattern == GPT2:
        return byte_level(use_regex=True)
    regex = _translated(REGEXES.get(pattern, pattern), "(?>{})", _TO_ONIGURUMA)
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, byte_level(use_regex=False)]}


def pattern_of(pre_tokenizer: Any, place: str) -> str:
    """Return the pattern of a pre-tokenizer: a name if it is a known one, else a regular expression."""
    match _steps(pre_tokenizer):
        case [{"type": "ByteLevel", "add_prefix_space": False} as step] if step.get("use_regex", True):
            return GPT2
        case [
            {"type": "Split", "pattern": {"Regex": str(regex)}} as split,
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ] if (keeps := _keeps(split)) is not None:
            pattern = _pattern(regex, place)
            if keeps == "all" or is_native(pattern):  # a named pattern matches all of a text
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
    """Return which parts of a text a Split keeps as pieces: 'all' or 'matches'; None if it does more than cut."""
    match split:
        case {"behavior": "Isolated"}:  # inverted or not: matches and the text between them are pieces
            return "all"
        case {"behavior": "Removed", "invert": True}:
            return "matches"
    return None


def _pattern(regex: str, place: str) -> str:
    """Return the pattern for our libraries that is equivalent to `regex` in Oniguruma."""
    if len(regex) > MAX_CHARACTERS:  # before anything parses it; `pattern_name` checks the rest
        raise InputError(f"'{place}' has a pattern of {len(regex):,} characters", "expected a tokenizer file")
    try:
        translated = _translated(regex, _REPEATED, _FROM_ONIGURUMA)
        repeats = _translated(regex, _REPEATED, {}) != regex
        if regex in REGEXES or regex in ALIASES:  # an expression that happens to equal a pattern's name
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
    """Return the named patterns by the expression that we write: other libraries drop our own field when they save."""
    return {_translated(regex, "(?>{})", _TO_ONIGURUMA): name for name, regex in REGEXES.items()}


def _translated(regex: str, interval: str, anchors: Mapping[str, str]) -> str:
    """Return the expression with `interval` applied to each `{m,n}+` and its operand, and with anchors replaced."""
    parts: list[str] = []
    opened: list[int] = []
    atom = 0  # index in `parts` where the operand of a following quantifier begins
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
