r"""Translation between our patterns and Hugging Face's pre-tokenizers, the part of a tokenizer.json that cuts text.

Several Splits in a row are expressions joined by THEN. Digits and GPT-2's own pattern are written as Splits then.

Their regular expressions use Oniguruma (Ruby syntax), ours the `regex` module. Syntax with a different meaning is
translated both ways. `\p{N}{1,3}+` is a possessive interval here and a repeated interval there; `^` and `$` match at
the ends of the text here and at the ends of a line there; `\Z` is the very end here but can precede a final "\n" there,
where the very end is `\z`; `(?s:.)` is `(?m:.)` there. `limits.py` rejects other syntax that differs. Classes of rare
characters (`\w` of "²", letters of the newest Unicode) and, without case, of two letters ("ß" and "ss") still differ.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer.patterns.limits import MAX_CHARACTERS
from webtext.tokenizer.patterns.named import ALIASES, GPT2, MAX_STEPS, REGEXES, SPELLINGS, THEN, is_native, pattern_name

_PARTS = re.compile(
    r"(?P<interval>\{\d*,?\d*\}\+)|(?P<quantifier>\{\d*,?\d*\}\??|[*+?][+?]?)|(?P<open>\((?:\?P?[a-z-]*)?)|(?P<close>\))"
    r"|(?P<atom>\\[pPNxgk]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:[^\]]*:\]|[^\]\\])*\]|.)",
    re.DOTALL,
)
_REPEATED = "(?:{})+"
_ANY_NUMBER = re.compile(
    r"\{(?:(?P<one>1)(?:,\d*)?|0,|0?,[1-9]\d*)\}\+"
)  # `{1,3}` times, repeated, is the same as `+` times
_DIGIT = "[\\p{N}\U00011de0-\U00011de9\U00016ff4-\U00016ff6]"  # of HF tokenizers 0.23: Unicode 17, unlike in its Splits
_TO_ONIGURUMA = {"^": r"\A", "$": r"(?=\n?\z)", r"\Z": r"\z", "?s": "m", "?P": ""}
_FROM_ONIGURUMA = {"^": r"(?:\A|(?<=\n))", "$": r"(?=\n|\Z)", r"\Z": r"(?=\n?\Z)", r"\z": r"\Z", "?m": "s"}


def byte_level(use_regex: bool, prefix_space: bool = False) -> dict[str, Any]:
    """Return the step that writes bytes as GPT-2's characters, and with `use_regex` first cuts by GPT-2's pattern."""
    return {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": use_regex}


def pre_tokenizer_of(pattern: str, prefix_space: bool = False) -> dict[str, Any]:
    """Return the pre-tokenizer equivalent to `pattern` (a name or a regular expression of the `regex` module)."""
    if pattern == GPT2:
        return byte_level(use_regex=True, prefix_space=prefix_space)
    regexes = [_translated(step, "(?>{})", _TO_ONIGURUMA) for step in REGEXES.get(pattern, pattern).split(THEN)]
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    splits = [split | {"pattern": {"Regex": regex}} for regex in regexes]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level(use_regex=False)]}


def pattern_of(pre_tokenizer: Any, place: str) -> tuple[str, bool]:
    """Return the pattern of a pre-tokenizer (a name if it is a known one), and whether it puts a space before a text."""
    *steps, last = steps_of(pre_tokenizer, "pretokenizers") or [None]
    if len(steps) >= MAX_STEPS:
        raise InputError(f"'{place}' has {len(steps) + 1:,} pre-tokenizers", f"expected at most {MAX_STEPS}")
    patterns, prefix_space = [_cut_by(step, place) for step in steps], False
    match last:
        case {"type": "ByteLevel", "add_prefix_space": bool(prefix_space)} if last.get("use_regex", True):
            patterns.append(GPT2)
        case {"type": "ByteLevel", "add_prefix_space": False} if steps:
            pass
        case _:
            raise _unreadable(last, place)
    if prefix_space and steps:
        raise _unreadable(last, place)
    if len(patterns) == 1:
        return patterns[0], prefix_space
    return pattern_name(THEN.join(REGEXES.get(pattern, pattern) for pattern in patterns)), False


def steps_of(part: Any, name: str) -> list[Any]:
    """Return the steps of a part of the file, of nested sequences in one list, which call their steps `name`."""
    if isinstance(part, dict) and part.get("type") == "Sequence" and isinstance(part.get(name), list):
        return [step for inner in part[name] for step in steps_of(inner, name)]
    return [] if part is None else [part]


def _cut_by(step: Any, place: str) -> str:
    """Return the pattern of a step that keeps all of a text and only cuts it: a Split or Digits."""
    match step:
        case {"type": "Digits", "individual_digits": bool(single)}:
            return _DIGIT if single else f"{_DIGIT}+"
        case {"type": "Split", "pattern": {"String": str(text)}, "behavior": "Isolated"} if text:
            return f"(?:{re.escape(text)})"
        case {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated"}:
            return _pattern(regex, place)  # inverted or not: matches and the text between them are pieces
        case {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Removed", "invert": True}:
            if is_native(pattern := _pattern(regex, place)):  # a named pattern matches all of a text
                return pattern
    raise _unreadable(step, place)


def _unreadable(step: Any, place: str) -> InputError:
    return InputError(
        f"'{place}' has a pre-tokenizer that cannot be read: {str(step)[:80]}",
        "expected isolated Splits or Digits, then ByteLevel (alone if it has add_prefix_space)",
    )


def _pattern(regex: str, place: str) -> str:
    """Return the pattern for our libraries that is equivalent to `regex` in Oniguruma."""
    if len(regex) > MAX_CHARACTERS:  # before anything parses it; `pattern_name` checks the rest
        raise InputError(f"'{place}' has a pattern of {len(regex):,} characters", "expected a tokenizer file")
    try:
        if regex in REGEXES or regex in ALIASES:  # an expression that happens to equal a pattern's name
            return f"(?:{regex})"
        known = _as_written() | (SPELLINGS if _translated(regex, _REPEATED, {}) == regex else {})
        return known.get(regex) or pattern_name(_translated(regex, _REPEATED, _FROM_ONIGURUMA))
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
                parts.append("".join(anchors.get(f"?{flag}", flag) for flag in part))
            case "close":
                atom = opened.pop() if opened else len(parts)
                parts.append(part)
            case _:
                atom = len(parts)
                parts.append(anchors.get(part, part))
    return "".join(parts)
