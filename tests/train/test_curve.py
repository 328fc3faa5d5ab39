"""The frame of training's pages, and loss curves: what is read from metrics.jsonl, where it is drawn, how a browser shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browser import shown

from webtext.app.main import run
from webtext.base.charts import WIDTH
from webtext.base.errors import ConfigError, InputError
from webtext.train.evaluate.curve import CURVE_POINTS, Curve, curve_page, read_curve
from webtext.train.evaluate.page import COLOURS, HEIGHT, colour, page, paragraphs, table

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


Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """write(name, rows, end) makes a model folder with metrics.jsonl; `end` is a line that is being written."""

    def make(name: str, rows: list[dict[str, Any]], end: str = "") -> str:
        (tmp_path / name).mkdir()
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name / "metrics.jsonl").write_text(lines + end)
        return str(tmp_path / name)

    return make


ROWS = [
    {"step": 0, "validation_loss": 6.0},
    {"step": 1, "tokens": 1000, "loss": 5.5},
    {"step": 2, "tokens": 3000, "skipped": "a spike"},
    {"step": 3, "tokens": 5000, "loss": 4.0},
    {"step": 3, "validation_loss": 4.2},
]


def svg_of(page: str) -> ElementTree.Element:
    start, end = page.index("<svg"), page.index("</svg>") + 6
    return ElementTree.fromstring(page[start:end])


def lines_of(svg: ElementTree.Element) -> list[ElementTree.Element]:
    return [element for element in svg.iter() if element.get("stroke-width") in ("1.2", "2.4")]


def places(line: ElementTree.Element) -> list[tuple[float, float]]:
    """The points of a path of straight lines."""
    points = re.findall(r"[ML](-?[\d.]+),(-?[\d.]+)", line.get("d", ""))
    return [(float(x), float(y)) for x, y in points]


def test_a_loss_is_drawn_at_the_tokens_seen_until_then(write: Write) -> None:
    """Held-out rows have only a step, so the tokens of the row before apply."""
    curve = read_curve(write("model", ROWS, end='{"step": 4, "lo'))
    assert curve.training == [(1000, 5.5), (5000, 4.0)]
    assert curve.held_out == [(0, 6.0), (5000, 4.2)]


def test_many_steps_are_thinned_to_means(write: Write) -> None:
    """Twice as many steps as points: each point is the mean of two, at the later one."""
    rows = [{"step": i, "tokens": 10 * i, "loss": float(i)} for i in range(1, 2 * CURVE_POINTS + 1)]
    curve = read_curve(write("model", rows))
    assert len(curve.training) == CURVE_POINTS
    assert curve.training[0] == (20, 1.5)


def test_the_page_draws_every_run_in_its_colour_with_axes_units_and_a_legend(write: Write) -> None:
    plain = read_curve(write("plain", ROWS))
    fast = Curve("<fast>", [(2000, 5.0), (4000, 4.0)], [(4000, 3.9)])
    page = curve_page([plain, fast])
    HTMLParser().feed(page)
    svg = svg_of(page)
    lines = lines_of(svg)
    assert [line.get("stroke-width") for line in lines] == ["1.2", "2.4"] * 2
    assert len({line.get("stroke") for line in lines}) == 2
    texts = [element.text for element in svg.iter() if element.tag == "text" or element.tag.endswith("}text")]
    assert {"tokens seen", "loss, nats per token", "0", "5k"} <= set(texts)
    assert "&lt;fast&gt;" in page
    assert "<fast>" not in page
    for ending in ("4.2000", "3.9000", "5,000", "4,000"):
        assert f'<td class="n">{ending}</td>' in page
    for line in lines:
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places(line))
    held_out = places(lines[1])
    assert held_out[0][0] < held_out[1][0], "more tokens are further right"
    assert held_out[0][1] < held_out[1][1], "a lower loss is lower"


def test_metrics_without_a_loss_are_rejected(write: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"contains no metrics\.jsonl"):
        read_curve(str(tmp_path))
    with pytest.raises(InputError, match="has no loss after the first step"):
        read_curve(write("begun", ROWS[:1]))
    with pytest.raises(InputError, match="has no loss after the first step"):
        read_curve(write("diverged", [{"step": 1, "tokens": 9, "loss": float("nan")}]))
    with pytest.raises(InputError, match="not a measurement"):
        read_curve(write("odd", [{"step": 1, "tokens": 9, "loss": [1]}]))
    with pytest.raises(ConfigError, match="no run is named"):
        curve_page([])


def test_the_verb_writes_one_page_of_several_runs(write: Write, tmp_path: Path) -> None:
    runs = [write("one", ROWS), write("two", ROWS)]
    page = tmp_path / "curve.html"
    assert run(["train", "curve", *runs, "--out", str(page), "--quiet"]) == 0
    assert len(lines_of(svg_of(page.read_text()))) == 4
    assert run(["train", "curve", *runs]) == 2
    assert run(["train", "curve", str(tmp_path / "nothing"), "--out", str(page)]) == 3


def test_a_browser_draws_the_page_and_asks_nobody_for_anything(write: Write, tmp_path: Path) -> None:
    page = tmp_path / "curve.html"
    page.write_text(curve_page([read_curve(write("model", ROWS))]))
    with shown(page) as browser:
        boxes = [
            line.bounding_box()
            for line in browser.query_selector_all("path[stroke-width='1.2'],path[stroke-width='2.4']")
        ]
    assert len(boxes) == 2
    assert all(box is not None and box["width"] > 400 and box["height"] > 100 for box in boxes)
