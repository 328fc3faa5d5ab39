"""The frame of training's pages."""

from __future__ import annotations

from html.parser import HTMLParser

from webtext.train.evaluate.page import COLOURS, colour, page, paragraphs, table

VOID = ("meta",)


def test_a_page_closes_what_it_opens_and_escapes_its_title() -> None:
    open_tags: list[str] = []

    class Nested(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            open_tags.extend([] if tag in VOID else [tag])

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    made = page("a < b", paragraphs(["x & y"]), table(("run", "loss"), [("one", "1.0")]), style="b{color:red}")
    Nested().feed(made)
    assert open_tags == []
    assert made.count("a &lt; b") == 2
    assert "<p>x &amp; y</p>" in made
    assert "b{color:red}</style>" in made


def test_columns_are_numbers_except_those_named() -> None:
    made = table(("run", "loss", "verdict"), [("one", "1.0", "better")], words=(0, 2))
    assert '<tr><th>run</th><th class="n">loss</th><th>verdict</th></tr>' in made
    assert '<tr><td>one</td><td class="n">1.0</td><td>better</td></tr>' in made


def test_after_the_last_colour_comes_the_first() -> None:
    assert colour(len(COLOURS)) == colour(0) == COLOURS[0]
