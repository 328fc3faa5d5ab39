"""Charts as inline SVG: Vega-Lite specifications, drawn by Vega when the page is written, so the page needs no script.

Colours are CSS variables of the page: a chart follows its light and dark style.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from webtext.base.errors import label as label_of

Spec = Mapping[str, Any]
WIDTH, HEIGHT, NARROW = 820, 420, 300
"""Size of a chart's drawing area, in SVG units, which the page scales; a phone shows a drawing of its own, NARROW wide."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9")
"""Colour-blind people can distinguish them (Okabe & Ito 2008); the yellow is darkened for white paper."""

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
    "text": {"color": _SOFT, "fontSize": 12, "aria": False},  # in its description, a title would be an expression
}
_LINE_MARKS: Mapping[str, Spec] = {
    "training": {"strokeWidth": 1.2, "strokeOpacity": 0.5},
    "held-out": {"strokeWidth": 2.4},
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


def chart(lines: Mapping[str, Sequence[Line]], *, x: str, y: str, height: int = HEIGHT, log_x: bool = False) -> Markup:
    """Draw the lines of each name in one colour, with a legend of the names."""
    drawn = [Line(line.points, line.kind, colour(i), line.dot) for i, of in enumerate(lines.values()) for line in of]
    drawing = line_chart(drawn, x_label=x, y_label=y, label=f"{y} over {x}", height=height, log_x=log_x)
    legend = Markup(" ").join(swatch(colour(i), name) for i, name in enumerate(lines))
    return Markup('<div class="wide chart" tabindex="0">{}</div><p class="key">{}</p>').format(drawing, legend)


def dots(points: Sequence[tuple[float, float]], name: str, kind: str = "held-out") -> Line:
    """Return a line with dots that show their values."""
    return Line(points, kind, dot=lambda x, y: f"{name}, {x:g}: {y:.4f}")


def colour(i: int) -> str:
    """Return the i-th colour, starting again after the last."""
    return COLOURS[i % len(COLOURS)]


def swatch(colour: str, name: str) -> Markup:
    """Return a name after a square of that colour, for tables and legends."""
    return Markup('<span class="key"><i style="background:{}"></i>{}</span>').format(colour, label_of(name))


def thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Reduce `points` to at most `most`: the end of each stretch, with the stretch's mean."""
    stride = -(-len(points) // most) or 1
    stretches = [points[i : i + stride] for i in range(0, len(points), stride)]
    return [(stretch[-1][0], sum(y for _, y in stretch) / len(stretch)) for stretch in stretches]


def draw(spec: Spec, *, label: str, height: int, widths: Sequence[int] = (WIDTH, NARROW)) -> Markup:
    """Return a Vega-Lite specification as SVG, drawn once for each width: the page shows the one that fits.

    A screen reader says `label` instead of the drawing. A mark's `description` becomes a title, shown on hovering. The
    library aborts the process at a control character, so all texts are drawn as labels.
    """
    import vl_convert

    found = Markup()
    for width in widths:
        whole = {"width": width, "height": height, "background": None, "config": _CONFIG, **spec}
        drawn: str = vl_convert.vegalite_to_svg(_labelled(whole), allowed_base_urls=[])
        _, box, rest = re.split(r'<svg [^>]*?(viewBox="[^"]*")>', drawn, maxsplit=1)
        rest = re.sub(r'<path aria-label="([^"]*)"([^>]*?)(?:/>|></path>)', r"<path\2><title>\1</title></path>", rest)
        css = "narrow" if width == NARROW else "broad"
        found += Markup(f'<svg class="{css}" {box} role="img" aria-label="{escape(label_of(label))}">{rest}')
    return found


def _labelled(value: Any) -> Any:
    """Return a part of a specification in which every text is a label, except expressions."""
    if isinstance(value, Mapping):
        return {key: item if key == "labelExpr" else _labelled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_labelled(item) for item in value]
    return label_of(value) if isinstance(value, str) else value


def line_chart(
    lines: Sequence[Line], *, x_label: str, y_label: str, label: str, height: int, log_x: bool = False
) -> Markup:
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
