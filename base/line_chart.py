"""Line charts as SVG, without scripts: used by every page that shows losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 900, 72, 16, 16, 56
TICKS, LOG_TICKS = 6, 10


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y) joined by a line with a CSS class. `dot` returns the title of a dot drawn at each point."""

    points: Sequence[Sequence[float]]
    css_class: str
    colour: str | None = None
    dot: Callable[[float, float], str] | None = None


def line_chart(
    lines: Sequence[Line], *, x_label: str, y_label: str, label: str, height: int, log_x: bool = False
) -> str:
    """Return an SVG of the lines, with an x axis from 0 and a y axis around all points; needs at least one point.

    With `log_x`, the x axis is logarithmic and starts near the first point; every x must be above 0.
    """
    points = [point for line in lines for point in line.points]
    numbers = [x for x, _ in points]
    xs = log_ticks(min(numbers), max(numbers)) if log_x else ticks(0, max(numbers), TICKS)
    ys = ticks(min(y for _, y in points), max(y for _, y in points), TICKS)
    bottom = height - BOTTOM

    def place(point: Sequence[float]) -> tuple[float, float]:
        x, y = point
        share = math.log(x / xs[0]) / math.log(xs[-1] / xs[0]) if log_x else x / xs[-1]
        across = LEFT + share * (WIDTH - LEFT - RIGHT)
        return across, TOP + (ys[-1] - y) / (ys[-1] - ys[0]) * (bottom - TOP)

    drawn = [_level(place((xs[0], y))[1], y) for y in ys]
    drawn += [
        f'<text x="{place((x, ys[0]))[0]:.1f}" y="{bottom + 20}" text-anchor="middle">{short(x)}</text>' for x in xs
    ]
    drawn.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 10}" text-anchor="middle">{x_label}</text>')
    drawn.append(
        f'<text transform="translate(14 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">{y_label}</text>'
    )
    for line in lines:
        places = [place(point) for point in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        stroke = f' stroke="{line.colour}"' if line.colour else ""
        drawn.append(f'<polyline class="{line.css_class}"{stroke} points="{path}"/>')
        if line.dot is not None:
            fill = f' fill="{line.colour}"' if line.colour else ""
            drawn += [
                f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"{fill}><title>{escape(line.dot(*point))}</title></circle>'
                for point, (x, y) in zip(line.points, places, strict=True)
            ]
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(drawn)}</svg>'


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers that enclose low … high, in about `count` steps of 1, 2, 2.5 or 5 times a power of ten.

    >>> ticks(0, 1000), ticks(3.61, 5.6)
    ([0.0, 200.0, 400.0, 600.0, 800.0, 1000.0], [3.5, 4.0, 4.5, 5.0, 5.5, 6.0])
    """
    rough = (high - low or abs(high) or 1) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return numbers 1, 2 and 5 times a power of ten that enclose low … high, both above 0.

    If these would be too many, only powers of ten are returned.

    >>> log_ticks(0.0012, 0.008), log_ticks(1e-6, 3)
    ([0.001, 0.002, 0.005, 0.01], [1e-06, 1e-05, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0])
    """
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for factors in ((1, 2, 5), (1,)):
        series = [float(f"{factor}e{decade}") for decade in decades for factor in factors]
        first = max(i for i, x in enumerate(series) if x <= low)
        last = max(first + 1, min(i for i, x in enumerate(series) if x >= high))
        if last - first < LOG_TICKS:
            break
    return series[first : last + 1]


def short(n: float) -> str:
    """Format a large number for an axis label.

    >>> short(0), short(250_000), short(2_500_000), short(10**10)
    ('0', '250k', '2.5M', '10G')
    """
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:g}{unit}"
    return f"{n:g}"


def _level(y: float, value: float) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )
