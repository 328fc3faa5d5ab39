"""Print what a model memorised as text, and draw it as a page: figure 5, table 6 and the longest matches."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from webtext.app.inspect.lookup import START_CHARACTERS
from webtext.app.inspect.trace import Tracer
from webtext.app.inspect.trace_text import trace_text
from webtext.base.line_chart import Line, line_chart
from webtext.clean.decontaminate.comparison import aligned, percent
from webtext.train.evaluate.page import colour, page, paragraphs, swatch, table

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


def memorized_page(found: Found, build: str) -> str:
    """Return the page; all text of documents and models is escaped."""
    drawn = [(colour(i), found[name]["shares"]) for i, name in enumerate(CURVES) if found[name]["shares"]]
    largest = max((shares[-1] for _, shares in drawn), default=0)
    points = [
        [(100 * x, 100 * (n + 1) / len(xs)) for n, x in enumerate(xs)] + [(100 * largest, 100)] for _, xs in drawn
    ]
    lines = [Line(some, "held-out", each) for (each, _), some in zip(drawn, points, strict=True)]
    x_label, y_label = "8-grams of a text that occur in the training set, %", "texts with at most as many, %"
    rows = [[f"{swatch(colour(i))}{CURVES[name]}", *_cells(found[name])] for i, name in enumerate(CURVES)]
    sets = [[escape(each["name"]), f"{each['ngrams']:,}", percent(each["overlap_ratio"])] for each in found["sets"]]
    matches = [[*map(escape, _match(each))] for each in found["matches"]]
    return page(
        f"What the model repeats of {build}",
        line_chart(lines, x_label=x_label, y_label=y_label, label="figure 5", height=380) if lines else "",
        table(["", *HEAD], rows),
        paragraphs([_error(found)]),
        "<h2>Evaluation sets</h2>" + table(["set", *HEAD[1:3]], sets) if sets else "",
        "<h2>Longest matches</h2>" + table(["passage", "length", "document", "votes"], matches, words=range(4))
        if matches
        else "",
    )


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


def _match(match: Found) -> list[str]:
    posts = (f"{post['source']} {post['post_id']}: {post['score']:,} points" for post in match["posts"][:5])
    document = f"{match['url'] or ''} {match['id']} {match['warc_file'] or ''} {match['warc_offset'] or ''}"
    return [match["passage"], _size(match), document, "; ".join(posts) or f"karma {match['karma']}"]
