"""What the user sees: talk on stderr, data on stdout, in one of three modes.

human   talk, progress, and the answer as text
json    the answer as one JSON object on stdout, nothing else
quiet   errors only
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from webtext.base.errors import WebtextError
from webtext.base.outcomes import why_empty
from webtext.base.progress import Bar, Lines, Progress, Silent

if TYPE_CHECKING:
    from webtext.base.partset import PartSet

Mode = Literal["human", "json", "quiet"]


class Console:
    """The one place that prints."""

    def __init__(self, mode: Mode = "human") -> None:
        self.mode: Mode = mode

    def say(self, text: str) -> None:
        """Talk, on stderr; nothing under json and quiet."""
        if self.mode == "human":
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """What the user should know even under json and quiet."""
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def warn_if_empty(self, made: PartSet) -> None:
        """Warn where a set that was just made kept no record, with the likely cause."""
        if said := why_empty(made):
            self.warn("\n  ".join(said))

    def result(self, value: Mapping[str, Any], text: str) -> None:
        """The verb's answer, on stdout: the value as JSON under json, the text under human, nothing under quiet."""
        if self.mode == "json":
            line = json.dumps(value, ensure_ascii=False, sort_keys=True)
            print(line if _printable(line) == line else json.dumps(value, sort_keys=True), flush=True)
        elif self.mode == "human" and text:
            print(_printable(text), flush=True)

    def stream(self, pieces: Iterable[str]) -> str:
        """An answer that comes piece by piece: shown so under human, only gathered under json and quiet; returns it whole."""
        whole = []
        for piece in pieces:
            whole.append(piece)
            if self.mode == "human":
                print(_printable(piece), end="", flush=True)
        if self.mode == "human":
            print(flush=True)
        return "".join(whole)

    def error(self, error: WebtextError) -> None:
        """An error, on stderr in every mode."""
        first, *rest = error.lines
        print("\n".join([f"error: {first}", *(f"  {line}" for line in rest)]), file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def progress(self, total: int | None, label: str, unit: str) -> Iterator[Progress]:
        """Progress over `total` units: a bar on a terminal, else a plain line every 30 s, nothing under json and quiet."""
        if self.mode != "human":
            progress: Progress = Silent(total)
        elif sys.stderr.isatty():
            progress = Bar(total, label, unit)
        else:
            progress = Lines(total, label, unit)
        try:
            yield progress
        finally:
            progress.close()


def _printable(text: str) -> str:
    """The text with what stdout's encoding cannot say (a file name that is no UTF-8, any letter under ASCII) escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def funnel_text(title: str, counts: Mapping[str, Any]) -> str:
    """A funnel as aligned lines: in, kept, then each reason; `counts` as `Counts.to_json` gives it."""
    rows = [("in", counts["records_in"]), ("kept", counts["kept"])]
    rows += [(f"dropped: {reason}", n) for reason, n in counts["dropped"].items()]
    rows += [(f"failed: {reason}", n) for reason, n in counts["failed"].items()]
    rows += [("of these reused", counts["reused"])] if counts.get("reused") else []
    width = max(len(label) for label, _ in rows)
    return "\n".join([title, *(f"  {label:<{width}}  {n:>12,}" for label, n in rows)])
