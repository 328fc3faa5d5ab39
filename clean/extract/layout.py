"""Write the kept blocks of a page as text or Markdown, in the page's order, each on lines of its own.

In text, items of lists begin with `- ` and the cells of a table's row are joined by ` | `. Markdown adds the signs of
headings, numbered and nested lists, quotes, fenced code and tables with a header. Code keeps its lines and indentation
in both. A row with a long cell or code is layout, and its cells are blocks like others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from webtext.clean.extract.blocks import Blocks, Container, TextBlock

MAX_CELL = 200
"""Characters of a cell; longer ones are paragraphs of a page that is laid out by a table."""
MAX_INDENT, MAX_QUOTES, MAX_COLUMNS = 24, 8, 50
"""Bounds on what Markdown puts before a line, and on the empty cells before a cell."""

_CELLS = ("td", "th")
_ITEMS = ("li", "dd")
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_PLACING = frozenset(("table", "tr", "pre", "blockquote", *_CELLS, *_ITEMS, *_HEADINGS))
_TICKS = re.compile("`+")
_NUMBER = re.compile(r"\s*\+?([0-9]{1,9})(?![0-9])")  # CommonMark's items begin with at most nine digits


class _Place(NamedTuple):
    """Where a block is: its innermost table, row, cell, item, code, and the signs that Markdown has for it.

    Elements are indices of containers, -1 outside. A cell's column counts the cells before it in its row. An item begins
    with its sign, after a margin of blanks.
    """

    table: int = -1
    row: int = -1
    cell: int = -1
    column: int = 0
    item: int = -1
    sign: str = ""
    margin: int = 0
    pre: int = -1
    heading: int = 0
    quotes: int = 0


def layout(found: Blocks, kept: Iterable[bool], *, markdown: bool = False) -> str:
    """Return the text of the kept blocks."""
    places = _places(found.containers)
    chosen = [
        (block, places[block.container] if block.container >= 0 else _Place())
        for block, is_kept in zip(found.blocks, kept, strict=True)
        if is_kept
    ]
    lengths: Counter[int] = Counter()
    for block, place in chosen:
        lengths[place.cell] += len(block.text)
    not_rows = {place.row for _, place in chosen if place.cell < 0 or lengths[place.cell] > MAX_CELL or place.pre >= 0}
    pieces: list[str] = []
    started: set[int] = set()  # items whose sign is written
    for table, of_table in groupby(chosen, key=lambda each: -1 if each[1].row in not_rows else each[1].table):
        if table >= 0:
            pieces.append(_table(list(of_table), markdown=markdown))
        else:
            pieces += _blocks(of_table, started, markdown=markdown)
    return ("\n\n" if markdown else "\n").join(pieces)


def _places(containers: list[Container]) -> list[_Place]:
    """Return the place that each container gives its blocks; a container comes after its parent."""
    places: list[_Place] = []
    counts: Counter[int] = Counter()  # of cells in a row; the last number in a list
    for i, container in enumerate(containers):
        parent, tag = container.parent, container.tag
        above = places[parent] if parent >= 0 else _Place()
        if tag not in _PLACING:  # nearly all: they share the place of their parent
            places.append(above)
            continue
        if tag == "table":
            place = above._replace(table=i, row=-1, cell=-1, pre=-1)  # a table in `pre` is a table
        elif tag == "tr" and above.table >= 0:
            place = above._replace(row=i, cell=-1)
        elif tag in _CELLS and above.row >= 0:
            place = above._replace(cell=i, column=min(counts[above.row], MAX_COLUMNS))
            counts[above.row] += 1
        elif tag in _ITEMS:
            of = containers[parent] if parent >= 0 else container
            stated = _NUMBER.match(container.number or of.number * (parent not in counts))
            counts[parent] = int(stated[1]) if stated else counts[parent] + 1
            sign = f"{counts[parent]}. " if of.tag == "ol" else "- "
            place = above._replace(item=i, sign=sign, margin=min(above.margin + len(above.sign), MAX_INDENT))
        elif tag == "pre":
            place = above._replace(pre=i)
        elif tag == "blockquote":
            place = above._replace(quotes=min(above.quotes + 1, MAX_QUOTES))
        else:
            place = above._replace(heading=_HEADINGS.get(tag, above.heading))
        places.append(place)
    return places


def _table(cells: list[tuple[TextBlock, _Place]], *, markdown: bool) -> str:
    rows: list[list[str]] = []
    for _, of_row in groupby(cells, key=lambda each: each[1].row):
        row: list[str] = []
        for _, of_cell in groupby(of_row, key=lambda each: each[1].cell):
            blocks = list(of_cell)
            text = " ".join(word for block, _ in blocks for word in block.text.split())
            if markdown:
                row += [""] * (blocks[0][1].column - len(row))
                text = text.replace("|", "\\|")
            row.append(text)
        rows.append(row)
    if not markdown:
        return "\n".join(" | ".join(row) for row in rows)
    width = max(map(len, rows))
    rows[0] += [""] * (width - len(rows[0]))  # the others may be shorter
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{' --- |' * width}", *lines[1:]])


def _blocks(given: Iterable[tuple[TextBlock, _Place]], started: set[int], *, markdown: bool) -> Iterator[str]:
    for block, place in given:
        text = block.text
        is_first = place.item >= 0 and place.item not in started
        started.add(place.item)
        if not markdown:
            yield f"- {text}" if is_first else text
            continue
        if place.pre >= 0:
            fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
            text = f"{fence}\n{text}\n{fence}"
        elif place.heading:
            text = f"{'#' * place.heading} {' '.join(text.split())}"
        before, below = "> " * place.quotes + " " * place.margin, " " * len(place.sign)
        text = text.replace("\n", f"\n{before}{below}")
        yield f"{before}{place.sign if is_first else below}{text}"
