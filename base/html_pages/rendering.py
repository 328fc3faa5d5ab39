"""Pages from Jinja templates, self-contained and without script.

Whatever a template shows is escaped, cut, and its control characters are made visible, unless it is `Markup`: a chart, or
what a template returned. `page.html` is the frame of every page, `parts.html` has tables, bars and figures, `style.css` is the
one style: light and dark, phone and paper.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from webtext.base.errors import MAX_LABEL, label


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A title, sentences, a table whose first row is its head and first column words, and a chart."""

    title: str
    notes: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    chart: str = ""


def sections_text(sections: Sequence[Section]) -> str:
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


def sections_page(title: str, sections: Sequence[Section]) -> str:
    """Return the page of the sections."""
    return render("webtext.base.html_pages/sections.html", title=title, sections=sections)


def render(template: str, **values: Any) -> Markup:
    """Return the template PACKAGE/FILE, filled with the values."""
    return Markup(_environment().get_template(template).render(values))


def stream(template: str, **values: Any) -> Iterator[str]:
    """Yield it in pieces, as iterators among the values return their items."""
    return _environment().get_template(template).generate(values)


def own_file(name: str) -> str:
    """Return the text of PACKAGE/FILE, which is installed with the package."""
    package, _, file = name.rpartition("/")
    return files(package).joinpath(file).read_text("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(own_file),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_final,
    )
    filters = (number, ratio, short, size, count, duration, day, cut)
    environment.filters |= {each.__name__: each for each in filters}
    environment.globals["style"] = Markup(own_file("webtext.base.html_pages/style.css"))
    return environment


def _final(value: Any) -> Any:
    """Return a value as a template shows it: nothing for None, and no text that hides or reorders other text, or is long."""
    if value is None:
        return ""
    return value if isinstance(value, Markup | int | float) else cut(str(value))


def number(value: float | None, form: str = "") -> str:
    """Return a number with commas, in a format such as ".4g"; nothing for None."""
    return "" if value is None else f"{value:,{form}}"


def ratio(part: float, whole: float) -> str:
    """Return a share in percent; nothing of nothing."""
    return f"{part / whole:.1%}" if whole else ""


def short(n: int) -> str:
    """Return a count in three or four digits.

    >>> [short(n) for n in (9_999, 16_234, 606_400, 1_912_000)]
    ['9,999', '16.2 k', '606 k', '1.91 M']
    """
    if n < 10_000:
        return f"{n:,}"
    units = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))
    unit, one = next((unit, one) for unit, one in units if n >= one)
    return f"{n / one:.{max(0, 3 - len(str(n // one)))}f} {unit}"


def size(n: int | None) -> str:
    """Return a number of bytes in three or four digits; nothing for None."""
    return "" if n is None else f"{short(n)}{'' if n >= 10_000 else ' '}B"


def count(n: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is 1."""
    return f"{n:,} {noun}{'s' if n != 1 else ''}"


def duration(seconds: float | None) -> str:
    """Return a time in its two largest units; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def day(seconds: int) -> str:
    """Return the UTC date of a time, or the number if no calendar has it."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def cut(text: str, most: int = MAX_LABEL) -> Markup:
    """Return the start of a text as every template shows texts; with `most`, longer or shorter than usual (`label`).

    >>> cut("<b>def", 4)
    Markup('&lt;b&gt;d… and 2 more characters')
    """
    return escape(label(text, most))
