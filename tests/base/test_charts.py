"""Charts: points keep their order, and text from outside is text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from webtext.base.html_pages.charts import NARROW, WIDTH, Line, chart, line_chart

SCRIPT = "</svg><script>alert('&\"')</script>"


def drawn(*lines: Line, label: str = "losses", log_x: bool = False, width: int = WIDTH) -> ElementTree.Element:
    """Return one of a chart's two drawings."""
    made = line_chart(lines, x_label=label, y_label=label, label=label, height=300, log_x=log_x)
    broad, narrow = ElementTree.fromstring(f"<both>{made}</both>")
    assert (broad.get("class"), narrow.get("class")) == ("broad", "narrow")
    return broad if width == WIDTH else narrow


def points_of(svg: ElementTree.Element) -> list[tuple[float, float]]:
    (line,) = [element for element in svg.iter() if element.get("stroke-width") == "2.4"]
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+),(-?[\d.]+)", line.get("d", ""))]


@pytest.mark.parametrize("width", [WIDTH, NARROW])
@pytest.mark.parametrize("log_x", [False, True])
def test_larger_x_are_further_right_and_smaller_y_lower(log_x: bool, width: int) -> None:
    places = points_of(drawn(Line([(1, 5.0), (10, -4.5), (100, 4.75)], "held-out"), log_x=log_x, width=width))
    (x1, y1), (x2, y2), (x3, y3) = places
    assert 0 <= x1 < x2 < x3 <= width
    assert 0 <= y1 < y3 < y2 <= 300


def test_equal_ratios_are_equally_far_apart_on_a_logarithmic_axis() -> None:
    one, two, three = (
        x for x, _ in points_of(drawn(Line([(x, 1.0) for x in (0.001, 0.01, 0.1)], "held-out"), log_x=True))
    )
    assert two - one == pytest.approx(three - two, abs=0.2)


@pytest.mark.parametrize("points", [[(1, 2.0)], [(0, 0.0)], [(3, 4.0), (3, 4.0)]])
def test_a_chart_of_one_value_is_a_chart(points: list[tuple[float, float]]) -> None:
    assert len(list(drawn(Line(points, "held-out")).iter())) > 10


def test_hostile_titles_and_labels_stay_text_and_a_dot_shows_its_title() -> None:
    told = Line([(1, 2.0), (2, 1.0)], "held-out", dot=lambda x, y: f"{SCRIPT}{x} {y}")
    made = line_chart([told], x_label=SCRIPT, y_label=SCRIPT, label=SCRIPT, height=300)
    assert "<script" not in made
    page = ElementTree.fromstring(f"<both>{made}</both>")
    assert [element.text for element in page.iter() if element.tag.endswith("title")] == [
        f"{SCRIPT}1 2.0",
        f"{SCRIPT}2 1.0",
    ] * 2


@pytest.mark.parametrize("label", ["\0\x1b\x0c\ud800\ufffe", "x" * 300_000, "\u202eevil\u2028"])
def test_a_label_of_any_characters_and_length_is_drawn_visible_and_short(label: str) -> None:
    line = Line([(1, 2.0), (2, 1.0)], "held-out", dot=lambda x, y: label)
    made = chart({label: [line]}, x=label, y=label)
    assert not {character for character in label if not character.isprintable()} & set(made)
    assert ascii(label[0])[1:-1] in made
    assert len(made) < 30_000


def test_a_chart_is_equal_every_time() -> None:
    line = Line([(1, 2.0), (2, 1.0)], "training")
    assert ElementTree.tostring(drawn(line)) == ElementTree.tostring(drawn(line))


def test_a_label_with_special_characters_is_read_as_it_is() -> None:
    label = "a \\1 & <b>"
    assert drawn(Line([(1, 2.0)], "held-out"), label=label).get("aria-label") == label
    page = chart({"one": [Line([(1, 2.0), (2, 1.0)], "held-out")]}, x="a & b", y="loss")
    assert "a &amp; b" in page
    assert "&amp;amp;" not in page
