"""All output to the user: messages on stderr, data on stdout, in one of three modes.

human   messages, progress, and the result as text
json    the result as one JSON object on stdout, and progress as JSON objects on stderr
quiet   errors and warnings only
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from webtext.base.errors import WebtextError, visible
from webtext.base.progress import Events, Lines, Panel, Progress, has_cursor

Mode = Literal["human", "json", "quiet"]


class Console:
    """The only object that prints."""

    def __init__(self, mode: Mode = "human") -> None:
        self.mode: Mode = mode

    def say(self, text: str) -> None:
        if self.mode == "human":
            print(visible(text), file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Print a warning on stderr, in every mode."""
        print(f"warning: {visible(text)}", file=sys.stderr, flush=True)

    def result(self, value: Mapping[str, Any], text: str, *, coloured: bool = False) -> None:
        """Print the verb's result on stdout: `value` as JSON in json mode, `text` in human mode, nothing in quiet.

        A `coloured` text has escape sequences of its own, so the caller has escaped the controls of untrusted text.
        """
        if self.mode == "json":
            line = json.dumps(value, ensure_ascii=False, sort_keys=True)
            print(line if visible(_printable(line)) == line else json.dumps(value, sort_keys=True), flush=True)
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
        first, *rest = error.lines
        print(visible("\n".join([f"error: {first}", *(f"  {line}" for line in rest)])), file=sys.stderr, flush=True)

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
    """Escape what stdout's encoding can't represent (a file name that isn't UTF-8), and on a terminal all controls."""
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
    rows = [("in", counts["records_in"]), ("kept", counts["kept"])]
    rows += [(f"dropped: {reason}", n) for reason, n in counts["dropped"].items()]
    rows += [(f"failed: {reason}", n) for reason, n in counts["failed"].items()]
    width = max(len(label) for label, _ in rows)
    return "\n".join([title, *(f"  {label:<{width}}  {n:>12,}" for label, n in rows)])
