"""The report's SVG drawings: loss curves and the histogram of lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from webtext.base.line_chart import Line, line_chart

WIDTH, LEFT, RIGHT = 900, 52, 14
CURVE_HEIGHT = 320
BARS_HEIGHT, BARS_BOTTOM, BARS_TOP = 230, 40, 30
Curve = Sequence[Sequence[float]]


def loss_curves(training: Curve, held_out: Curve) -> str:
    """Return training and held-out loss over the steps, in nats per token; held-out points carry their perplexity."""
    if len(training) + len(held_out) < 2:
        return '<p class="soft">too few steps for a curve</p>'

    def told(step: float, loss: float) -> str:
        return f"step {step:,.0f}: loss {loss:.3f}, perplexity {math.exp(loss):,.1f}"

    lines = [Line(training, "training"), Line(held_out, "held", dot=told)]
    drawn = line_chart(
        lines, x_label="step", y_label="loss, nats per token", label="loss over the steps", height=CURVE_HEIGHT
    )
    key = '<span><i class="table"></i>training</span><span><i class="model"></i>held out</span>'
    return _figure(drawn, f"Loss by step. {key}")


def length_bars(lengths: Mapping[str, Any]) -> str:
    """Return the histogram of words per document, kept and dropped, with the rules' thresholds."""
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
    bars = (
        f'<svg viewBox="0 0 {WIDTH} {BARS_HEIGHT}" role="img" aria-label="lengths of documents">{"".join(drawn)}</svg>'
    )
    return _figure(bars, f"Documents by their number of words. {key}")


def _figure(drawing: str, caption: str) -> str:
    return f'<figure>{drawing}<figcaption class="key">{caption}</figcaption></figure>'


def _place(bins: Sequence[tuple[int, int, int]], value: float) -> float:
    """Return a value's position on the axis, in bins; bounds are geometric, so it is linear in the logarithm."""
    first, ratio = math.log(bins[0][0]), (math.log(bins[-1][0]) - math.log(bins[0][0])) / (len(bins) - 1)
    return 1 + (math.log(max(value, 1)) - first) / ratio
