"""Progress display: a bar on a terminal, plain lines in a log, or nothing."""

from __future__ import annotations

import sys
import time
from typing import Any

SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Counter of finished units that shows nothing."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.done = 0

    def advance(self, n: int = 1, note: str = "") -> None:
        """Count n more finished units; `note` is a short text to show after the count."""
        self.done += n

    def close(self) -> None:
        """End the display."""


class Lines(Progress):
    """Progress as one plain line every 30 seconds, so that a log stays readable but can still be watched."""

    def __init__(self, total: int | None, label: str, unit: str) -> None:
        super().__init__(total)
        self._label = label
        self._unit = unit
        self._start = self._last = time.monotonic()

    def advance(self, n: int = 1, note: str = "") -> None:
        self.done += n
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            print(self._line(now - self._start, note), file=sys.stderr, flush=True)

    def _line(self, seconds: float, note: str) -> str:
        of_total = f" of {self.total:,}" if self.total is not None else ""
        left = ""
        if self.total and 0 < self.done <= self.total:
            left = f", {_duration(seconds / self.done * (self.total - self.done))} left"
        behind = f" · {note}" if note else ""
        return f"{self._label}: {self.done:,}{of_total} {self._unit} after {_duration(seconds)}{left}{behind}"


class Bar(Progress):
    """Progress as a live bar. rich is imported only here."""

    def __init__(self, total: int | None, label: str, unit: str) -> None:
        super().__init__(total)
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit)]
        columns += [TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}")]
        self._bar = RichProgress(*columns, console=Console(stderr=True))
        self._bar.start()
        self._task = self._bar.add_task(label, total=total, note="")

    def advance(self, n: int = 1, note: str = "") -> None:
        self.done += n
        self._bar.update(self._task, advance=n, note=note)

    def close(self) -> None:
        self._bar.stop()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
