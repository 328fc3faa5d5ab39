"""A fast Python interpreter for trafilatura's XPath expressions over class, id, role and other attributes.

XPath calls Python for each `re:test` of each element, which takes about 6 ms per page. Here an expression is parsed
once, and its answer for each attribute value is cached, because a site's pages have few distinct values. It selects the
same elements in the same order. Supported are unions of `.//TAG` with predicates. A predicate is a disjunction of
`self::TAG`, `not(self::TAG or ...)`, `@NAME`, `@NAME='TEXT'`, and `re:test`, `contains` and `starts-with` on an
attribute, on the first of several (`@id|@class`: the first in the source) or on a translated one. Other expressions
stay XPath.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lxml.etree import XPath

MAX_ANSWERS = 8192
MAX_REMEMBERED_CHARACTERS = 200
"""Longest attribute value whose answer is cached, so that a cache takes a few megabytes at most."""

_STEP = re.compile(r"\.//(\*|\w+)")
_SELF = re.compile(r"self::(\w+)")
_NOT = re.compile(r"not\((.*)\)", re.DOTALL)
_PRESENT = re.compile(r"@([\w-]+)")
_EQUAL = re.compile(r"@([\w-]+)\s*=\s*'([^']*)'")
_FUNCTION = re.compile(r"(re:test|contains|starts-with)\((.*)\)", re.DOTALL)
_TRANSLATED = re.compile(r"translate\((@[\w-]+),\s*'(\w+)',\s*'(\w+)'\)")
_LITERAL = re.compile(r"'([^']*)'")
_OR, _UNION, _COMMA = re.compile(r"\sor\s"), re.compile(r"\|"), re.compile(",")
_OPENING, _CLOSING = "([", ")]"

Test = Callable[[str], bool]


class Unread(ValueError):
    """The expression has an unsupported form."""


class Expression:
    """Selects the elements of a tree like an XPath expression; returns a list in document order, or a lazy iterator."""

    def __init__(self, path: str, *, lazy: bool = False) -> None:
        self._lazy = lazy
        branches = [_Branch(part) for part in _split(path, _UNION)]
        tags = [branch.tags for branch in branches]
        self._tags = frozenset[str]().union(*tags) if all(tags) else frozenset({"*"})
        self._plain = frozenset[str]().union(*(branch.tags for branch in branches if not branch.predicates))
        self._others = [branch for branch in branches if branch.predicates]
        self._needs_attributes = all(branch.needs_attributes for branch in self._others)
        self._simple = branches[0].answers if len(branches) == 1 else None

    def __call__(self, tree: Any) -> Any:
        found = self._of_branches(tree) if self._simple is None else self._of_answers(tree, self._simple)
        return found if self._lazy else list(found)

    def _of_answers(self, tree: Any, answers: Mapping[str, _Answers]) -> Iterator[Any]:
        for element in tree.iterdescendants(*self._tags):
            attributes = element.items()
            for name, value in attributes:
                answer = name in answers and answers[name][value]
                if answer and (answer is True or _is_first(name, attributes, answer)):
                    yield element
                    break

    def _of_branches(self, tree: Any) -> Iterator[Any]:
        plain, others = self._plain, self._others
        for element in tree.iterdescendants(*self._tags):
            tag = element.tag
            if tag in plain:
                yield element
            elif others:
                attributes = element.items()
                if (attributes or not self._needs_attributes) and any(each.selects(tag, attributes) for each in others):
                    yield element


def expression(path: XPath, *, first: bool = False) -> Any:
    """Return a fast equivalent of `path`, or `path` itself if it is unsupported.

    With `first`, for callers that need only the first element, the result returns a lazy iterator.
    """
    text = path.path
    if first:  # `(.//A)[1]|(.//B)[1]`: the first element of all is the first of A or of B
        parts = [part.removesuffix("[1]") for part in _split(text, _UNION)]
        text = "|".join(part[1:-1] if part.startswith("(") and part.endswith(")") else part for part in parts)
    try:
        return Expression(text, lazy=first)
    except Unread:
        return path


class _Branch:
    """`.//TAG[...][...]`"""

    def __init__(self, text: str) -> None:
        step = _STEP.match(text)
        if not step:
            raise Unread(text)
        predicates = _bracketed(text[step.end() :])
        named = [step[1]] if step[1] != "*" else []
        if not named and predicates and all(map(_SELF.fullmatch, _split(predicates[0], _OR))):
            named = _SELF.findall(predicates.pop(0))
        self.tags = frozenset(named)
        """Empty means any tag."""
        self.predicates = [_Predicate(each) for each in predicates]
        self.needs_attributes = any(each.excluded is None for each in self.predicates)
        simple = len(self.predicates) == 1 and self.needs_attributes
        self.answers = self.predicates[0].answers if simple else None
        """Set if the branch is a single predicate over attributes."""

    def selects(self, tag: str, attributes: Sequence[tuple[str, str]]) -> bool:
        if self.tags and tag not in self.tags:
            return False
        return all(predicate(tag, attributes) for predicate in self.predicates)


class _Predicate:
    """A disjunction of clauses."""

    def __init__(self, text: str) -> None:
        self.excluded: frozenset[str] | None = None
        tests: dict[str, list[tuple[Test, frozenset[str]]]] = {}
        for clause in _split(text, _OR):
            if found := _NOT.fullmatch(clause):
                names = [_SELF.fullmatch(each) for each in _split(found[1], _OR)]
                if self.excluded is not None or not all(names):
                    raise Unread(clause)
                self.excluded = frozenset(each[1] for each in names if each)
            else:
                names_of, test = _clause(clause)
                for name in names_of:
                    tests.setdefault(name, []).append((test, names_of if len(names_of) > 1 else frozenset()))
        self.answers: Mapping[str, _Answers] = {name: _Answers(each) for name, each in tests.items()}

    def __call__(self, tag: str, attributes: Sequence[tuple[str, str]]) -> bool:
        if self.excluded is not None and tag not in self.excluded:
            return True
        for name, value in attributes:
            answer = name in self.answers and self.answers[name][value]
            if answer and (answer is True or _is_first(name, attributes, answer)):
                return True
        return False


def _is_first(name: str, attributes: Sequence[tuple[str, str]], unions: Sequence[frozenset[str]]) -> bool:
    """Whether the attribute is the first of one of these unions in the source."""
    return any(next(other for other, _ in attributes if other in union) == name for union in unions)


class _Answers(dict[str, Any]):
    """Cache: value -> True if it matches, or the unions in which its attribute must come first (empty: no match)."""

    def __init__(self, tests: Sequence[tuple[Test, frozenset[str]]]) -> None:
        super().__init__()
        self._tests = tests

    def __missing__(self, value: str) -> Any:
        unions = [names for test, names in self._tests if test(value)]
        answer = True if frozenset() in unions else tuple(unions)
        if len(value) <= MAX_REMEMBERED_CHARACTERS:
            if len(self) >= MAX_ANSWERS:
                self.clear()
            self[value] = answer
        return answer


def _clause(text: str) -> tuple[frozenset[str], Test]:
    """Parse a clause to its attributes, and a test for the first of them that an element has."""
    if found := _PRESENT.fullmatch(text):
        return frozenset({found[1]}), lambda _: True
    if found := _EQUAL.fullmatch(text):
        wanted = found[2]
        return frozenset({found[1]}), wanted.__eq__
    called = _FUNCTION.fullmatch(text)
    if not called:
        raise Unread(text)
    function, (subject, *literals) = called[1], _split(called[2], _COMMA)
    given = [_LITERAL.fullmatch(each) for each in literals]
    if not given or not all(given):
        raise Unread(text)
    test = _test(function, *(each[1] for each in given if each))
    if found := _TRANSLATED.fullmatch(subject):
        test = _of_translated(test, str.maketrans(found[2], found[3]))
        subject = found[1]
    names = [_PRESENT.fullmatch(each) for each in _split(subject, _UNION)]
    if not all(names):
        raise Unread(text)
    return frozenset(each[1] for each in names if each), test


def _test(function: str, literal: str, flags: str = "") -> Test:
    if flags not in ("", "i") or (flags and function != "re:test"):
        raise Unread(flags)
    if function == "contains":
        return lambda value: literal in value
    if function == "starts-with":
        return lambda value: value.startswith(literal)
    search = re.compile(literal, re.IGNORECASE if flags else 0).search
    if search(""):
        raise Unread(literal)  # in XPath it would match elements without the attribute
    return lambda value: search(value) is not None


def _of_translated(test: Test, table: Mapping[int, int]) -> Test:
    return lambda value: test(value.translate(table))


def _bracketed(text: str) -> list[str]:
    """Return the contents of `[...][...]`."""
    text, predicates = text.strip(), []
    while text:
        end = _end(text)
        predicates.append(text[1:end].strip())
        text = text[end + 1 :].strip()
    return predicates


def _end(text: str) -> int:
    """Return the position of the bracket that closes the first one."""
    if not text.startswith("["):
        raise Unread(text)
    return next(place for place, level in _levels(text) if level == 0 and text[place] == "]")


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split at separators outside brackets and literals."""
    outside = {place for place, level in _levels(text) if level == 0}
    between = [each.span() for each in separator.finditer(text) if each.start() in outside]
    starts, ends = [0, *(end for _, end in between)], [*(start for start, _ in between), len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _levels(text: str) -> Iterator[tuple[int, int]]:
    """Yield each position outside literals, and how many brackets are open after it."""
    level, quoted = 0, False
    for place, character in enumerate(text):
        if character == "'":
            quoted = not quoted
        elif not quoted:
            level += (character in _OPENING) - (character in _CLOSING)
            yield place, level
