"""The command line of a bench: `--help` prints its docstring."""

from __future__ import annotations

import argparse
from typing import Any


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of the bench."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def positional(doc: str | None, **defaults: Any) -> list[Any]:
    """Return the arguments in order, each of its default's type."""
    given = parser(doc)
    for name, default in defaults.items():
        given.add_argument(name, nargs="?", type=type(default), default=default, help="default: %(default)s")
    return list(vars(given.parse_args()).values())


def words(doc: str | None, *names: str) -> list[str]:
    """Return the arguments of a program that a bench starts, all of which are needed."""
    given = parser(doc)
    for name in names:
        given.add_argument(name)
    return list(vars(given.parse_args()).values())
