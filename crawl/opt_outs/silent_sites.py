"""Records sites that never answer: in how many runs each was asked, and since when. Used for `--take-gone-sites`.

RFC 9309 section 2.3.1.4: an unreachable robots.txt forbids everything until it has been unreachable "for a reasonably
long period of time (for example, 30 days)". A line of the file has an origin, the times of its first and latest try,
and the number of runs with a try, or 0 if it has answered since. Several requests in one run count as one try.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from webtext.base.storage import Folder

NAME = "silent.tsv"
DAY = 86_400.0
GONE_RUNS, GONE_DAYS = 3, 30.0  # RFC 9309's example; several runs, so that one outage of ours is not a site's end


class SilentSites:
    """The origins that were asked and never answered. With `path` None, they are known in this run only."""

    def __init__(self, path: Path | None, min_runs: int, min_days: float) -> None:
        self._path = path
        self._min_runs = min_runs
        self._min_seconds = min_days * DAY
        self._known: dict[str, tuple[float, float, int]] = {}
        self._tried: set[str] = set()
        text = path.read_text(encoding="utf-8", errors="replace") if path is not None and path.exists() else ""
        for line in text.splitlines(keepends=True):
            self._take(line)
        if path is not None and text:
            known = "".join(_line(origin, *each) for origin, each in self._known.items())
            Folder(path.parent).write_bytes(path.name, known.encode())

    def did_not_answer(self, origin: str) -> None:
        """Count a try of this run, once per origin."""
        if origin not in self._tried:
            self._tried.add(origin)
            now = time.time()
            first, _, n_runs = self._known.get(origin, (now, now, 0))
            self._note(origin, first, now, n_runs + 1)

    def answered(self, origin: str) -> None:
        """Reset the tries of an origin, because it answered."""
        if origin in self._known:
            self._note(origin, 0.0, 0.0, 0)

    def is_gone(self, origin: str) -> bool:
        """Whether the origin never answered in `min_runs` runs over `min_days` days."""
        first, latest, n_runs = self._known.get(origin, (0.0, 0.0, 0))
        return n_runs >= self._min_runs and latest - first >= self._min_seconds

    def is_waiting(self, origin: str) -> bool:
        """Whether a later run may find that `origin` is gone."""
        return self._path is not None and origin in self._known and not self.is_gone(origin)

    def _note(self, origin: str, first: float, latest: float, n_runs: int) -> None:
        line = _line(origin, first, latest, n_runs)
        self._take(line)
        if self._path is not None:
            # a full disk raises an error where pages are written
            with contextlib.suppress(OSError), open(self._path, "a", encoding="utf-8") as file:
                file.write(line)

    def _take(self, line: str) -> None:
        """Read a line. An incomplete one, left by a kill, is skipped."""
        try:
            origin, first, latest, n_runs = line.split("\t")
            known = float(first), float(latest), int(n_runs)
        except ValueError:
            return
        if line.endswith("\n"):
            self._known.pop(origin, None)
            if known[2] > 0:
                self._known[origin] = known


def _line(origin: str, first: float, latest: float, n_runs: int) -> str:
    return f"{origin}\t{first:.0f}\t{latest:.0f}\t{n_runs}\n"
