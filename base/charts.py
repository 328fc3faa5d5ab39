"""Charts as inline SVG: Vega-Lite specifications, drawn by Vega when the page is written, so the page needs no script.

Colours are CSS variables of the page: a chart follows its light and dark style.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

Spec = Mapping[str, Any]
WIDTH = 820
"""Of a chart's drawing area, in SVG units; the page scales it."""

SHORT = "format(datum.value, '.4~s')"
"""Labels an axis: 0, 250k, 2.5M; each number has a unit of its own."""
_SOFT, _LINE = "var(--soft)", "var(--line)"
_CONFIG = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _SOFT,
        "titleColor": _SOFT,
        "titleFontWeight": "normal",
        "gridColor": _LINE,
        "domainColor": _LINE,
        "tickColor": _LINE,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelLimit": 320,
        "titlePadding": 14,
    },
    "text": {"color": _SOFT, "fontSize": 12},
}
_LINE_MARKS: Mapping[str, Spec] = {
    "training": {"strokeWidth": 1.2, "strokeOpacity": 0.5},
    "held-out": {"strokeWidth": 2.4},
    "interval": {"strokeWidth": 1, "strokeDash": [5, 4]},
    "dots": {"strokeWidth": 0},
}


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y) joined by a line of a kind, one of _LINE_MARKS. `dot` returns the title of a dot at each point."""

    points: Sequence[Sequence[float]]
    kind: str
    colour: str = "var(--model)"
    dot: Callable[[float, float], str] | None = None
    width: float | None = None


def draw(spec: Spec, *, label: str, height: int) -> str:
    """Return the SVG of a Vega-Lite specification. `label` is what a screen reader says instead of the drawing.

    A mark's `description` becomes a title, shown on hovering.
    """
    import vl_convert

    whole = {"width": WIDTH, "height": height, "background": None, "config": _CONFIG, **spec}
    drawn: str = vl_convert.vegalite_to_svg(whole, allowed_base_urls=[])
    opening = f'role="img" aria-label="{escape(label)}">'
    drawn = re.sub(r'<svg [^>]*?(viewBox="[^"]*")>', lambda found: f"<svg {found[1]} {opening}", drawn, count=1)
    return re.sub(r'<path aria-label="([^"]*)"([^>]*?)(?:/>|></path>)', r"<path\2><title>\1</title></path>", drawn)


def line_chart(
    lines: Sequence[Line], *, x_label: str, y_label: str, label: str, height: int, log_x: bool = False
) -> str:
    """Return a chart of the lines, with an x axis from 0 and a y axis around all points; needs at least one point.

    With `log_x`, the x axis is logarithmic; every x must be above 0.
    """
    scale = {"type": "log", "nice": False} if log_x else {"zero": True}
    encoding = {
        "x": _number("x", x_label, scale=scale, axis={"labelExpr": SHORT, "grid": False, "tickCount": 8}),
        "y": _number("y", y_label, scale={"zero": False}, axis={"labelExpr": SHORT, "tickCount": 6}),
    }
    layers: list[Spec] = []
    for line in lines:
        values = [{"x": x, "y": y, "told": line.dot(x, y) if line.dot else ""} for x, y in line.points]
        marks = [{"type": "line", "stroke": line.colour, "aria": False, **_LINE_MARKS[line.kind]}]
        if line.width is not None:
            marks[0]["strokeWidth"] = line.width
        if line.dot is not None:
            marks.append({"type": "circle", "size": 40, "opacity": 1, "fill": line.colour})
        told = {"description": {"field": "told"}}
        layers += [
            {
                "data": {"values": values},
                "mark": mark,
                "encoding": encoding | (told if mark["type"] == "circle" else {}),
            }
            for mark in marks
        ]
    return draw({"layer": layers}, label=label, height=height)


def _number(name: str, title: str, **more: Any) -> Spec:
    return {"field": name, "type": "quantitative", "title": title, **more}
