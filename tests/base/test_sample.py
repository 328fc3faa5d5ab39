"""Samples of links: equal on every machine, smaller ones inside larger ones, and otherwise a random choice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.base.parts.identifiers import link_id, split_of
from webtext.base.sample import Sample, smallest_with_a_link

LINKS = [link_id(f"http://host.example/{i}") for i in range(20_000)]


def test_the_slice_is_frozen() -> None:
    """A build of today and one of next year choose the same links."""
    assert [i for i, each in enumerate(LINKS[:400]) if Sample(1.0).holds(each)] == [34, 377]


@given(st.floats(0.001, 100), st.floats(0.001, 100), st.text())
def test_a_smaller_sample_is_inside_a_larger_one(one: float, other: float, identifier: str) -> None:
    small, large = sorted((one, other))
    assert Sample(large).holds(identifier) or not Sample(small).holds(identifier)


def test_a_sample_has_its_share_of_links_and_of_held_out_links() -> None:
    """10 % of 20,000 links are 2,000 (standard deviation 42), and 5 % of these are 100 held out (deviation 10)."""
    held = [each for each in LINKS if Sample(10.0).holds(each)]
    assert abs(len(held) - 2000) < 4 * 42
    assert abs(sum(split_of(each) == "validation" for each in held) - 100) < 4 * 10


def test_all_is_all() -> None:
    assert all(map(Sample(100.0).holds, LINKS))


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0.1%", "0.1%"), ("5 %", "5%"), ("100%", "100%"), ("0.10%", "0.1%"), ("0.000001%", "0.000001%")],
)
def test_a_share_is_read_and_shown(text: str, shown: str) -> None:
    assert str(Sample.parse(text, "sample")) == shown


@pytest.mark.parametrize(
    "text", ["0%", "0.0%", "100.1%", "200%", "-1%", "0.1", "", "%", "nan%", "1e3%", "0,1%", "1%%", "٣%"]
)
def test_a_text_that_is_not_a_percentage_is_rejected_with_the_name_of_the_setting(text: str) -> None:
    with pytest.raises(ConfigError, match=r"\[build\] sample"):
        Sample.parse(text, "[build] sample")


@pytest.mark.parametrize("n", [1, 3, 50])
def test_the_smallest_sample_that_holds_a_link_does_hold_one(n: int) -> None:
    smallest = smallest_with_a_link(LINKS[:n])
    assert any(map(Sample.parse(str(smallest), "").holds, LINKS[:n]))
    assert not any(map(Sample(smallest.percent * 0.98).holds, LINKS[:n]))
