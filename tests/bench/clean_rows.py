"""Rows of the table of `bench_clean.py`: the required, the targeted and the measured value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; the cells are Markdown."""

    what: str
    must: str
    aim: str
    found: str


def print_rows(rows: Iterable[Row]) -> None:
    """Print the table as Markdown."""
    print("| what | must | aim | measured |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.must} | {row.aim} | {row.found} |", flush=True)
