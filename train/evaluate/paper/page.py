"""The page of `train paper`: a section per table and figure of the GPT-2 paper, with the model's own values in a column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from itertools import zip_longest
from typing import Any

from webtext.base.charts import Line
from webtext.train.evaluate.page import chart, page, paragraphs, table
from webtext.train.evaluate.paper.published import IN_TEXT, PARAMETERS, TABLE_5, TITLES

HEIGHT = 280
MARKS = ("wrong", "right")
SHARES = ("accuracy", "8-grams", "median", "without")
STYLE = """
td small{color:var(--soft)}
td:first-child{overflow-wrap:normal}
@media(min-width:40rem){.name{white-space:nowrap}}
.lack{color:#b8480a}
@media(prefers-color-scheme:dark){.lack{color:#f0894e}}
"""
PROTOCOL = {
    "stride": "stride {}",
    "context": "context {}",
    "vocab_size": "tokenizer of {} ids",
    "detokenizer": "de-tokenizer {}",
    "shots": "{} examples before each item",
    "contexts_cut": "{} contexts cut from the left",
}
Found = Mapping[str, Any]
Rows = Sequence[Found]


def paper_page(found: Found) -> str:
    """Return the page of what `measure_paper` found."""
    parts = [paragraphs(_notes(found))]
    for place, title in TITLES.items():
        rows = [row for row in found["rows"] if row["place"] == place]
        parts.append(f"<h2>{place.capitalize()}: {escape(title)}</h2>{paragraphs(IN_TEXT.get(place, ()))}")
        parts += [_drawing(place, rows, found), _table(rows, found) if rows else ""]
        parts += [_most_confident(found)] if place == "table 5" else [_examples(found)] if place == "table 1" else []
        parts.append(paragraphs([text for task in {row["task"]: 0 for row in rows} for text in _protocol(task, found)]))
    return page("The GPT-2 paper and this model", *parts, style=STYLE)


def paper_text(found: Found) -> str:
    """Return a line for each row of the paper: our first value, or what it lacks."""
    return "\n".join(
        f"{row['place']:<9} {row['task'] + ', ' + row['measure']:<48} {_shown(row['ours'][0]) if row['ours'] else row['lack']}"
        for row in found["rows"]
    )


def _notes(found: Found) -> list[str]:
    return [
        f"Ours, in bold: {found['model']}, with {found['parameters']:,} parameters, measured on the sets in {found['data']}.",
        "Small numbers after a measure are the paper's sections. It names few of its units, strides and de-tokenizers.",
    ]


def _table(rows: Rows, found: Found) -> str:
    """Return the paper's values by whose they are, and ours after the column of the closest size."""
    whose = list(dict.fromkeys(name for row in rows for name in row["paper"]))
    at = whose.index(found["closest"]) + 1 if found["closest"] in whose else len(whose)
    lines = []
    for row in rows:
        cells = [_number(row["measure"], row["paper"][name]) if name in row["paper"] else "" for name in whose]
        ours = "<br>".join(_ours(row, each, found) for each in row["ours"])
        lack = f'<span class="lack">{escape(row["lack"] or "")}</span>'
        name = f'<span class="name">{escape(row["task"])}</span>'
        measure = f'<span class="name">{escape(row["measure"])} <small>{row["section"]}</small></span>'
        lines.append([name, measure, *cells[:at], ours or lack, *cells[at:]])
    return table(["", "", *whose[:at], "ours", *whose[at:]], lines, words=(0, 1))


def _ours(row: Found, each: Found, found: Found) -> str:
    """Return one of our values with what distinguishes it: variant, unit, and how much of the set was measured."""
    part = _part(found["answers"][row["task"]])
    about = [each["measure"].removeprefix(row["measure"]).strip(", "), each["unit"], part * (part != "all")]
    return f"<b>{_shown(each)}</b> <small>{escape(', '.join(filter(None, about)))}</small>"


def _part(answer: Found) -> str:
    ratio = answer.get("scored_ratio", 1)
    return f"{ratio:.2%} of tokens" if ratio < 1 else answer.get("part", "all")


def _shown(each: Found) -> str:
    return _number(each["measure"], math.inf if each["value"] is None else each["value"])


def _number(measure: str, value: float) -> str:
    if measure.startswith(SHARES):
        return f"{value:.2%}"
    return f"{round(value, 3):,.6g}" if value < 1e5 else f"{value:,.0f}"


def _protocol(task: str, found: Found) -> list[str]:
    """Return how the task was measured, as one sentence, or nothing if it was not."""
    answer = found["answers"][task]
    how = [
        form.format("none" if answer[name] is None else answer[name])
        for name, form in PROTOCOL.items()
        if name in answer
    ]
    return [f"{task}: {answer['data']} ({_part(answer)}), {', '.join(how)}."] if "data" in answer else []


def _drawing(place: str, rows: Rows, found: Found) -> str:
    """Draw each measure of a figure over the number of parameters, figure 5 over the share of 8-grams."""
    if place == "figure 5":
        shares = found["answers"]["memorized"].get("shares", {})
        cdf = {
            who: [(100 * x, (i + up) / len(some)) for i, x in enumerate(some) for up in (0, 1)]
            for who, some in shares.items()
        }
        return _drawn(cdf, "8-grams that occur in the training set, %", "share of texts")
    measures = dict.fromkeys(row["measure"] for row in rows) if place.startswith("figure") else ()
    return "".join(_chart([row for row in rows if row["measure"] == name], found["parameters"]) for name in measures)


def _chart(rows: Rows, parameters: int) -> str:
    """Draw a measure of some tasks: the paper's values by size, and ours; nothing if there is one size only."""
    measure = rows[0]["measure"]
    scale = 100 if measure.startswith(SHARES) else 1
    curves: dict[str, Sequence[tuple[float, float]]] = {}
    for row in rows:
        paper = [(n, scale * row["paper"][size]) for size, n in PARAMETERS.items() if size in row["paper"]]
        ours = [(parameters, scale * each["value"]) for each in row["ours"][:1] if each["value"] is not None]
        curves |= {f"paper, {row['task']}": paper, f"ours, {row['task']}": ours}
    if len({x for points in curves.values() for x, _ in points}) < 2:
        return ""
    return _drawn(curves, "parameters", f"{measure}, %" if scale > 1 else measure, log_x=True)


def _drawn(
    curves: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str, *, log_x: bool = False
) -> str:
    """Return a chart of the curves that have points, with dots if `log_x`, and which colour is whose."""
    lines: dict[str, list[Line]] = {}
    for name, points in curves.items():
        dot = partial("{}, {:,.0f} parameters: {:.4g}".format, name) if log_x else None
        lines |= {name: [Line(points, "held-out", dot=dot)]} if points else {}
    return chart(lines, x=x_label, y=y_label, height=HEIGHT, log_x=log_x) if lines else ""


def _examples(found: Found) -> str:
    names = ("pattern", "context", "karma", "id")
    rows = [[escape(each[name]) for name in names] for each in found["answers"]["grep"].get("shown", [])]
    return table(names, rows, words=(0, 1, 3)) if rows else ""


def _most_confident(found: Found) -> str:
    """Return the 30 ranks of table 5: the paper's probability, and our answer at that rank."""
    ours = found["answers"]["natural-questions"].get("most_confident", [])
    lines = []
    for rank, (paper, each) in enumerate(zip_longest(TABLE_5, ours), 1):
        cells = [""] * 4
        if each:
            cells = [
                f"{each['probability']:.1%}",
                MARKS[each["right"]],
                escape(each["question"]),
                escape(each["answer"]),
            ]
        lines.append([str(rank), f"{paper[0]:.1%}", MARKS[paper[1]], *cells])
    return table(["rank", "paper", "", "ours", "", "our question", "our answer"], lines, words=(2, 4, 5, 6))
