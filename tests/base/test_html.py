"""Pages: what a template shows is text, whatever it contains; the experiments' page of sections."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from webtext.base.html_pages.charts import COLOURS, Line, chart, colour, swatch, thinned
from webtext.base.html_pages.rendering import (
    Section,
    count,
    duration,
    render,
    sections_page,
    sections_text,
    size,
    stream,
)

SCRIPT = "<script>alert('&\"')</script>"
SECTIONS = [
    Section(
        title=f"Loss {SCRIPT}",
        notes=["of two\x1b[31m runs\u202e"],
        rows=[("run", "loss"), (SCRIPT, "3.25"), (swatch("red", SCRIPT), "12.5")],
        chart=Markup("<svg></svg>"),
    ),
    Section(title="Nothing more"),
]


class _Nested(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [] if tag in ("meta", "br") else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_closes_what_it_opens_and_every_text_stays_text() -> None:
    made = sections_page(f"a < b {SCRIPT}", SECTIONS)
    found = _Nested(made)
    assert found.open == []
    assert "script" not in found.tags
    assert made.count("a &lt; b") == 2
    assert "<p>of two\\x1b[31m runs\\u202e</p>" in made
    assert "<svg></svg>" in made
    assert not any(loads in made for loads in ("url(", "@import", "src=", "href="))


def test_a_text_is_cut_where_no_template_asks_for_more() -> None:
    made = sections_page("x" * 100_000, [Section(title="\ud800\ufeff", notes=["<" * 3_000])])
    assert made.count("x") < 5_000
    assert "\\ud800\\ufeff" in made
    assert "&lt;" * 2_000 + "… and 1,000 more characters" in made


def test_the_first_column_is_words_and_the_others_are_numbers() -> None:
    made = sections_page("runs", SECTIONS)
    assert '<tr><th>run</th><th class="n">loss</th></tr>' in made
    assert '&lt;/script&gt;</td><td class="n">3.25</td></tr>' in made


def test_sections_are_aligned_lines_in_a_terminal() -> None:
    sections = [Section(title="Loss", notes=["of two runs"], rows=[("run", "loss"), ("one", "3.25"), ("b", "12.5")])]
    assert sections_text(sections).split("\n") == ["Loss", "  run  loss", "  one  3.25", "  b    12.5", "  of two runs"]


def test_a_missing_value_is_an_error_and_none_is_empty() -> None:
    with pytest.raises(UndefinedError, match="sections"):
        render("webtext.base.html_pages/sections.html", title="x")
    assert "<h1></h1>" in render("webtext.base.html_pages/sections.html", title=None, sections=[])


def test_a_page_is_sent_while_its_rows_are_still_found() -> None:
    found = []

    def sections() -> Iterator[Section]:
        for title in ("<first>", "<second>"):
            found.append(title)
            yield Section(title=title)

    pieces = stream("webtext.base.html_pages/sections.html", title="x", sections=sections())
    assert any("&lt;first&gt;" in piece for piece in pieces)
    assert found == ["<first>"]
    assert "&lt;second&gt;" in "".join(pieces)


def test_a_chart_names_its_lines_as_text() -> None:
    made = chart({SCRIPT: [Line([(1, 2), (2, 3)], "training")]}, x="step", y="loss")
    assert "<script" not in made
    assert "&lt;script&gt;" in made
    assert COLOURS[0] in made
    assert colour(len(COLOURS)) == colour(0) == COLOURS[0]


def test_a_long_curve_is_thinned_to_means_of_stretches() -> None:
    assert thinned([(1, 1.0), (2, 3.0), (3, 5.0), (4, 7.0), (5, 9.0)], 3) == [(2, 2.0), (4, 6.0), (5, 9.0)]
    assert (thinned([(1, 1.0)], 3), thinned([], 3)) == ([(1, 1.0)], [])


def test_numbers_are_short_with_their_units() -> None:
    assert [size(n) for n in (None, 0, 9_999, 11_800, 123_000_000)] == ["", "0 B", "9,999 B", "11.8 kB", "123 MB"]
    assert [duration(n) for n in (None, 1.5, 83, 7380)] == ["", "1.5 s", "1 min 23 s", "2 h 03 min"]
    assert [count(n, "part") for n in (1, 1000)] == ["1 part", "1,000 parts"]
