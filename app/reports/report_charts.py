"""The report's charts: the funnel as a Sankey diagram, histograms with thresholds, and a training's curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from webtext.base.html_pages.charts import SHORT, WIDTH, Line, Spec, draw, line_chart
from webtext.train.metrics import MetricsRow

Row = Mapping[str, Any]
Curve = Sequence[Sequence[float]]

MAIN_HEIGHT, LEAF_GAP, NODE_WIDTH, ROW = 150.0, 18.0, 10.0, 17.0
"""Sizes in the Sankey diagram, in pixels: the widest flow, the space below it, a stage's bar, a label."""
REASONS_DRAWN = 6
BEND = tuple(i / 12 for i in range(13))
CURVE_HEIGHT, SMALL_HEIGHT, BARS_HEIGHT = 280, 150, 190
CURVES = {
    "learning_rate": "learning rate",
    "grad_norm": "norm of the gradient",
    "tokens_per_second": "tokens per second",
}
"""Key of metrics.jsonl -> label, in the order drawn."""


def sankey(stages: Sequence[Row]) -> Markup:
    """Return the funnel: each stage's records flow on, or leave with a reason; '' for a build without records.

    A stage's bar has its records in. Units differ between stages (posts, links, documents), so a flow may change its width.
    """
    scale = max((stage["counts"]["records_in"] for stage in stages), default=0)
    if not scale:
        return Markup()
    pixels, column = MAIN_HEIGHT / scale, WIDTH / len(stages)
    flows: list[Row] = []
    nodes: list[Row] = []
    labels: list[Row] = []
    for i, stage in enumerate(stages):
        counts, x = stage["counts"], i * column
        n, kept = counts["records_in"], counts["kept"]
        nodes.append({"x": x, "x2": x + NODE_WIDTH, "y": 0, "y2": n * pixels, "told": f"{stage['name']}: {n:,} in"})
        labels.append({"x": x, "y": -12, "text": f"{stage['name']}: {n:,}"})
        following = stages[i + 1]["counts"]["records_in"] if i + 1 < len(stages) else kept
        told = f"{kept:,} kept by {stage['name']}"
        end = x + column if i + 1 < len(stages) else x + column - NODE_WIDTH
        flows += _flow(f"{i}", x + NODE_WIDTH, (0, kept * pixels), end, (0, following * pixels), "var(--kept)", told)
        top, leaf = kept * pixels, MAIN_HEIGHT + LEAF_GAP
        for number, (css, reason, lost) in enumerate(_leaving(counts)):
            name, end = f"{reason}: {lost:,}", x + column * 0.3
            height = lost * pixels
            told = f"{lost:,} {css} by {stage['name']}: {reason}"
            middle = leaf + max(height, ROW) / 2
            places = (top, top + height), (middle - height / 2, middle + height / 2)
            flows += _flow(f"{i} {number}", x + NODE_WIDTH, places[0], end, places[1], f"var(--{css})", told)
            labels.append({"x": end + 4, "y": middle, "text": name})
            top, leaf = top + height, leaf + max(height, ROW) + 2
    lowest = max(each["y"] for each in (*labels, *flows)) + ROW
    axes: dict[str, Any] = {
        "x": {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, WIDTH], "nice": False}},
        "y": {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [lowest, -20], "nice": False}},
    }
    about: dict[str, Any] = {"description": {"field": "told"}}
    flow = {"type": "area", "interpolate": "monotone", "fillOpacity": 0.55, "strokeWidth": 1, "strokeOpacity": 0.8}
    shape: dict[str, Any] = {
        "y2": {"field": "y2"},
        "detail": {"field": "id"},
        "fill": {"field": "colour", "scale": None},
    }
    shape["stroke"] = shape["fill"]
    text = {"type": "text", "align": "left", "baseline": "middle", "limit": column * 0.68, "fontSize": 11}
    spec = {
        "layer": [
            {"data": {"values": flows}, "mark": flow, "encoding": axes | shape | about},
            {
                "data": {"values": nodes},
                "mark": {"type": "rect", "fill": "var(--ink)"},
                "encoding": axes | {"x2": {"field": "x2"}, "y2": {"field": "y2"}} | about,
            },
            {"data": {"values": labels}, "mark": text, "encoding": axes | {"text": {"field": "text"}}},
        ]
    }
    # A phone shows the bars below it alone: five columns of reasons don't fit there.
    return draw(spec, label="records by stage and reason", height=round(lowest + 20), widths=[WIDTH])


def _leaving(counts: Row) -> Iterator[tuple[str, str, int]]:
    """Yield (dropped or failed, reason, records), the most frequent first; rare reasons are one."""
    reasons = [(css, reason, n) for css in ("dropped", "failed") for reason, n in counts[css].items() if n]
    reasons.sort(key=lambda each: (-each[2], each[1]))
    yield from reasons[:REASONS_DRAWN]
    for css in ("dropped", "failed"):
        if rest := [n for of, _, n in reasons[REASONS_DRAWN:] if of == css]:
            yield css, f"{len(rest)} other reasons", sum(rest)


def _flow(
    identifier: str, x: float, begin: tuple[float, float], x2: float, end: tuple[float, float], colour: str, told: str
) -> Iterator[Row]:
    for t in BEND:
        bent = t * t * (3 - 2 * t)
        y, y2 = (a + (b - a) * bent for a, b in zip(begin, end, strict=True))
        yield {"id": identifier, "x": x + (x2 - x) * t, "y": y, "y2": y2, "colour": colour, "told": told}


