"""Metadata that a page states: the known places, hostile values, and pages of the evaluation set."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.clean.extract.html import parse
from webtext.clean.extract.metadata import (
    MAX_AUTHORS,
    MAX_CHARACTERS,
    MAX_SEARCHED,
    Metadata,
    parse_date,
    read_metadata,
)

JUNE = int(datetime(2017, 6, 1, tzinfo=UTC).timestamp())


def stated(head: str, body: str = "<p>text</p>") -> Metadata:
    html = f"<html><head>{head}</head><body>{body}</body></html>"
    return read_metadata(parse(html), html)


def json_ld(value: str) -> str:
    return f'<script type="application/ld+json">{value}</script>'


def test_a_page_states_its_title_author_and_date() -> None:
    head = """<title>A title · A site</title><meta property="og:title" content="A  title">
        <meta name="Author" content="Ann Lee"><meta property="article:published_time" content="2017-06-01T14:00:00+02:00">"""
    assert stated(head) == Metadata("A title", "Ann Lee", JUNE + 12 * 3600)


@pytest.mark.parametrize(
    ("head", "body", "title"),
    [
        ("<meta property='og:title' content=' '><title>Second</title>", "<h1>Third</h1>", "Second"),
        ("", "<h1> Third <i>heading</i></h1><h1>Fourth</h1>", "Third heading"),
        ("", "<h2>None</h2>", None),
        (f"<title>{'x' * 10_000}</title>", "", "x" * MAX_CHARACTERS),
        ("<title>Newly built</title>", "<h1>New</h1>", "Newly built"),
        ("<title>The harbour – A site</title>", "<h1>A site</h1><h1></h1><h1>The <b>harbour</b></h1>", "The harbour"),
    ],
)
def test_the_title_is_open_graphs_else_the_tags_else_the_first_heading_without_the_site_s_name(
    head: str, body: str, title: str | None
) -> None:
    assert stated(head, body).title == title


@pytest.mark.parametrize(
    ("head", "body", "author"),
    [
        (json_ld('{"@type": "Article", "author": {"@type": "Person", "name": "Ann Lee"}}'), "", "Ann Lee"),
        (json_ld('{"@graph": [{"author": [{"name": "Ann"}, "Bo Oh", {"name": "Ann"}]}]}'), "", "Ann; Bo Oh"),
        (json_ld('{"author": {"name": 7}}') + "<meta name='dc.creator' content='Bo Oh'>", "", "Bo Oh"),
        ("<meta property='article:author' content='https://example.org/ann'>", "", None),
        ("<meta name='author' content='@ann'>", "<p><a rel='author' href='/'> Ann\n Lee </a></p>", "Ann Lee"),
        ("", "<span itemprop='author'><b>by</b> <span itemprop='name'>Ann Lee</span></span>", "Ann Lee"),
        ("<meta name='author' content='" + "x" * 101 + "'>", "", None),
        ("", "<p class='author'>by somebody</p>", None),
    ],
)
def test_authors_are_stated_names_and_never_addresses(head: str, body: str, author: str | None) -> None:
    assert stated(head, body).author == author


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (json_ld('[{"mainEntity": {"datePublished": "2017-06-01"}}]'), ""),
        ("<meta name=date content='Thu, 01 Jun 2017 00:00:00 GMT'>", ""),
        ("<meta name=date content='some day'><meta name='DC.date.issued' content='2017-06-01 00:00:00'>", ""),
        ("", "<time datetime='2017-06-01T00:00Z'>a day in June</time><time datetime='2018-06-01'>later</time>"),
        ("", "<meta itemprop='datePublished' content='20170601'>"),
        ("<meta name=date content='some day'>", "<p class='post-date'>June 1, 2017</p>"),
    ],
)
def test_the_date_is_read_where_it_is_stated_else_where_it_is_found(head: str, body: str) -> None:
    assert stated(head, body).published == JUNE


def test_a_large_page_is_not_searched_for_a_date() -> None:
    assert stated("", f"<p class='post-date'>June 1, 2017</p><p>{'x' * MAX_SEARCHED}</p>").published is None


def test_a_date_to_come_is_found_whatever_the_clock_says() -> None:
    assert stated("", "<p class='post-date'>June 1, 2033</p>").published == JUNE + 5844 * 86_400


@pytest.mark.parametrize(
    "value", ["", "0001-01-01", "9999-12-31", "1 June", "2017-13-01", "+" * 1000, "99" * 40, "NaN"]
)
def test_anything_but_a_plausible_date_is_none(value: str) -> None:
    assert parse_date(value) is None


HOSTILE_JSON = {
    "deep": "[" * 100_000,
    "deep and closed": '{"author":' * 50_000 + "1" + "}" * 50_000,
    "large": '{"author": "' + "x" * 2_000_000 + '"}',
    "many": '{"author": [' + ",".join(f'"a{i}"' for i in range(10_000)) + "]}",
    "a lone surrogate": '{"author": "\\ud800 Lee", "datePublished": 5}',
    "numbers": '{"author": ' + "9" * 10_000 + ', "datePublished": 1e999}',
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_json_is_read_within_bounds(name: str) -> None:
    found = stated(json_ld(HOSTILE_JSON[name]) + json_ld('{"author": "Ann Lee"}')).author
    assert found is None or len(found) < MAX_AUTHORS * 102


@given(st.text("<>/=\"' \nmetatimeauthornamecontent[]{}:,0123456789-T", max_size=300), st.text(max_size=40))
def test_no_page_raises(body: str, date: str) -> None:
    stated(body, body)
    found = parse_date(date)
    assert found is None or found > 0
