"""The page of `bench_parallel.py`: loss curves that lie on each other, and how far each is from one process's. Inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from webtext.train.curve import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, STYLE, TOP, WIDTH, ticks

WIDEST, STEP = 15.0, 2.2
"""Strokes get thinner from curve to curve: so one shows under the next that lies on it."""
SMALLEST = 1e-9


def page(curves: Mapping[str, Sequence[float]], tokens_a_step: int) -> str:
    """The first curve is the one that the others are compared with."""
    names = list(curves)
    expected = curves[names[0]]
    apart = {
        name: [max(SMALLEST, abs(a / b - 1)) for a, b in zip(losses, expected, strict=True)]
        for name, losses in curves.items()
        if name != names[0]
    }
    rows = "".join(
        f'<tr><td><i style="background:{_colour(i)}"></i>{escape(name)}</td><td class="n">{losses[-1]:.6f}</td>'
        f'<td class="n">{f"{max(apart[name]):.1e}" if name in apart else ""}</td></tr>'
        for i, (name, losses) in enumerate(curves.items())
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>loss on meshes of processes</title><style>{STYLE}svg polyline{{fill:none}}</style></head><body>"
        f"<h1>One model, {len(names)} ways to train it</h1>"
        f"<p>Loss of each step of {tokens_a_step:,} tokens. The curves lie on each other: each is drawn thinner than the one "
        "below it.</p>"
        f"{_losses(curves)}"
        "<p>The same, as a share by which a step's loss differs from one process's (float32; below 1e-9 drawn as 1e-9).</p>"
        f"{_deviations(apart)}"
        '<table><tr><th>mesh</th><th class="n">last loss</th><th class="n">most apart</th></tr>'
        f"{rows}</table></body></html>\n"
    )


def _losses(curves: Mapping[str, Sequence[float]]) -> str:
    values = [loss for losses in curves.values() for loss in losses]
    levels = ticks(min(values), max(values), 6)
    lines = [(level, f"{level:g}") for level in levels]
    widths = [max(1.0, WIDEST - STEP * i) for i in range(len(curves))]
    return _drawing(list(curves.values()), range(len(curves)), lines, widths, "loss, nats a token")


def _deviations(apart: Mapping[str, Sequence[float]]) -> str:
    exponents = [[math.log10(value) for value in values] for values in apart.values()]
    top = math.ceil(max(value for values in exponents for value in values))
    lines = [(float(i), f"1e{i}") for i in range(round(math.log10(SMALLEST)), top + 1)]
    return _drawing(exponents, range(1, len(apart) + 1), lines, [1.6] * len(apart), "difference from one process")


def _drawing(
    series: Sequence[Sequence[float]],
    colours: Sequence[int],
    lines: Sequence[tuple[float, str]],
    widths: Sequence[float],
    label: str,
) -> str:
    n_steps, bottom = len(series[0]), HEIGHT - BOTTOM
    low, high = lines[0][0], lines[-1][0]

    def x(step: float) -> float:
        return LEFT + (step - 1) / max(1, n_steps - 1) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (bottom - TOP)

    drawn = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{text}</text>'
        for value, text in lines
    ]
    marks = [step for step in ticks(0, n_steps, 6) if 1 <= step <= n_steps]
    drawn += [f'<text x="{x(step):.1f}" y="{bottom + 20}" text-anchor="middle">{step:g}</text>' for step in [1, *marks]]
    drawn.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>')
    drawn.append(
        f'<text transform="translate(14 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">{label}</text>'
    )
    for values, colour, width in zip(series, colours, widths, strict=True):
        points = " ".join(f"{x(i + 1):.1f},{y(value):.1f}" for i, value in enumerate(values))
        drawn.append(f'<polyline stroke="{_colour(colour)}" stroke-width="{width:.1f}" points="{points}"/>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label} over the steps">{"".join(drawn)}</svg>'


def _colour(i: int) -> str:
    """The first, what the others are compared with, is grey."""
    return "#9aa3ad" if i == 0 else COLOURS[(i - 1) % len(COLOURS)]
