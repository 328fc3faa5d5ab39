"""Draws a difference of two builds as one self-contained page, in the look of the report: no script, nothing is fetched.

Every text from outside goes through `escape`, and what does not print is shown as an escape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from webtext.app.diff_text import (
    NO_TEXT,
    comparison_line,
    measured,
    notes,
    points,
    reason_name,
    set_name,
    shown_value,
    verdict_line,
    visible,
)
from webtext.app.report_html import page

Row = Mapping[str, Any]


def render_diff(diff: Row) -> str:
    """The whole page."""
    documents, comparison = diff["documents"], diff["comparison"]
    sections = [
        f"<header><h1>Two builds, A and B</h1><p>{_safe(verdict_line(diff))}.</p></header>",
        f'<p class="soft">A <code>{_safe(diff["a"])}</code><br>B <code>{_safe(diff["b"])}</code></p>',
        *(f'<div class="alarm" role="alert"><b>Look here:</b> {_safe(note)}</div>' for note in notes(diff)),
        _tiles(documents) if documents is not None else "",
        f"<h2>Trained models</h2><p>{_safe(comparison_line(comparison))}</p>" if comparison is not None else "",
        _settings(diff["settings"]),
        _stages(diff["stages"]),
    ]
    if documents is not None:
        sections += [
            _left("Lost", "kept in A, not in B; by what B did with them", documents["lost"]),
            _left("Gained", "kept in B, not in A; by what A did with them", documents["gained"]),
            _domains(documents["domains"]),
        ]
    return page("webtext: two builds", sections)


def _tiles(documents: Row) -> str:
    numbers = {
        "kept in A": documents["kept_a"],
        "common": documents["common"],
        "lost": documents["lost"]["documents"],
        "gained": documents["gained"]["documents"],
        "kept in B": documents["kept_b"],
        "of the common: other text": documents["text_changed"],
        "of the common: fetched anew": documents["fetched_again"],
    }
    return (
        '<ul class="way">'
        + "".join(f"<li><b>{n:,}</b><span>{name}</span></li>" for name, n in numbers.items())
        + "</ul>"
    )


def _settings(settings: Sequence[Row]) -> str:
    if not settings:
        return "<h2>Settings</h2><p>No setting and no version differs where both builds have run.</p>"
    rows = (
        (_code(f"{row['stage']} {row['name']}"), _code(shown_value(row["a"])), _code(shown_value(row["b"])))
        for row in settings
    )
    return f"<h2>Settings and versions that differ</h2>{_table(('', 'A', 'B'), rows)}"


def _stages(stages: Sequence[Row]) -> str:
    rows = (
        (escape(set_name(row["name"])), _number(row["a"]), _number(row["b"]), "the same" if row["same_records"] else "")
        for row in stages
    )
    return f"<h2>Records of each stage</h2>{_table(('', 'A', 'B', ''), rows, numbers=(1, 2))}"


def _left(title: str, about: str, left: Row) -> str:
    if not left["documents"]:
        return f'<h2>{title}</h2><p class="soft">None.</p>'
    most = left["reasons"][0]["documents"]
    rows = "".join(
        f'<tr><td>{_code(reason_name(row))}</td><td class="n">{row["documents"]:,}</td>'
        f'<td class="meter"><i class="dropped" style="width:{100 * row["documents"] / most:.1f}%"></i></td></tr>'
        for row in left["reasons"]
    )
    samples = "".join(_sample(row) for row in left["samples"])
    return (
        f'<h2>{title}: {left["documents"]:,}</h2><p class="soft">{escape(about)}</p><table>{rows}</table>'
        f"<details><summary>a random choice, always the same one</summary>{samples}</details>"
    )


def _sample(row: Row) -> str:
    text = NO_TEXT if row["text_start"] is None else row["text_start"]
    twin = f" · duplicate of <code>{_safe(row['duplicate_of'])}</code>" if row.get("duplicate_of") else ""
    shown = "\n".join(map(visible, text.split("\n")))
    return (
        f'<article><code>{_safe(row["url"] or row["id"])}</code><p class="soft">{_safe(reason_name(row))}'
        f"{_safe(measured(row))}{twin}</p><pre>{escape(shown)}</pre></article>"
    )


def _domains(domains: Row) -> str:
    tables = []
    for what in ("documents", "bytes"):
        rows = ((_safe(row["domain"]), f"{row['a']:,}", f"{row['b']:,}", points(row)) for row in domains[f"by_{what}"])
        moved = f"{domains[f'moved_{what}_ratio']:.2%} of the {what} moved in all"
        tables.append(f"<h3>By {what}: {moved}</h3>{_table(('', 'A', 'B', 'shift'), rows, numbers=(1, 2, 3))}")
    return (
        f'<h2>Domains</h2><p class="soft">{domains["domains_a"]:,} in A, {domains["domains_b"]:,} in B. '
        f"Shift: {escape(domains['measure'])}.</p>{''.join(tables)}"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Cells are markup already."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=n' if i in numbers else ''}>{cell}</{tag}>" for i, cell in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>" if body else ""


def _number(n: int | None) -> str:
    return "–" if n is None else f"{n:,}"


def _code(text: str) -> str:
    return f"<code>{_safe(text)}</code>"


def _safe(text: str) -> str:
    return escape(visible(text))
