"""How far training is, on one scale for counting and merging whose fraction is proportional to time.

Counting takes time in proportion to the text. Merging takes time in proportion to the distinct pieces, whose bytes grow
with the power 0.62 of the text's (35 n^0.62); one of them takes as long as 40 bytes of text on one thread. A fifth of
that passes before the first merge. Merges then become faster: the first k of n take about (k/n)^(1/4) of the time. All
of this was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from webtext.base.errors import ConfigError
from webtext.tokenizer.arguments import shown
from webtext.tokenizer.text import Text

Report = Callable[[float | None, int, int], object]
"""Called with the fraction of all work that is done (None while it is unknown), the size of the texts counted so far (the
sum of their len), and the number of merges. The fraction never falls, and is 1 only after all work."""

REPORTED_BYTES = 1 << 20  # reporting every small text would take longer than counting it
_MERGING, _HEAPS = 35 * 40, 0.62
_BEFORE_MERGES, _POWER = 0.2, 0.25
_ALMOST = 0.999


class TrainingProgress:
    """Computes the fraction from the bytes counted and the tokens merged, and reports it."""

    def __init__(self, report: Report, threads: int, n_merges: int = 0) -> None:
        if not callable(report):
            raise ConfigError(f"progress is {shown(report)}", "expected a function of fraction, bytes and merges")
        self.n_merges = n_merges
        self._report, self._threads = report, threads
        self._n_bytes = 0
        self._fraction: float | None = None

    def watch(self, texts: Iterable[Text]) -> Iterator[Text]:
        """Yield texts and report their sizes; how many there are is known for a list or a tuple."""
        listed = texts if isinstance(texts, list | tuple) else ()
        total = sum(len(text) for text in listed if hasattr(text, "__len__"))
        n_done = n_new = 0
        for text in texts:
            yield text
            n_new += len(text)
            if n_new >= REPORTED_BYTES:
                n_done += n_new
                self.counted(n_new, n_done / total if total else None)
                n_new = 0
        self.counted(n_new, 1.0)

    def counted(self, n_bytes: int, share: float | None) -> None:
        """Report that `n_bytes` more are counted, and `share` of all texts so far, if that is known."""
        self._n_bytes += n_bytes
        self._advance(share and share * self._counting(self._n_bytes / share), 0)

    def merged(self, n_merges: int, loaded: float = 1.0) -> None:
        """Report the number of merges so far, and the share of the pieces that is loaded to be merged."""
        counting = self._counting(self._n_bytes)
        done = _BEFORE_MERGES * loaded
        if n_merges:
            done += (1 - _BEFORE_MERGES) * (n_merges / self.n_merges) ** _POWER
        self._advance(counting + (1 - counting) * done, n_merges)

    def finish(self, n_merges: int) -> None:
        """Report the end."""
        self._report(1.0, self._n_bytes, n_merges)

    def _counting(self, n_bytes: float) -> float:
        """Return the share of counting in all work."""
        if not self.n_merges:
            return 1.0
        merging = self._threads * _MERGING * n_bytes**_HEAPS
        return n_bytes / (n_bytes + merging) if n_bytes else 0.0

    def _advance(self, fraction: float | None, n_merges: int) -> None:
        if fraction is not None:
            self._fraction = max(self._fraction or 0.0, min(fraction, _ALMOST))
        self._report(self._fraction, self._n_bytes, n_merges)
