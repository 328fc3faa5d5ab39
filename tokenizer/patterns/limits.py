r"""Static check that rejects regular expressions whose matching could take exponential time, or differs elsewhere.

A backtracking matcher tries every way in which an expression can match. The ways multiply if a part that can match in
several ways is repeated, as in `(a|aa)+$` or `(\w+)*x`. So such a part may be repeated only if the matcher never
backtracks into it: `(?:...)++`, `(?>...)`. Otherwise the ways of consecutive parts are multiplied and limited; an
unbounded repetition counts as a power of the text's length instead. Recursion, back-references, conditions and fuzzy
matching are rejected.

Accepted expressions take polynomial time: at each position at most MAX_WAYS times the third power of the longest run
that a part matches. One unbounded repetition, as in `\s+$`, takes quadratic time over a text. The published patterns
have two in a row, the second of which always matches, so they are linear.

Syntax that Hugging Face's engine (Oniguruma) reads otherwise is rejected too: nested sets, `&&`, `\h`, `{2}?`, some flags.
Only `pre_tokenizers.py` translates any. So a tokenizer.json never has other ids here than there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from webtext.base.errors import ConfigError

MAX_CHARACTERS = 10_000
"""The longest patterns in use have about 500."""
MAX_SIZE = 100_000
"""Number of parts; the operand of {n} counts n times, because the `regex` module unrolls it."""
MAX_WAYS = 10_000
MAX_UNBOUNDED = 3
MAX_DEPTH = 50
_LONG_RANGE = 100  # {0,101} counts as unbounded

_ESCAPE = r"\\(?:[pP]\{[^}=]*\}|[abdefnrstuvwxzABDRSWXZ]|[^a-zA-Z1-9])"
_SET = rf"\[\^?\]?(?:{_ESCAPE}|\[:\^?(?!digit|alnum)\w+:\]|&(?!&)|[^\]\\\[&])*\]"
_FLAGS = "[is]*-?[is]*"
_TOKEN = re.compile(
    r"(?P<unsafe>\\[1-9gkL]|\(\*|\(\?(?![:>=!]|<[=!]|P?<[^\W\d]\w*>|[imsua]*-?[ims]*[:)]))|(?P<flags>\A\(\?[is]+\))"
    rf"|(?P<differs>\(\?(?![>=!<]|P<|{_FLAGS}:)[\w-]*|(?!{_ESCAPE})\\.?|(?!{_SET})\[|\{{\d+\}}\?|\{{,\}})"
    rf"|(?P<open>\((?:\?(?P<kind>[>=!]|<[=!]|P?<\w+>|{_FLAGS}:))?)|(?P<close>\))"
    r"|(?P<branch>\|)|(?P<repeat>[*+?]|\{\d*,?\d*\})(?P<mode>[+?]?)|(?P<brace>\{)"
    rf"|(?P<atom>{_ESCAPE}|{_SET}|.)",
    re.DOTALL,
)
_UNSAFE = ("uses syntax that isn't allowed", "escape a literal brace; leave out recursion and references")
_REFUSED = {
    "unsafe": _UNSAFE,
    "brace": _UNSAFE,
    "differs": (
        "uses syntax that other libraries read otherwise",
        r"write what Oniguruma reads alike: (?i) at the start, (?i:...), (?s:...), \p{L}, [^\[\]\&], [ \t]",
        "ids would differ",
    ),
}


@dataclass(slots=True)
class _Part:
    """A part's number of ways to match (without unbounded repetitions), its unbounded repetitions, and its size."""

    ways: int = 1
    unbounded: int = 0
    size: int = 1

    def then(self, other: _Part) -> _Part:
        return _Part(min(self.ways * other.ways, 2**40), self.unbounded + other.unbounded, self.size + other.size)

    def either(self, other: _Part) -> _Part:
        return _Part(self.ways + other.ways, max(self.unbounded, other.unbounded), self.size + other.size)


@dataclass(slots=True)
class _Group:
    """An open group: its completed branches, and in the current branch the parts before the last, and the last."""

    is_atomic: bool = False
    branches: _Part | None = None
    before: _Part | None = None
    last: _Part | None = None

    def add(self, part: _Part | None) -> None:
        self.before = self.branch()
        self.last = part

    def branch(self) -> _Part:
        return (self.before or _Part(size=0)).then(self.last or _Part(size=0))

    def whole(self) -> _Part:
        return self.branches.either(self.branch()) if self.branches else self.branch()


def check_pattern(pattern: str) -> None:
    """Raise ConfigError for an expression that could take exponential time or is too large. It may be invalid."""
    if len(pattern) > MAX_CHARACTERS:
        raise ConfigError(f"the pattern has {len(pattern):,} characters", f"expected at most {MAX_CHARACTERS:,}")
    groups = [_Group()]
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "unsafe" | "brace" | "differs" as group:
                raise _refused(pattern, token, *_REFUSED[group])
            case "open":
                groups.append(_Group(is_atomic=token["kind"] in (">", "=", "!", "<=", "<!")))
                if len(groups) > MAX_DEPTH:
                    raise _refused(pattern, token, "nests too deeply", f"expected at most {MAX_DEPTH} levels")
            case "close" if len(groups) > 1:
                closed = groups.pop()
                whole = closed.whole()
                _check_limits(pattern, token, whole)
                groups[-1].add(_Part(size=whole.size) if closed.is_atomic else whole)
                _check_limits(pattern, token, groups[-1].branch())
            case "branch":
                groups[-1].branches, groups[-1].before, groups[-1].last = groups[-1].whole(), None, None
            case "mode" if groups[-1].last:
                groups[-1].last = _repeated(pattern, token, groups[-1].last)
                _check_limits(pattern, token, groups[-1].branch())
            case "atom":
                groups[-1].add(_Part())
    _check_limits(pattern, None, groups[0].whole())


def _repeated(pattern: str, token: re.Match[str], part: _Part) -> _Part:
    """Return the part with a quantifier applied to it."""
    low, comma, high = {"*": "0,", "+": "1,", "?": "0,1"}.get(token["repeat"], token["repeat"][1:-1]).partition(",")
    least = int(low[:9] or 0)
    most = int(high[:9]) if high else math.inf if comma else least
    size = part.size * max(1, least, 0 if most == math.inf else int(most))
    is_possessive = token["mode"] == "+"
    if most > 1 and (part.ways > 1 or part.unbounded) and not (is_possessive and least <= 1):
        remedy = "repeat it possessively: (?:...)++, or make everything inside possessive: a++"
        raise _refused(pattern, token, "repeats a part that can match in several ways", remedy)
    if is_possessive or least == most:
        return _Part(1 if is_possessive else part.ways, 0 if is_possessive else part.unbounded, size)
    if most <= 1:
        return _Part(part.ways + 1, part.unbounded, size)
    return _Part(1, 1, size) if most - least > _LONG_RANGE else _Part(int(most - least) + 1, 0, size)


def _check_limits(pattern: str, token: re.Match[str] | None, part: _Part) -> None:
    if part.ways > MAX_WAYS or part.unbounded > MAX_UNBOUNDED or part.size > MAX_SIZE:
        raise _refused(pattern, token, "repeats too much", "use fewer repetitions, or possessive ones: a++")


def _refused(
    pattern: str,
    token: re.Match[str] | None,
    problem: str,
    remedy: str,
    why: str = "on some texts it could take forever",
) -> ConfigError:
    place = f": {token.group()[:20]!r} (character {token.start() + 1})" if token else ""
    return ConfigError(f"the pattern {pattern[:60]!r} {problem}{place}", why, remedy)
