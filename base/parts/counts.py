"""The funnel: how many records came in, were kept, were dropped and failed, by reason.

Imports nothing, so that the tokenizer can use it without the extras.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_FILES = 10  # named in a message


@dataclass(slots=True)
class Counts:
    """A funnel: records in = kept + dropped (by reason) + failed (by reason)."""

    records_in: int = 0  # sum of the others
    kept: int = 0  # records that were kept
    dropped: dict[str, int] = field(default_factory=dict)  # reason to records
    failed: dict[str, int] = field(default_factory=dict)  # reason to records

    def keep(self, n: int = 1) -> None:
        self.records_in += n
        self.kept += n

    def drop(self, reason: str, n: int = 1) -> None:
        self.records_in += n
        self.dropped[reason] = self.dropped.get(reason, 0) + n

    def fail(self, reason: str, n: int = 1) -> None:
        """Count n records that couldn't be processed."""
        self.records_in += n
        self.failed[reason] = self.failed.get(reason, 0) + n

    @property
    def balanced(self) -> bool:
        """Whether records in = kept + dropped + failed."""
        return self.records_in == self.kept + sum(self.dropped.values()) + sum(self.failed.values())

    def __add__(self, other: Counts) -> Counts:
        dropped, failed = Counter(self.dropped), Counter(self.failed)
        dropped.update(other.dropped)
        failed.update(other.failed)
        return Counts(self.records_in + other.records_in, self.kept + other.kept, dict(dropped), dict(failed))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; reasons are sorted."""
        return {
            "records_in": self.records_in,
            "kept": self.kept,
            "dropped": dict(sorted(self.dropped.items())),
            "failed": dict(sorted(self.failed.items())),
        }


def failed_lines(by_file: Mapping[str, Mapping[str, int]]) -> str:
    """Return a line per file with its failed records by reason, for the first MOST_FILES that have some.

    >>> print(failed_lines({"a.csv": {"no_text": 2, "not_json": 1}, "b.txt": {"not_utf8": 1}, "c.txt": {}}))
      a.csv: 2 no_text, 1 not_json
      b.txt: 1 not_utf8
    """
    failed = {file: reasons for file, reasons in by_file.items() if reasons}
    lines = [
        f"  {file}: " + ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items()))
        for file, reasons in list(failed.items())[:MOST_FILES]
    ]
    return "\n".join(lines + [f"  and {n:,} more files" for n in [len(failed) - MOST_FILES] if n > 0])
