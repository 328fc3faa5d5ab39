"""The result of `train sweep` as lines and as a self-contained page: winner, losses over settings, curves, table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from webtext.base.line_chart import Line, line_chart
from webtext.train.evaluate.curve import losses_drawn
from webtext.train.evaluate.page import colour, page, paragraphs, swatch, table
from webtext.train.experiments.halving import Rung, mean_loss
from webtext.train.experiments.sweep import WINNER, Sweep

HEIGHT = 380
FAILED, STOPPED = "failed", ""
LOG_RATIO = 4
"""Ratio of largest to smallest value from which the axis is logarithmic."""


def sweep_text(found: Sweep) -> str:
    """Format a line for each candidate, the best first, and the caveats."""
    rows = _rows(found)
    width = max(len(row[0]) for row in rows)
    lines = [f"held-out loss, nats per token{_of_seeds(found)}"]
    for i, (name, *cells) in enumerate(rows):
        mark = "  best" if i == 1 else ""
        lines.append(f"  {name:<{width}}{''.join(f'{cell:>12}' for cell in cells)}{mark}".rstrip())
    return "\n".join([*lines, *found.notes(), f"the winner's recipe: '{found.out}/{WINNER}'"])


def sweep_page(found: Sweep) -> str:
    """Return the page of a sweep."""
    (_, *steps), *rows = _rows(found)
    cells = [
        [swatch(colour(number)) + (f"<b>{escape(name)}</b>" if i == 0 else escape(name)), *losses]
        for i, (number, (name, *losses)) in enumerate(zip(_order(found), rows, strict=True))
    ]
    names = [name for name, _ in found.winner.values]
    return page(
        f"Sweep of {', '.join(names)}",
        f"<p><b>{escape(found.winner.name)}</b>: held-out loss {found.loss:.4f} nats per token{_of_seeds(found)}, "
        f"after all {found.planned_steps[-1]:,} steps.</p>",
        paragraphs(found.notes()),
        *(_chart(found, i, name) for i, name in enumerate(names)),
        "<h2>During training</h2>",
        losses_drawn([(curve, colour(number)) for number, curve in found.curves()]),
        "<h2>Held-out loss, nats per token</h2>",
        table(("candidate", *steps), cells),
    )


def _rows(found: Sweep) -> list[tuple[str, ...]]:
    """Return a header, then a row for each candidate: its name, and its mean at each rung."""
    head = ("", *(f"step {rung.step:,}" for rung in found.rungs))
    return [head, *((found.candidates[i].name, *(_cell(rung, i) for rung in found.rungs)) for i in _order(found))]


def _order(found: Sweep) -> list[int]:
    """Return candidates from the best: by the last rung they reached, then by their loss there; failed ones last."""
    order: list[int] = []
    for rung in reversed(found.rungs):
        order += [i for i in rung.ranking() if i not in order]
    return order + [i for i in range(len(found.candidates)) if i not in order]


def _cell(rung: Rung, number: int) -> str:
    if number not in rung.losses:
        return STOPPED
    mean = mean_loss(rung.losses[number])
    return FAILED if mean is None else f"{mean:.4f}"


def _chart(found: Sweep, place: int, name: str) -> str:
    """Draw held-out loss over one setting's values, a line per rung, with the best values of the other settings."""
    values = {candidate.values[place][1] for candidate in found.candidates}
    if len(values) < 2 or not all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in values):
        return ""
    lines = []
    for i, rung in enumerate(found.rungs):
        points = _lowest(found, rung, place)

        def label_of(x: float, y: float, step: int = rung.step) -> str:
            return f"{name} {x:g}, step {step:,}: {y:.4f}"

        if points:
            lines.append(Line(points, "held-out", colour(i), label_of))
    drawing = line_chart(
        lines,
        x_label=escape(name),
        y_label="held-out loss, nats per token",
        label=f"held-out loss over {escape(name)}",
        height=HEIGHT,
        log_x=min(values) > 0 and max(values) >= LOG_RATIO * min(values),
    )
    legend = " ".join(
        f'<span style="white-space:nowrap">{swatch(colour(i))}step {rung.step:,}</span>'
        for i, rung in enumerate(found.rungs)
    )
    others = "; at each value with the best of the other settings" if len(found.winner.values) > 1 else ""
    return f"<h2>Over {escape(name)}</h2>{drawing}<p>{legend}{others}</p>"


def _lowest(found: Sweep, rung: Rung, place: int) -> Sequence[tuple[Any, float]]:
    lowest: dict[Any, float] = {}
    for i in rung.ranking():
        mean = mean_loss(rung.losses[i])
        assert mean is not None
        lowest.setdefault(found.candidates[i].values[place][1], mean)
    return sorted(lowest.items())


def _of_seeds(found: Sweep) -> str:
    return f", mean of {len(found.seeds)} seeds" if len(found.seeds) > 1 else ""
