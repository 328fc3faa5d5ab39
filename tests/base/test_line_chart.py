"""Line charts: every point is inside the chart, larger x are further right, smaller y lower, and dots have titles."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from webtext.base.line_chart import WIDTH, Line, line_chart, log_ticks, ticks

STEPS, LOSSES = st.integers(0, 10**11), st.integers(-(10**6), 10**6).map(lambda n: n / 1000)


@given(st.lists(st.tuples(STEPS, LOSSES), min_size=1, max_size=20))
def test_every_point_is_inside_and_keeps_its_order(points: list[tuple[float, float]]) -> None:
    svg = ElementTree.fromstring(
        line_chart([Line(points, "held-out", "#000")], x_label="tokens", y_label="loss", label="losses", height=300)
    )
    (line,) = [element for element in svg if element.tag == "polyline"]
    places = [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
    assert all(0 <= x <= WIDTH and 0 <= y <= 300 for x, y in places)
    for (x, y), (across, down) in zip(points, places, strict=True):
        assert all(across <= other[0] for (more, _), other in zip(points, places, strict=True) if more >= x)
        assert all(down >= other[1] for (_, higher), other in zip(points, places, strict=True) if higher >= y)


@given(LOSSES, STEPS, st.integers(2, 12))
def test_ticks_enclose_and_rise(low: float, width: int, count: int) -> None:
    found = ticks(low, low + width, count)
    slack = 1e-6 * max(1.0, abs(low), width)
    assert found[0] <= low + slack
    assert found[-1] >= low + width - slack
    assert all(one < other for one, other in zip(found, found[1:], strict=False))


@given(st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=20))
def test_log_ticks_enclose_and_rise_and_points_keep_their_order(numbers: list[float]) -> None:
    found = log_ticks(min(numbers), max(numbers))
    assert found[0] <= min(numbers)
    assert found[-1] >= max(numbers)
    assert all(one < other for one, other in zip(found, found[1:], strict=False))
    numbers.sort()
    drawn = line_chart(
        [Line([(x, 1.0) for x in numbers], "l")], x_label="rate", y_label="loss", label="l", height=300, log_x=True
    )
    (line,) = [element for element in ElementTree.fromstring(drawn) if element.tag == "polyline"]
    across = [float(point.split(",")[0]) for point in line.get("points", "").split()]
    assert across == sorted(across)
    assert all(0 <= x <= WIDTH for x in across)


def test_equal_ratios_are_equally_far_apart_on_a_logarithmic_axis() -> None:
    drawn = line_chart(
        [Line([(x, 1.0) for x in (0.001, 0.01, 0.1)], "l")],
        x_label="rate",
        y_label="loss",
        label="l",
        height=300,
        log_x=True,
    )
    (line,) = [element for element in ElementTree.fromstring(drawn) if element.tag == "polyline"]
    one, two, three = (float(point.split(",")[0]) for point in line.get("points", "").split())
    assert abs((two - one) - (three - two)) < 0.2


def test_a_dot_has_a_title_and_text_is_escaped() -> None:
    drawn = line_chart(
        [Line([(1, 2.0)], "held", dot=lambda x, y: f"<{x} {y}>")], x_label="step", y_label="loss", label="l", height=300
    )
    assert "<title>&lt;1 2.0&gt;</title>" in drawn
    assert drawn.count("<circle") == 1
