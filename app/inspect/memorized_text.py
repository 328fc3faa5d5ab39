"""What a model memorised as text: the shares of figure 5 and table 6, and the longest matches with their posts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webtext.app.inspect.lookup import START_CHARACTERS
from webtext.app.inspect.trace import Tracer
from webtext.app.inspect.trace_text import trace_text
from webtext.clean.decontaminate.comparison import aligned, percent

CURVES = {"generated": "generated texts", "held_out": "held-out texts"}
HEAD = ("texts", "n-grams", "in training set", "median text", "texts without")
Found = Mapping[str, Any]


def memorized_text(found: Found, build: str) -> str:
    """Return the shares and the longest matches, each traced to its posts."""
    lines = [aligned([["", *HEAD], *([label, *_cells(found[name])] for name, label in CURVES.items())]), _error(found)]
    if found["sets"]:
        rows = [[each["name"], f"{each['ngrams']:,}", percent(each["overlap_ratio"])] for each in found["sets"]]
        lines.append("\n" + aligned([["evaluation set", *HEAD[1:3]], *rows]))
    traces = Tracer(build).trace_documents([match["id"] for match in found["matches"]])
    for match in found["matches"]:
        lines.append(f"\nsample {match['sample']}: {_size(match)}: {match['passage'][:START_CHARACTERS]!r}")
        lines.append(f"document {match['id']}, character {match['place']:,}")
        lines += [trace_text(traces[match["id"]])] if match["id"] in traces else []
    return "\n".join(lines)


def _cells(curve: Found) -> list[str]:
    shares = (percent(curve[key]) for key in ("share", "median", "without"))
    return [f"{curve['texts']:,}", f"{curve['ngrams']:,}", *shares]


def _error(found: Found) -> str:
    failed = "".join(f"; {n:,} documents not searched: {reason}" for reason, n in found["failed"].items())
    wrong = found["filter"]["false_positives"]
    return f"expected false positives, at most {wrong:.1e} of n-grams, are subtracted{failed}"


def _size(match: Found) -> str:
    more = f" in {match['documents']:,} documents" if match["documents"] > 1 else ""
    return f"{match['words']:,} words, {match['characters']:,} characters{more}"
