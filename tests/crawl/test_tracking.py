"""Tracking parameters: which are removed, which only look like one, and that nothing else in a URL changes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.web.urls import canonical_url
from webtext.crawl.links.karma import link_url
from webtext.crawl.tracking import NAMES, PREFIXES, without_tracking


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("?utm_source=a&utm_medium=b", ""),
        ("?id=1&utm_source=a&page=2", "?id=1&page=2"),
        ("?gclid=x", ""),
        ("?fbclid", ""),
        ("?b=%2f&fbclid=1&a=%2F+é&b=", "?b=%2f&a=%2F+é&b="),
        ("?", ""),
        ("", ""),
        ("?a=http://example.org/?utm_source=b", "?a=http://example.org/?utm_source=b"),
        ("?a=1;utm_source=b", "?a=1;utm_source=b"),  # a value of `a`, as the standard reads it
        ("?my_utm_source=1", "?my_utm_source=1"),
        ("?UTM_SOURCE=1", "?UTM_SOURCE=1"),
        ("?gclids=1&xgclid=2&gclid_=3", "?gclids=1&xgclid=2&gclid_=3"),
        ("?=gclid&ref=a&source=b&sid=c&cid=d", "?=gclid&ref=a&source=b&sid=c&cid=d"),
        ("?pk_id=7", "?pk_id=7"),
        ("?a&&b", "?a&&b"),
    ],
)
def test_complete_parameters_are_removed_and_all_else_is_kept(query: str, left: str) -> None:
    assert without_tracking(f"http://example.com/a{query}") == f"http://example.com/a{left}"


@pytest.mark.parametrize("name", sorted(NAMES | {f"{prefix}x" for prefix in PREFIXES}))
def test_every_name_in_the_table_is_removed(name: str) -> None:
    assert without_tracking(f"http://example.com/?a=1&{name}=v&b=2") == "http://example.com/?a=1&b=2"


PARAMETERS = st.sampled_from(["a=1", "b", "", "utm_source=x", "fbclid=", "c=%E9;d", "gclid", "?", "x=utm_y"])


@given(st.lists(PARAMETERS))
def test_the_other_parameters_keep_their_order_and_bytes(parameters: list[str]) -> None:
    tracking = {"utm_source=x", "fbclid=", "gclid"}
    expected = "&".join(each for each in parameters if each not in tracking)
    url = without_tracking(f"http://example.com/?{'&'.join(parameters)}")
    assert url == (f"http://example.com/?{expected}" if expected else "http://example.com/")


@given(st.text(max_size=40), st.lists(PARAMETERS | st.text(max_size=10), max_size=4), st.text(max_size=5))
def test_a_links_url_is_canonical_and_link_url_is_idempotent(path: str, parameters: list[str], fragment: str) -> None:
    url = link_url(f"http://example.com/{path}?{'&'.join(parameters)}#{fragment}")
    if url is not None:
        assert canonical_url(url) == url
        assert link_url(url) == url


def test_link_url_is_idempotent_on_the_vectors_of_urlcanon(shared_data: Path) -> None:
    """Every string of its test data that is an http(s) URL, whatever its own canonical form makes of it."""
    texts = [path.read_text() for path in (shared_data / "crawl/url").glob("urlcanon_*.json")]
    strings = (json.loads(each) for text in texts for each in re.findall(r'"(?:[^"\\]|\\.)*"', text))
    urls = [url for url in map(link_url, strings) if url is not None]
    assert len(urls) > 500
    assert [*map(link_url, urls)] == [*map(canonical_url, urls)] == urls
