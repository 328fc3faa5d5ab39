"""The result of `train scale` as aligned lines and as a self-contained page: a table and a chart for each budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from webtext.base.line_chart import Line, line_chart
from webtext.train.evaluate.page import COLOURS, page, paragraphs, swatch
from webtext.train.evaluate.page import table as html_table
from webtext.train.experiments.scale import Measured, Scale, Table

HEAD = ("size", "parameters", "in blocks", "tokens", "passes", "rate", "measured", "spread", "fit", "residual")
HEIGHT = 380
FIT_POINTS = 40
_STYLE = "svg .dots{stroke:none}svg .fit{stroke-width:1.6}svg .interval{stroke-width:1;stroke-dasharray:5 4}"


def scale_text(found: Scale) -> str:
    """Format a block for each budget: its rows, both fits, and the prediction beside what was measured."""
    lines = [f"held-out loss, {found.unit}; {found.rule}"]
    for table in found.tables:
        cells = [HEAD, *_rows(table)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(HEAD))]
        lines.append(table.budget)
        lines += [
            "  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        lines += [f"  {note}" for note in notes(table)]
    return "\n".join([*lines, *_general(found)])


def scale_page(found: Scale) -> str:
    """Return the page of a family of sizes."""
    parts = [paragraphs([f"Held-out loss, {found.unit}; {found.rule}.", *_general(found)])]
    for of in found.tables:
        rows = [[escape(cell) for cell in row] for row in _rows(of)]
        parts += [f"<h2>{escape(of.budget)}</h2>", _drawing(found, of), paragraphs(notes(of)), html_table(HEAD, rows)]
    return page("Held-out loss over size", *parts, style=_STYLE)


def notes(table: Table) -> list[str]:
    """Return sentences on both fits and their residuals, rates, the prediction, and budgets beyond one pass."""
    linear = table.linear
    slope = f"{-linear.slope:.4f}" if linear.slope < 0 else f"({-linear.slope:.4f})"
    left = ", ".join(f"{residual:+.4f}" for residual in table.power_residuals)
    found = [
        f"Fit, log-linear as in the GPT-2 paper: loss = {linear.intercept:.4f} - {slope} log10(N), over all parameters N; "
        f"residuals spread by {linear.deviation:.4f} with {len(table.rows) - 2} degrees of freedom.",
        f"Power law (Kaplan et al. 2020, 1.1): loss = {math.exp(table.power.intercept):.4g} "
        f"N^{table.power.slope / math.log(10):.4f}; residuals {left}.",
    ]
    if linear.slope >= 0:
        found.append("Larger models are not better here: too few tokens or steps, or a rate that suits the small ones.")
    found += [_rates(row) for row in _all(table) if row.tried]
    found += [f"At the edge of the rates: {row.edge}." for row in _all(table) if row.edge]
    if table.check is not None:
        predicted, margin = table.predicted(table.check.size)
        mean = table.check.mean
        verdict = "inside" if abs(mean - predicted) <= margin else "outside"
        found.append(
            f"One size up, {table.check.size.name} ({table.check.size.parameters:,}): predicted {predicted:.4f} ± {margin:.4f} "
            f"(95 %), power law {table.predicted_by_power(table.check.size):.4f}; measured {mean:.4f}, {verdict} the interval."
        )
    repeated = [row.size.name for row in _all(table) if row.passes > 1]
    if repeated:
        found.append(f"More than one pass over the tokens: {', '.join(repeated)}; repeated text teaches less.")
    return found


def _rates(row: Measured) -> str:
    tried = ", ".join(f"{rate:g} {'failed' if loss is None else f'{loss:.4f}'}" for rate, loss in row.tried)
    return f"Rates of {row.size.name}: {tried}; taken {row.learning_rate:g}."


def _general(found: Scale) -> list[str]:
    notes = (
        []
        if found.unit != "nats per token"
        else ["Nats per token, since no --tokenizer was given: compare only with the same tokenizer."]
    )
    if found.seeds == 1:
        notes.append("One seed: the residuals contain chance, which can't be separated from what the line misses.")
    return notes


def _rows(table: Table) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in _all(table):
        fit, _ = table.predicted(row.size)
        values = row.values
        spread = f"{max(values) - min(values):.4f}" if len(values) > 1 else "one seed"
        name = f"{row.size.name} (predicted)" if row is table.check else row.size.name
        rows.append(
            (
                name,
                f"{row.size.parameters:,}",
                f"{row.size.in_blocks:,}",
                f"{row.tokens:,}",
                f"{row.passes:.2f}",
                f"{row.learning_rate:.3g}",
                f"{row.mean:.4f}",
                spread,
                f"{fit:.4f}",
                f"{row.mean - fit:+.4f}",
            )
        )
    return rows


def _all(table: Table) -> Sequence[Measured]:
    return [*table.rows, *([table.check] if table.check else [])]


def _drawing(found: Scale, of: Table) -> str:
    """Draw means over parameters, the line through them, and, dashed, the interval for one more measurement."""
    every = _all(of)
    low, high = math.log10(every[0].size.parameters), math.log10(every[-1].size.parameters)
    xs = [low + (high - low) * i / FIT_POINTS for i in range(FIT_POINTS + 1)]
    fit = [(10**x, of.linear.at(x)) for x in xs]

    def label_of(n: float, loss: float) -> str:
        return f"{n:,.0f} parameters: {loss:.4f}"

    lines = [Line(fit, "fit", COLOURS[0])]
    lines += [
        Line([(10**x, of.linear.at(x) + sign * of.linear.margin(x)) for x in xs], "interval", COLOURS[0])
        for sign in (-1, 1)
    ]
    lines.append(Line([(row.size.parameters, row.mean) for row in of.rows], "dots", COLOURS[0], label_of))
    if of.check:
        lines.append(Line([(of.check.size.parameters, of.check.mean)], "dots", COLOURS[1], label_of))
    drawing = line_chart(
        lines,
        x_label="parameters",
        y_label=f"held-out loss, {found.unit}",
        label=f"held-out loss over parameters, {escape(of.budget)}",
        height=HEIGHT,
        log_x=True,
    )
    legend = f"<p>{swatch(COLOURS[0])}fitted, with its line and, dashed, the 95 % interval of one more measurement"
    check = f" {swatch(COLOURS[1])}predicted, then measured" if of.check else ""
    return f"{drawing}{legend}{check}</p>"
