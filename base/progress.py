"""Progress of a stage: a live line on a terminal, plain lines in a log, JSON events for programs, or nothing."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import time
from collections import deque
from typing import Any

from webtext.base.errors import visible

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_EVENTS = 1.0
WINDOW_SECONDS = 30.0
"""Speeds are of this time, so that they follow a change."""


class Progress:
    """Counter of finished units, and of records within those under way, that shows nothing.

    `label` names what is under way, e.g. 'clean.extract', and `unit` what is counted, in the plural. Both are shown, so
    they have no control characters. An earlier run has finished `begun` units.
    """

    def __init__(self, total: int | None = None, label: str = "", unit: str = "", begun: int = 0) -> None:
        self.total, self.label, self.unit, self.begun = total, label, unit, begun
        self.done, self.records = begun, 0
        self.note, self.facts = "", dict[str, float]()
        self._start = self._shown = time.monotonic()
        self._samples = deque([(self._start, 0)])  # (moment, records), about one per second

    def advance(self, n: int = 1, note: str = "", **facts: float) -> None:
        """Count n more finished units; `note` is for people, `facts` for programs."""
        self.done += n
        self.note, self.facts = note, facts
        self._tick()

    def at(self, n_records: int) -> None:
        """Note how many records have been read so far, also in unfinished units."""
        self.records = n_records
        self._tick()

    def close(self) -> None:
        """End the display."""

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._start

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the mean speed so far; None if nothing is finished or the total is unknown."""
        if self.total is None or not self.begun < self.done <= self.total:
            return None
        return self.seconds / (self.done - self.begun) * (self.total - self.done)

    @property
    def records_per_second(self) -> float:
        """The speed in the last WINDOW_SECONDS."""
        then, n_then = self._samples[0]
        return (self.records - n_then) / max(time.monotonic() - then, 1e-3)

    def text(self) -> str:
        """Return everything but the label as one line."""
        of_total = f" of {self.total:,}" if self.total is not None else ""
        left = "" if self.seconds_left is None else f", {_duration(self.seconds_left)} left"
        records = f"{self.records:,} records, {self.records_per_second:,.0f} per second" if self.records else ""
        behind = "".join(f" · {each}" for each in (records, visible(self.note)) if each)
        return f"{self.done:,}{of_total} {self.unit} after {_duration(self.seconds)}{left}{behind}"

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._samples[-1][0] >= 1.0:
            self._samples.append((now, self.records))
            while len(self._samples) > 2 and now - self._samples[0][0] > WINDOW_SECONDS:
                self._samples.popleft()
        if now - self._shown >= self._interval:
            self._shown = now
            self._show()

    _interval = math.inf

    def _show(self) -> None:
        """Show the present state; called every `_interval` seconds at most."""


class Lines(Progress):
    """Progress as one plain line every 30 seconds, so that a log stays readable but can still be watched."""

    _interval = SECONDS_BETWEEN_LINES

    def _show(self) -> None:
        print(f"{self.label}: {self.text()}", file=sys.stderr, flush=True)


class Events(Progress):
    """Progress as JSON objects on stderr, one per line: at most one a second, and one at the end."""

    _interval = SECONDS_BETWEEN_EVENTS

    def _show(self, event: str = "progress") -> None:
        left = None if self.seconds_left is None else round(self.seconds_left, 3)
        about = {"event": event, "label": self.label, "unit": self.unit, "done": self.done, "total": self.total}
        about |= {"records": self.records, "seconds": round(self.seconds, 3), "seconds_left": left}
        about |= {name: fact if math.isfinite(fact) else None for name, fact in self.facts.items()}  # JSON has no NaN
        print(json.dumps(about), file=sys.stderr, flush=True)

    def close(self) -> None:
        self._show("end")


class Panel(Progress):
    """Progress as a live line with a bar on a terminal, cut at its width. rich is imported only here."""

    _interval = 0.25

    def __init__(self, total: int | None, label: str, unit: str, begun: int) -> None:
        super().__init__(total, label, unit, begun)
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}", markup=False), BarColumn(20))
        self._bars = Bars(
            *columns,
            TextColumn("{task.fields[text]}", markup=False),
            console=_terminal(),
            redirect_stdout=sys.stdout.isatty(),  # otherwise results belong in the file or pipe that stdout is
            refresh_per_second=4,
        )
        self._task = self._bars.add_task(label, total=total, completed=begun, text=self.text())
        self._bars.start()

    def _show(self) -> None:
        self._bars.update(self._task, completed=self.done, text=self.text())

    def close(self) -> None:
        self._show()
        self._bars.stop()


@functools.cache
def _terminal() -> Any:
    """Return rich's console, one for all panels: rich shows a step within a step below it, but only on one console.

    Messages above a panel are neither wrapped at words nor coloured, so that a path in them can be copied.
    """
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False)


def has_cursor() -> bool:
    """Whether stderr is a terminal whose cursor can be moved."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb").lower() not in ("dumb", "unknown")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
