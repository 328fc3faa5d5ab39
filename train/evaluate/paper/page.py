"""The page of `train paper`: a section per table and figure of the GPT-2 paper, with the model's own values in a column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from itertools import zip_longest
from typing import Any

from webtext.base.line_chart import Line, line_chart
from webtext.train.evaluate.page import colour, page, paragraphs, swatch, table
from webtext.train.evaluate.paper.published import IN_TEXT, PARAMETERS, TABLE_5, TITLES

HEIGHT = 280
SHARES = ("accuracy", "8-grams", "median", "without")
STYLE = """
td small{color:var(--soft)}
p{overflow-wrap:anywhere}
td:first-child{overflow-wrap:normal}
.lack{color:#b8480a}
@media(prefers-color-scheme:dark){.lack{color:#f0894e}}
"""
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
    """Return a line for each row of the paper: our first value, what is missing, or why there is none."""
    lines = []
    for row in found["rows"]:
        ours = [_shown(each) for each in row["ours"][:1]] or [row["lack"]]
        lines.append(f"{row['place']:<9} {row['task'] + ', ' + row['measure']:<45} {ours[0]}")
    return "\n".join(lines)


def _notes(found: Found) -> list[str]:
    return [
        f"{found['model']}, measured on the sets in {found['data']}. Bold: this model, beside the paper's closest size.",
        "The paper names few of its units, strides and de-tokenizers: compare values with that in mind.",
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
        lines.append([row["task"], row["measure"], *cells[:at], ours or lack, *cells[at:], row["section"]])
    return table(["", "", *whose[:at], "this model", *whose[at:], "section"], lines, words=(0, 1))


def _ours(row: Found, each: Found, found: Found) -> str:
    """Return one of our values with what distinguishes it: variant, unit, and how much of the set was measured."""
    answer = found["answers"][row["task"]]
    part = (
        answer.get("part", "all") if answer.get("scored_ratio", 1) == 1 else f"{answer['scored_ratio']:.2%} of tokens"
    )
    about = [each["measure"].removeprefix(row["measure"]).strip(", "), each["unit"], part * (part != "all")]
    return f"<b>{_shown(each)}</b> <small>{escape(', '.join(filter(None, about)))}</small>"


def _shown(each: Found) -> str:
    return _number(each["measure"], math.inf if each["value"] is None else each["value"])


def _number(measure: str, value: float) -> str:
    return f"{value:.2%}" if measure.startswith(SHARES) else f"{value:,.6g}" if value < 1e5 else f"{value:,.0f}"


def _protocol(task: str, found: Found) -> list[str]:
    """Return how the task was measured, as one sentence, or nothing if it was not."""
    answer = found["answers"][task]
    words = {"stride": "stride", "context": "context", "detokenizer": "de-tokenizer", "shots": "examples before each"}
    how = [f"{words[name]} {answer[name] if answer[name] is not None else 'none'}" for name in words if name in answer]
    how += [f"{answer['contexts_cut']:,} contexts cut from the left"] if answer.get("contexts_cut") else []
    return [f"{task}: {answer['data']} ({answer.get('part', 'all')}), {', '.join(how)}."] if "data" in answer else []


def _drawing(place: str, rows: Rows, found: Found) -> str:
    """Draw each measure of a figure over the number of parameters, figure 5 over the share of 8-grams."""
    if place == "figure 5":
        shares = found["answers"]["memorized"].get("shares", {})
        cdf = {who: [(100 * x, (i + 1) / len(some)) for i, x in enumerate(some)] for who, some in shares.items()}
        return _drawn(cdf, "8-grams that occur in the training set, %", "share of texts")
    measures = dict.fromkeys(row["measure"] for row in rows) if place.startswith("figure") else ()
    return "".join(_chart([row for row in rows if row["measure"] == name], found["parameters"]) for name in measures)


def _chart(rows: Rows, parameters: int) -> str:
    measure = rows[0]["measure"]
    scale = 100 if measure.startswith(SHARES) else 1
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        curves[f"paper, {row['task']}"] = [
            (n, scale * row["paper"][size]) for size, n in PARAMETERS.items() if size in row["paper"]
        ]
        values = [each["value"] for each in row["ours"] if each["value"] is not None]
        curves[f"this model, {row['task']}"] = [(parameters, scale * value) for value in values]
    return _drawn(curves, "parameters", f"{measure}, %" if scale > 1 else measure, log_x=True)


def _drawn(
    curves: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str, *, log_x: bool = False
) -> str:
    """Return a chart of the curves that have points, and which colour is whose; nothing for a single point."""
    names = [name for name, points in curves.items() if points]
    lines = [Line(curves[name], "held-out", colour(i), partial(_dot, name)) for i, name in enumerate(names)]
    if sum(len(line.points) for line in lines) < 2:
        return ""
    drawing = line_chart(lines, x_label=x_label, y_label=y_label, label=y_label, height=HEIGHT, log_x=log_x)
    return drawing + "<p>" + " &emsp; ".join(swatch(colour(i)) + escape(name) for i, name in enumerate(names)) + "</p>"


def _dot(name: str, x: float, y: float) -> str:
    return f"{name}: {y:.4g} at {x:,.6g}"


def _examples(found: Found) -> str:
    names = ("pattern", "id", "karma", "context")
    rows = [[escape(each[name]) for name in names] for each in found["answers"]["grep"].get("shown", [])]
    return table(names, rows, words=(0, 1, 3)) if rows else ""


def _most_confident(found: Found) -> str:
    """Return the 30 ranks of table 5: the paper's probability, and our answer at that rank."""
    ours = found["answers"]["natural-questions"].get("most_confident", [])
    lines = []
    for rank, (paper, each) in enumerate(zip_longest(TABLE_5, ours), 1):
        cells = (
            [f"{each['probability']:.1%}", _mark(each["right"]), each["question"], each["answer"]] if each else [""] * 4
        )
        lines.append([str(rank), f"{paper[0]:.1%}", _mark(paper[1]), *map(escape, cells)])
    return table(["rank", "paper", "", "this model", "", "our question", "our answer"], lines, words=(2, 4, 5, 6))


def _mark(is_right: bool) -> str:
    return "right" if is_right else "wrong"