def histogram(found: Row) -> Markup:
    """Return the histogram of a signal, kept and dropped stacked, with its rules' thresholds; '' without a document."""
    bins = found["bins"]
    filled = [i for i, (_, kept, gone) in enumerate(bins) if kept or gone]
    if not filled:
        return Markup()
    first, last = max(0, filled[0] - 1), min(len(bins) - 1, filled[-1] + 1)
    bars: list[Row] = []
    for i in range(first, last + 1):
        bound, kept, gone = bins[i]
        told = f"up to {_told(bound)}: {kept:,} kept, {gone:,} dropped"
        for css, low, high in (("kept", 0, kept), ("dropped", kept, kept + gone)):
            if high > low:
                bars.append({"x": i, "x2": i + 1, "y": low, "y2": high, "colour": f"var(--{css})", "told": told})
    bounds = [bound for bound, _, _ in bins]
    rules = [
        {"x": place, "text": f"{name}: {_told(threshold)}"}
        for name, threshold in found["thresholds"]
        if first <= (place := _place(bounds, threshold)) <= last + 1
    ]
    step = max(1, (last + 1 - first) // 8)
    ticks = list(range(first + 1, last + 2, step))
    names = "{" + ",".join(f"'{i}':'{_told(bounds[i - 1])}'" for i in ticks) + "}"
    axis = {"values": ticks, "labelExpr": f"({names})[datum.value]", "grid": False, "tickSize": 4}
    scale = {"domain": [first, last + 1], "nice": False, "zero": False}
    x = {"field": "x", "type": "quantitative", "title": f"{found['column']}, up to", "scale": scale, "axis": axis}
    y = {"field": "y", "type": "quantitative", "title": "documents", "axis": {"tickCount": 4, "labelExpr": SHORT}}
    shape = {"x2": {"field": "x2"}, "y2": {"field": "y2"}, "fill": {"field": "colour", "scale": None}}
    layers: list[Spec] = [
        {"data": {"values": bars}, "mark": {"type": "rect", "stroke": "var(--paper)", "strokeWidth": 1},
         "encoding": {"x": x, "y": y, **shape, "description": {"field": "told"}}},
    ]  # fmt: skip
    if rules:
        red = "var(--failed)"
        line = {"type": "rule", "stroke": red, "strokeWidth": 1.5, "strokeDash": [5, 4], "aria": False}
        text = {
            "type": "text",
            "fill": red,
            "y": -8,
            "align": {"expr": f"datum.x > {(first + last) / 2} ? 'right' : 'left'"},
        }
        layers += [
            {"data": {"values": rules}, "mark": line, "encoding": {"x": x}},
            {"data": {"values": rules}, "mark": text, "encoding": {"x": x, "text": {"field": "text"}}},
        ]
    return draw({"layer": layers}, label=f"documents by {found['column']}", height=BARS_HEIGHT)


def karma_by_year(counts: Sequence[Sequence[int]]) -> Markup:
    """Return a grid of years and lower bounds of karma, darker with more documents; '' without any."""
    if not counts:
        return Markup()
    values = [
        {"year": str(year), "karma": f"{bound:,}", "n": n, "told": f"{year}, karma {bound:,} or more: {n:,}"}
        for year, bound, n in counts
    ]
    bounds = [f"{bound:,}" for bound in sorted({bound for _, bound, _ in counts}, reverse=True)]
    shade = {"field": "n", "type": "quantitative", "legend": None, "scale": {"type": "sqrt", "range": [0.12, 1]}}
    spec = {
        "data": {"values": values},
        "mark": {"type": "rect", "fill": "var(--kept)"},
        "encoding": {
            "x": {"field": "year", "type": "ordinal", "title": "year of the first vote", "axis": {"labelAngle": 0}},
            "y": {"field": "karma", "type": "ordinal", "title": "karma, at least", "scale": {"domain": bounds}},
            "fillOpacity": shade,
            "description": {"field": "told"},
        },
    }
    return draw(spec, label="documents by year and karma", height=max(60, 22 * len(bounds)))


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _place(bounds: Sequence[float], value: float) -> float:
    """Return a value's position on the axis, in bins: within a bin, it is linear."""
    lows = [0.0, *bounds]
    for i, (low, high) in enumerate(zip(lows, bounds, strict=False)):
        if value <= high:
            return i + max(0.0, value - low) / ((high - low) or 1)
    return math.inf


def curve(rows: Sequence[MetricsRow], name: str) -> list[tuple[int, float]]:
    """Return the steps and values of a measure in the rows of metrics.jsonl that have it."""
    return [(row.step, y) for row in rows if (y := getattr(row, name)) is not None]


def loss_curves(training: Curve, held_out: Curve) -> Markup:
    """Return training and held-out loss over the steps, in nats per token; held-out points show their perplexity."""
    if len(training) + len(held_out) < 2:
        return Markup('<p class="soft">too few steps for a curve</p>')

    def told(step: float, loss: float) -> str:
        return f"step {step:,.0f}: loss {loss:.3f}, perplexity {math.exp(min(loss, 700)):,.1f}"

    lines = [Line(training, "training"), Line(held_out, "held-out", dot=told)]
    return line_chart(
        [line for line in lines if line.points],
        x_label="step",
        y_label="loss, nats per token",
        label="loss over the steps",
        height=CURVE_HEIGHT,
    )


def other_curves(curves: Mapping[str, Curve]) -> Iterator[tuple[str, Markup]]:
    """Yield the label and the chart of each of CURVES that has at least two points."""
    for name, label in CURVES.items():
        if len(points := curves.get(name, ())) > 1:
            lines = [Line(points, "held-out", width=1.5)]
            told = f"{label} over the steps"
            yield label, line_chart(lines, x_label="step", y_label=label, label=told, height=SMALL_HEIGHT)
