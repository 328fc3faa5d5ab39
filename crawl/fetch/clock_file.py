"""A file of how long each host must be left alone, so that politeness survives a kill.

A line has the clock's name, the time it was written, the time until which to wait, and the pace in seconds. Times are
wall-clock times, the only ones that a new process or a reboot can compare. If the wall clock is set back, no wait gets
longer than the recorded one.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from webtext.base.storage import Folder

NAME = "clocks.tsv"
MAX_LINES = 100_000  # then the file is rewritten with the clocks that still matter
FORGOTTEN_SECONDS = 30 * 86_400.0  # the longest wait, whatever a site asked for


class NotedClock(NamedTuple):
    """The recorded clock of one host or address: seconds to wait from now, and seconds between two requests."""

    name: str
    wait: float
    pace: float


class ClockFile:
    """The clock file in `folder`. An incomplete line, left by a kill, or a damaged one is skipped."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file = -1
        self._n_lines = 0

    def read(self) -> list[NotedClock]:
        """Return the recorded clocks. The latest line of each clock counts."""
        now = time.time()
        text = self._path.read_text(encoding="ascii", errors="replace") if self._path.exists() else ""
        notes = filter(None, (_parse(line, now) for line in text.splitlines(keepends=True)))
        return list({noted.name: noted for noted in notes}.values())

    def begin(self, clocks: Iterable[NotedClock]) -> None:
        """Rewrite the file with these clocks, and open it for appending."""
        self.close()
        now = time.time()
        text = "".join(_line(now, *clock) for clock in clocks)
        Folder(self._path.parent).write_bytes(NAME, text.encode("ascii"))
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._n_lines = 0

    @property
    def is_long(self) -> bool:
        return self._n_lines >= MAX_LINES

    def note(self, *clocks: tuple[str, float, float]) -> None:
        """Append (name, seconds to wait, pace) of each clock, in a single write."""
        now = time.time()
        self._n_lines += len(clocks)
        os.write(self._file, "".join([_line(now, *clock) for clock in clocks]).encode())

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _line(now: float, name: str, wait: float, pace: float) -> str:
    return f"{name}\t{now:.3f}\t{now + min(wait, FORGOTTEN_SECONDS):.3f}\t{pace:.3f}\n"


def _parse(line: str, now: float) -> NotedClock | None:
    fields = line.split("\t")
    if len(fields) != 4 or not line.endswith("\n") or not line.isascii():
        return None
    try:
        written, until, pace = map(float, fields[1:])
    except ValueError:
        return None
    if not all(map(math.isfinite, (written, until, pace))):
        return None
    wait = min(until - now, until - written, FORGOTTEN_SECONDS)
    return NotedClock(fields[0], max(wait, 0.0), max(pace, 0.0))
