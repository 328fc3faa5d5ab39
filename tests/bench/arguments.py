"""The command line of a bench: `--help` prints its docstring, and what else it takes are numbers or the real data's folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from real_data import real_data


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


def data_folder(doc: str | None) -> Path:
    """Return the folder of real data, which is the only argument."""
    given = parser(doc)
    given.add_argument("data", nargs="?", help="folder of real data; default: WEBTEXT_TEST_DATA")
    return real_data(given.parse_args().data)
