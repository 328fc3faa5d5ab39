"""Training's results as HTML pages, self-contained and without script, and as lines for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from webtext.base.charts import Line, line_chart

HEIGHT = 420

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9")
"""Colour-blind people can distinguish them (Okabe & Ito 2008); the yellow is darkened for white paper."""
_STYLE = """
:root{--paper:#fff;--ink:#1c2430;--soft:#677281;--line:#e2e6eb;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--paper:#15191f;--ink:#e4e8ee;--soft:#96a1b0;--line:#2c333d}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:0 auto;padding:2rem 1rem}
h1{font-size:1.4rem;margin:0 0 .5rem}
h2{font-size:1.1rem;margin:1.8rem 0 .3rem}
svg{display:block;width:100%;height:auto}
svg text{font:13px system-ui,sans-serif;fill:var(--soft)}
p{overflow-wrap:anywhere}
.wide{overflow-x:auto}
table{border-collapse:collapse;margin-top:1rem}
td,th{padding:.25rem .8rem .25rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
td:first-child{overflow-wrap:anywhere}
th{font-weight:500;color:var(--soft)}
.n{text-align:right;font-variant-numeric:tabular-nums}
i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.5rem}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A title, sentences, a table whose first row is its head and first column words, and a chart (SVG)."""

    title: str
    notes: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    chart: str = ""


def as_text(sections: Sequence[Section]) -> str:
    """Format sections as lines, with aligned tables and without charts."""
    lines = []
    for section in sections:
        lines.append(section.title)
        widths = [max(map(len, column)) for column in zip(*section.rows, strict=True)]
        for row in section.rows:
            cells = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
            lines.append("  ".join(["", f"{row[0]:<{widths[0]}}", *cells]).rstrip())
        lines += [f"  {note}" for note in section.notes]
    return "\n".join(lines)


def as_page(title: str, sections: Sequence[Section]) -> str:
    """Return the page of the sections."""
    parts = []
    for section in sections:
        cells = [[escape(cell) for cell in row] for row in section.rows]
        parts += [f"<h2>{escape(section.title)}</h2>", section.chart, paragraphs(section.notes)]
        parts += [table(cells[0], cells[1:])] if cells else []
    return page(title, *parts)


def chart(lines: Mapping[str, Sequence[Line]], *, x: str, y: str, height: int = HEIGHT, log_x: bool = False) -> str:
    """Draw the lines of each name in one colour, with a legend of the names."""
    drawn = [Line(line.points, line.kind, colour(i), line.dot) for i, of in enumerate(lines.values()) for line in of]
    drawing = line_chart(drawn, x_label=x, y_label=y, label=f"{y} over {x}", height=height, log_x=log_x)
    legend = " ".join(f"{swatch(colour(i))}{escape(name)}" for i, name in enumerate(lines))
    return f"{drawing}<p>{legend}</p>"


def dots(points: Sequence[tuple[float, float]], name: str, kind: str = "held-out") -> Line:
    """Return a line with dots that show their values."""
    return Line(points, kind, dot=lambda x, y: f"{name}, {x:g}: {y:.4f}")


def page(title: str, *parts: str, style: str = "") -> str:
    """Return a page with a title (plain text) and `parts` (HTML) in order."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body><h1>{escape(title)}</h1>"
        f"{''.join(parts)}</body></html>\n"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: Sequence[int] = (0,)) -> str:
    """Return a table whose cells are HTML. Columns are right-aligned numbers, except those in `words`."""

    def row(cells: Sequence[str], kind: str) -> str:
        return "".join(
            f"<{kind}>{cell}</{kind}>" if i in words else f'<{kind} class="n">{cell}</{kind}>'
            for i, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return f'<div class="wide"><table><tr>{row(head, "th")}</tr>{body}</table></div>'


def paragraphs(texts: Sequence[str]) -> str:
    """Return each text as a paragraph."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def colour(i: int) -> str:
    """Return the i-th colour, starting again after the last."""
    return COLOURS[i % len(COLOURS)]


def swatch(colour: str) -> str:
    """Return a square of that colour, for tables and legends."""
    return f'<i style="background:{colour}"></i>'
