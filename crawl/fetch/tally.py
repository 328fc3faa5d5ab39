"""The note in a crawl's progress line: the pace of the last minute, and the number of links by outcome."""

from __future__ import annotations

import time
from collections import Counter, deque

WINDOW_SECONDS = 60.0
SAMPLE_SECONDS = 1.0


class Tally:
    """Counts links by outcome, and bytes of pages."""

    def __init__(self) -> None:
        self._outcomes: Counter[str] = Counter()
        self._n_links = 0
        self._n_bytes = 0
        self._samples = deque([(time.monotonic(), 0, 0)])  # (moment, links, bytes) in the last minute
        self._note = ""

    def add(self, outcome: str, n_bytes: int) -> str:
        """Count a finished link, and return the note, which changes at most once per second."""
        self._outcomes[outcome] += 1
        self._n_links += 1
        self._n_bytes += n_bytes
        now = time.monotonic()
        if not self._note or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now, self._n_links, self._n_bytes))
            while len(self._samples) > 2 and now - self._samples[0][0] > WINDOW_SECONDS:
                self._samples.popleft()
            self._note = self.note()
        return self._note

    def note(self) -> str:
        """Return links and bytes per second, and the outcomes."""
        (then, links, n_bytes), (now, *_) = self._samples[0], self._samples[-1]
        seconds = max(now - then, 1e-3)
        pace = f"{(self._n_links - links) / seconds:,.1f} links/s, {(self._n_bytes - n_bytes) / seconds / 2**20:,.2f} MiB/s"
        return ", ".join([pace, *(f"{count:,} {outcome}" for outcome, count in sorted(self._outcomes.items()))])
