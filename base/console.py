"""All output to the user: messages on stderr, data on stdout, in one of three modes.

human   messages, progress, and the result as text
json    the result as one JSON object on stdout, and progress as JSON objects on stderr
quiet   errors and warnings only
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from webtext.base.errors import WebtextError, visible
from webtext.base.storage import strict_json

Mode = Literal["human", "json", "quiet"]
SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_EVENTS = 1.0
WINDOW_SECONDS = 30.0
"""Speeds are of this time, so that they follow a change."""


class Console:
    """The only object that prints."""

    def __init__(self, mode: Mode = "human") -> None:
        self.mode: Mode = mode
        self.said = deque[str](maxlen=10_000)  # in a dry run: its plan

    def say(self, text: str) -> None:
        self.said.append(text)
        if self.mode == "human":
            print(visible(text), file=sys.stderr, flush=True)

    @staticmethod
    def warn(text: str) -> None:
        """Print a warning on stderr, in every mode."""
        print(f"warning: {visible(text)}", file=sys.stderr, flush=True)

    def result(self, value: Mapping[str, Any], text: str, *, coloured: bool = False) -> None:
        """Print the verb's result on stdout: `value` as JSON in json mode, `text` in human mode, nothing in quiet.

        A `coloured` text has escape sequences of its own, so the caller has escaped the controls of untrusted text.
        """
        if self.mode == "json":
            line = strict_json(value, ensure_ascii=False, sort_keys=True)
            print(line if visible(_printable(line)) == line else strict_json(value, sort_keys=True), flush=True)
        elif self.mode == "human" and text:
            print(text if coloured else _printable(text), flush=True)

    def stream(self, pieces: Iterable[str]) -> str:
        """Return the joined pieces of a result; human mode also prints each piece as soon as it arrives."""
        whole = []
        for piece in pieces:
            whole.append(piece)
            if self.mode == "human":
                print(_printable(piece), end="", flush=True)
        if self.mode == "human":
            print(flush=True)
        return "".join(whole)

    def error(self, error: WebtextError) -> None:
        print(visible("error: " + "\n  ".join(error.lines)), file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def progress(self, total: int | None, label: str, unit: str, begun: int = 0) -> Iterator[Progress]:
        """Show progress over `total` units: in human mode a panel or lines, in json mode events, in quiet mode nothing."""
        kind = {"human": Panel if has_cursor() else Lines, "json": Events, "quiet": Progress}[self.mode]
        progress = kind(total, visible(label), unit, begun)
        try:
            yield progress
        finally:
            progress.close()


def _printable(text: str) -> str:
    """Escape characters that stdout's encoding lacks (a file name that isn't UTF-8), and on a terminal all controls."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    return visible(text) if sys.stdout.isatty() else text


def counted(n: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "link"), counted(1000, "link"), counted(2, "corpus", "corpora")
    ('1 link', '1,000 links', '2 corpora')
    """
    return f"{n:,} {singular if n == 1 else plural or f'{singular}s'}"


def funnel_text(title: str, counts: Mapping[str, Any]) -> str:
    """Format a funnel as aligned lines: in, kept, then each reason; `counts` is what `Counts.to_json` returns."""
    rows = {"in": counts["records_in"], "kept": counts["kept"]}
    rows |= {f"{kind}: {reason}": n for kind in ("dropped", "failed") for reason, n in counts[kind].items()}
    width = max(map(len, rows))
    return "\n".join([title, *(f"  {label:<{width}}  {n:>12,}" for label, n in rows.items())])


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
        print(strict_json(about | self.facts), file=sys.stderr, flush=True)

    def close(self) -> None:
        self._show("end")


class Panel(Progress):
    """Progress as a live line with a bar on a terminal, cut at its width. rich is imported only here."""

    _interval = 0.25

    def __init__(self, total: int | None, label: str, unit: str, begun: int) -> None:
        super().__init__(total, label, unit, begun)
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            TextColumn("{task.fields[text]}", markup=False),
            console=_terminal(),
            redirect_stdout=sys.stdout.isatty(),  # otherwise results belong in the file or pipe that stdout is
            refresh_per_second=4,
            transient=": " in label,  # a step within a stage, such as "clean.dedup: sign", leaves no line
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
