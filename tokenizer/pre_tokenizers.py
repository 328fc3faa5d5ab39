r"""The part of a tokenizer.json that cuts text: Hugging Face's pre-tokenizers for our patterns, and back.

Their regular expressions are Oniguruma's (Ruby syntax). One difference matters: there `\p{N}{1,3}+` repeats the interval,
while in tiktoken and in the `regex` module it is possessive. At the end of an alternative a possessive interval is the
same as a plain one, and is written so; elsewhere a pattern that has one is refused, in both directions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer.patterns import GPT2, SUPERWORDS, SUPERWORDS_REGEX, pattern_name

MAX_PATTERN_CHARACTERS = 10_000  # the longest in use have about 500

_POSSESSIVE_INTERVAL = re.compile(r"\{\d*,?\d*\}\+")
_IN_THE_WAY = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:[^\]]*:\]|[^\]\\])*\]|[()]|\{\d*,?\d*\}\+", re.DOTALL)


def byte_level(use_regex: bool) -> dict[str, Any]:
    """Bytes as GPT-2's characters, and with `use_regex` its pattern before that."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def pre_tokenizer_of(pattern: str) -> dict[str, Any]:
    """What cuts as `pattern` (a name or a regular expression) does; InputError when their syntax cannot say it."""
    if pattern == GPT2:
        return byte_level(use_regex=True)
    regex = SUPERWORDS_REGEX if pattern == SUPERWORDS else _for_oniguruma(pattern)
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
            name = _checked(regex, place)
            if keeps == "all" or name != regex:  # what a named pattern matches is everything
                return name
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


def _checked(regex: str, place: str) -> str:
    if len(regex) > MAX_PATTERN_CHARACTERS:
        raise InputError(f"'{place}' has a pattern of {len(regex):,} characters", "name a tokenizer file")
    try:
        name = pattern_name(regex)
    except (ConfigError, RecursionError) as error:
        raise InputError(f"'{place}' has a pattern that cannot be read: {str(error).splitlines()[0][:200]}") from None
    if _POSSESSIVE_INTERVAL.search(regex):
        raise InputError(
            f"'{place}' has {_possessive(regex)!r} in its pattern, which libraries read in two ways",
            "write (?>...) or (?:...)+ around what is meant",
        )
    return name


def _for_oniguruma(pattern: str) -> str:
    """The pattern with possessive intervals at the end of alternatives as plain ones; InputError for one elsewhere."""
    depth, written, done = 0, "", 0
    for found in _IN_THE_WAY.finditer(pattern):
        depth += {"(": 1, ")": -1}.get(found.group(), 0)
        if not _POSSESSIVE_INTERVAL.fullmatch(found.group()):
            continue
        if depth or pattern[found.end() : found.end() + 1] not in ("|", ""):
            raise InputError(
                f"the pattern has {found.group()!r} where Hugging Face's libraries read it another way",
                "write (?>...) around what it repeats",
            )
        written += pattern[done : found.end() - 1]
        done = found.end()
    return written + pattern[done:]


def _possessive(regex: str) -> str:
    found = _POSSESSIVE_INTERVAL.search(regex)
    return found.group() if found else ""
