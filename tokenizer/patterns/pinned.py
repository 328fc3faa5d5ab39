r"""Pin a regular expression to one Unicode version by replacing classes such as `\p{L}` with ranges of code points.

Replaced are `\p` and `\P` of the categories in PINNED, `\s` and `\S` (the 25 characters of White_Space, as in tiktoken
and HF tokenizers; the `regex` module adds U+001C to U+001F), and `\d` and `\D` (Nd). An expression that uses anything
else that depends on Unicode tables is not changed at all: the `regex` module's own tables decide.
"""

from __future__ import annotations

import functools
import re

from webtext.tokenizer import _bpe

PINNED = r"\p of L, Lu, Ll, Lt, Lm, Lo, M, N, Nd, P, S and \s, \d"

_CATEGORIES = {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S", "space"}
_SHORT = {"s": "space", "d": "Nd"}
_HARMLESS_FLAGS = set("ims-")
_CATEGORY = r"\\[pP]\{(?P<caret>\^?)(?P<category>\w+)\}|\\[pP](?P<letter>[A-Z])|\\(?P<short>[sSdD])"
_ESCAPE = r"\\(?:[nrtvfaAZzGK0-9xuU]|[^\w\s])"  # has the same meaning in every Unicode version
_MEMBER = re.compile(rf"{_CATEGORY}|{_ESCAPE}|(?P<unknown>\\|\[:\^?\w+:\])|.", re.DOTALL)
_TOKEN = re.compile(
    rf"(?P<set>\[\^?)(?P<members>\]?(?:\\.|\[:\^?\w+:\]|[^]\\])*)\]|{_CATEGORY}|{_ESCAPE}"
    r"|(?P<flags>\(\?[a-zA-Z01]+(?:-[a-zA-Z]+)?[:)]|\(\?-[a-zA-Z]+:)|(?P<unknown>\\|\(\?\#)|(?P<bracket>[()])|.",
    re.DOTALL,
)


@functools.cache
def pinned(pattern: str, version: str) -> str | None:
    r"""Return the expression with its categories as ranges; None if it uses other categories or ignores their case.

    >>> print(pinned(r"[\p{N}x]+", "16.0.0")[:23])
    [\U00000030-\U00000039\
    """
    ignores_case = [False]  # one entry per open group
    written: list[str] = []
    for token in _TOKEN.finditer(pattern):
        spelled = _spelled_set(token, version) if token["set"] else _spelled(token, version, in_set=False)
        if spelled is None or (spelled != token.group() and ignores_case[-1]) or not _follow(ignores_case, token):
            return None
        written.append(spelled)
    return "".join(written)


def _follow(ignores_case: list[bool], token: re.Match[str]) -> bool:
    """Track groups that a token opens or closes; return False if it sets a flag that changes what categories mean."""
    if token["bracket"] == "(":
        ignores_case.append(ignores_case[-1])
    elif token["bracket"] == ")" and len(ignores_case) > 1:
        ignores_case.pop()
    elif token["flags"]:
        flags = token["flags"][2:-1]
        on, _, off = flags.partition("-")
        ignores = ("i" in on or ignores_case[-1]) and "i" not in off
        if token["flags"].endswith(":"):
            ignores_case.append(ignores)
        else:
            ignores_case[-1] = ignores
        return set(flags) <= _HARMLESS_FLAGS
    return True


def _spelled_set(token: re.Match[str], version: str) -> str | None:
    """Return a set in brackets with its categories replaced by ranges."""
    members = [_spelled(member, version, in_set=True) for member in _MEMBER.finditer(token["members"])]
    return None if None in members else f"{token['set']}{''.join(map(str, members))}]"


def _spelled(token: re.Match[str], version: str, in_set: bool) -> str | None:
    """Return a category as ranges (in brackets outside a set), any other token unchanged; None without a table."""
    category = token["category"] or token["letter"] or _SHORT.get((token["short"] or "").lower())
    if category is None:
        return None if token["unknown"] else token.group()
    if category not in _CATEGORIES:
        return None
    return _ranges(category, version, token.group()[1].isupper() != bool(token["caret"]), in_set)


@functools.cache
def _ranges(category: str, version: str, is_negated: bool, in_set: bool) -> str:
    ranges = _bpe.character_ranges(category, version)
    if is_negated:
        starts = [0, *(last + 1 for _, last in ranges)]
        ends = [*(first - 1 for first, _ in ranges), 0x10FFFF]
        ranges = [(start, end) for start, end in zip(starts, ends, strict=True) if start <= end]
    inside = "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in ranges)
    return inside if in_set else f"[{inside}]"
