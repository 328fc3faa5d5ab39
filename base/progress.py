"""Progress of a stage: a panel on a terminal, plain lines in a log, JSON events for programs, or nothing."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from webtext.base.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_EVENTS = 1.0
WINDOW_SECONDS = 30.0
"""Speeds are of this time, so that they follow a change."""
MIN_WIDTH_WITH_BAR = 60  # columns
CURVE_POINTS = 64
BLOCKS = "▁▂▃▄▅▆▇█"


class Progress:
    """Counter of finished units, and of records within those under way, that shows nothing.

    `label` names what is under way, e.g. 'clean.extract', and `unit` what is counted, in the plural. Both are shown, so
    they have no control characters. An earlier run has finished `begun` units.
    """

    def __init__(self, total: int | None = None, label: str = "", unit: str = "", begun: int = 0) -> None:
        self.total, self.label, self.unit, self.begun = total, label, unit, begun
        self.done, self.records = begun, 0
        self.note, self.facts, self.curve = "", dict[str, float](), list[float]()
        self._points_per_value, self._rest = 1, list[float]()
        self._start = self._shown = time.monotonic()
        self._samples = deque([(self._start, 0)])  # (moment, records), about one per second

    def advance(self, n: int = 1, note: str = "", curve: float | None = None, **facts: float) -> None:
        """Count n more finished units. `note` is for people, `facts` for programs, and `curve` is the next value drawn."""
        self.done += n
        self.note, self.facts = note, facts
        if curve is not None and math.isfinite(curve):
            self._extend(curve)
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
        """Return everything as one line."""
        of_total = f" of {self.total:,}" if self.total is not None else ""
        left = "" if self.seconds_left is None else f", {_duration(self.seconds_left)} left"
        behind = "".join(f" · {each}" for each in self._details() if each)
        return f"{self.label}: {self.done:,}{of_total} {self.unit} after {_duration(self.seconds)}{left}{behind}"

    def _details(self) -> list[str]:
        records = f"{self.records:,} records, {self.records_per_second:,.0f} per second" if self.records else ""
        return [records, visible(self.note)]

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

    def _extend(self, value: float) -> None:
        """Append a value to the curve, whose points are means of equally many values."""
        self._rest.append(value)
        if len(self._rest) < self._points_per_value:
            return
        self.curve.append(sum(self._rest) / len(self._rest))
        self._rest.clear()
        if len(self.curve) == 2 * CURVE_POINTS:
            self.curve = [(one + two) / 2 for one, two in zip(self.curve[::2], self.curve[1::2], strict=True)]
            self._points_per_value *= 2


class Lines(Progress):
    """Progress as one plain line every 30 seconds, so that a log stays readable but can still be watched."""

    _interval = SECONDS_BETWEEN_LINES

    def _show(self) -> None:
        print(self.text(), file=sys.stderr, flush=True)


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
    """Progress as a few live lines on a terminal, cut at its width. rich is imported only here."""

    def __init__(self, total: int | None, label: str, unit: str, begun: int) -> None:
        super().__init__(total, label, unit, begun)
        from rich.live import Live

        self._terminal = _terminal()
        to_terminal = sys.stdout.isatty()  # otherwise results belong in the file or pipe that stdout is
        self._live = Live(
            console=self._terminal, get_renderable=self._rendered, refresh_per_second=4, redirect_stdout=to_terminal
        )
        self._live.start()

    def close(self) -> None:
        self._live.stop()

    def _rendered(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        has_rest = self.seconds_left is not None and self.done != self.total
        left = f", {_duration(self.seconds_left or 0.0)} left" if has_rest else ""
        total = "" if self.total is None else f"/{self.total:,}"
        head = Table.grid(padding=(0, 1))
        has_bar = self.total is not None and self._terminal.width >= MIN_WIDTH_WITH_BAR
        bar: list[Any] = [ProgressBar(self.total, self.done, width=20)] if has_bar else []
        cells = [f"{self.done:,}{total} {self.unit}", f"{_duration(self.seconds)}{left}"]
        head.add_row(Text(self.label, "bold"), *bar, *map(Text, cells))
        details = [self._sparkline(), *self._details()]
        rest = [Text(f"  {line}", "dim", no_wrap=True, overflow="ellipsis") for line in details if line]
        for column in head.columns:
            column.no_wrap, column.overflow = True, "ellipsis"
        return Group(head, *rest)

    def _sparkline(self) -> str:
        if len(self.curve) < 2 or not self._terminal.encoding.startswith("utf"):
            return ""
        shown = self.curve[-CURVE_POINTS:] if self._points_per_value == 1 else self.curve
        low, high = min(shown), max(shown)
        steps = [round((value - low) / ((high - low) or 1.0) * (len(BLOCKS) - 1)) for value in shown]
        return f"{shown[0]:.3f} {''.join(BLOCKS[step] for step in steps)} {shown[-1]:.3f}"


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
