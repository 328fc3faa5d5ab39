"""Markdown for the dataset card, in which untrusted text is shown but never takes effect."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence

from webtext.clean.card.facts import Span

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_MAX_NAME = 80


def escaped(text: str) -> str:
    """Return untrusted text as Markdown that only shows it: one line, no markup, no links, no control characters.

    >>> escaped("[x](http://a.example)|<b>")
    '\\\\[x\\\\]\\\\(http\\\\:\\\\/\\\\/a\\\\.example\\\\)\\\\|\\\\<b\\\\>'
    """
    short = text if len(text) <= _MAX_NAME else text[: _MAX_NAME - 1] + "…"
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in short)
    return _PUNCTUATION.sub(r"\\\1", shown)


def code(name: str) -> str:
    """Return a plain name as inline code, and any other name escaped."""
    return f"`{name}`" if len(name) <= _MAX_NAME and _PLAIN_NAME.fullmatch(name) else escaped(name)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; the cells are Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def days(span: Span) -> str:
    """Return the first and the last day of a span in words, in UTC."""
    if span.first is None or span.last is None:
        return "at times that are not known"
    return f"from {_day(span.first)} to {_day(span.last)}"


def _day(seconds: int) -> str:
    try:
        return time.strftime("%Y-%m-%d", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return f"second {seconds}"
