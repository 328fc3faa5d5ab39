"""The page of `bench_parallel.py`: overlapping loss curves, and the difference of each from one process's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from webtext.base.charts import Line, line_chart
from webtext.train.evaluate.page import COLOURS, HEIGHT, swatch, table
from webtext.train.evaluate.page import page as framed

WIDEST, THINNER = 20.0, 3.0
"""Strokes get thinner from curve to curve, so that a curve remains visible below the next one."""
SMALLEST = 1e-9
GREY = "#9aa3ad"


def page(curves: Mapping[str, Sequence[float]], tokens_a_step: int) -> str:
    """Return the page for losses per step by name; the first curve, in grey, is the reference."""
    expected = next(iter(curves.values()))
    colours = dict(zip(curves, [GREY, *COLOURS], strict=False))
    apart = {
        name: [max(SMALLEST, abs(a / b - 1)) for a, b in zip(losses, expected, strict=True)]
        for name, losses in list(curves.items())[1:]
    }
    rows = [
        (swatch(colours[name]) + escape(name), f"{of[-1]:.6f}", f"{max(apart[name]):.1e}" if name in apart else "")
        for name, of in curves.items()
    ]
    losses = line_chart(
        [
            Line(list(enumerate(values, 1)), "held-out", colours[name], width=max(1.0, WIDEST - THINNER * i))
            for i, (name, values) in enumerate(curves.items())
        ],
        x_label="step",
        y_label="loss, nats a token",
        label="loss over the steps",
        height=HEIGHT,
    )
    differences = line_chart(
        [
            Line([(i, math.log10(value)) for i, value in enumerate(values, 1)], "held-out", colours[name], width=1.0)
            for name, values in apart.items()
        ],
        x_label="step",
        y_label="log10 of the difference",
        label="difference from one process over the steps",
        height=HEIGHT,
    )
    return framed(
        f"One model, trained in {len(curves)} ways",
        f"<p>Loss of each step of {tokens_a_step:,} tokens. The curves overlap: each is drawn thinner than the one "
        f"below it.</p>{losses}"
        "<p>The relative difference of a step's loss from one process's, in float32; equal ones are drawn at 1e-9.</p>",
        differences,
        table(("mesh", "last loss", "largest difference"), rows),
    )
