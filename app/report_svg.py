"""The report's drawings, as SVG without script: the loss curves and the histogram of lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from webtext.train.curve import ticks

WIDTH, LEFT, RIGHT, TOP = 900, 52, 14, 12
CURVE_HEIGHT, CURVE_BOTTOM = 300, 40
BARS_HEIGHT, BARS_BOTTOM, BARS_TOP = 230, 40, 30
Curve = Sequence[Sequence[float]]


def loss_curves(training: Curve, held_out: Curve) -> str:
    """Both losses over the steps, in nats a token; each held-out point tells its perplexity."""
    points = [*training, *held_out]
    if len(points) < 2:
        return '<p class="soft">too few steps for a curve</p>'
    steps = ticks(0, max(step for step, _ in points))
    losses = ticks(min(loss for _, loss in points), max(loss for _, loss in points))
    bottom = CURVE_HEIGHT - CURVE_BOTTOM

    def x(step: float) -> float:
        return LEFT + step / (steps[-1] or 1) * (WIDTH - LEFT - RIGHT)

    def y(loss: float) -> float:
        return TOP + (losses[-1] - loss) / (losses[-1] - losses[0]) * (bottom - TOP)

    drawn = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick in losses
    ]
    drawn += [f'<text x="{x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{tick:,.0f}</text>' for tick in steps]
    for name, curve in (("training", training), ("held", held_out)):
        path = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in curve)
        drawn.append(f'<polyline class="{name}" points="{path}"/>')
    drawn += [
        f'<circle class="dot" cx="{x(step):.1f}" cy="{y(loss):.1f}" r="4">'
        f"<title>step {step:,.0f}: loss {loss:.3f}, perplexity {math.exp(loss):,.1f}</title></circle>"
        for step, loss in held_out
    ]
    drawn.append(f'<text x="{WIDTH / 2}" y="{CURVE_HEIGHT - 4}" text-anchor="middle">step</text>')
    key = '<span><i class="table"></i>training</span><span><i class="model"></i>held out</span>'
    return _figure(drawn, CURVE_HEIGHT, "loss over the steps", f"Loss in nats a token, by step. {key}")


def length_bars(lengths: Mapping[str, Any]) -> str:
    """Documents by their number of words, kept and dropped, with the thresholds of the rules over it."""
    bins = [(bound, kept, gone) for bound, kept, gone in lengths["bins"]]
    filled = [i for i, (_, kept, gone) in enumerate(bins) if kept or gone]
    if not filled:
        return ""
    first, last = max(0, filled[0] - 1), min(len(bins) - 1, filled[-1] + 1)
    tallest = max(kept + gone for _, kept, gone in bins)
    width = (WIDTH - LEFT - RIGHT) / (last + 1 - first)
    bottom = BARS_HEIGHT - BARS_BOTTOM
    drawn = [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>']
    for i in range(first, last + 1):
        bound, kept, gone = bins[i]
        x, y = LEFT + (i - first) * width, float(bottom)
        for name, n in (("kept", kept), ("dropped", gone)):
            height = n / tallest * (bottom - BARS_TOP)
            y -= height
            if n:
                drawn.append(
                    f'<rect class="bar-{name}" x="{x + 1:.1f}" y="{y:.1f}" width="{width - 2:.1f}" height="{height:.1f}">'
                    f"<title>up to {bound:,} words: {kept:,} kept, {gone:,} dropped</title></rect>"
                )
        if (i - first) % max(1, (last + 1 - first) // 10) == 0:
            drawn.append(f'<text x="{x + width:.1f}" y="{bottom + 18}" text-anchor="middle">{bound:,}</text>')
    for reason, threshold in lengths["thresholds"]:
        x = LEFT + (_place(bins, threshold) - first) * width
        if LEFT <= x <= WIDTH - RIGHT:
            drawn.append(
                f'<line class="threshold" x1="{x:.1f}" x2="{x:.1f}" y1="{BARS_TOP - 12}" y2="{bottom}"/>'
                f'<text class="threshold-name" x="{x:.1f}" y="{BARS_TOP - 17}" text-anchor="middle">'
                f"{escape(reason)}: {threshold:,.0f}</text>"
            )
    drawn.append(f'<text x="{LEFT - 8}" y="{BARS_TOP + 4}" text-anchor="end">{tallest:,}</text>')
    drawn.append(f'<text x="{WIDTH / 2}" y="{BARS_HEIGHT - 4}" text-anchor="middle">words, up to</text>')
    key = '<span><i class="kept"></i>kept</span><span><i class="dropped"></i>dropped</span>'
    return _figure(drawn, BARS_HEIGHT, "lengths of documents", f"Documents by their number of words. {key}")


def _figure(drawn: Sequence[str], height: int, label: str, caption: str) -> str:
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(drawn)}</svg>'
        f'<figcaption class="key">{caption}</figcaption></figure>'
    )


def _place(bins: Sequence[tuple[int, int, int]], value: float) -> float:
    """Where a value lies among the bins, in bins: their bounds are geometric, so the logarithm is even."""
    first, ratio = math.log(bins[0][0]), (math.log(bins[-1][0]) - math.log(bins[0][0])) / (len(bins) - 1)
    return 1 + (math.log(max(value, 1)) - first) / ratio
