"""The lead of an article, which precedes its main text and is also the page's description."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.clean.extract.body import Body, ExtractSettings, extract_body
from webtext.clean.extract.html import parse
from webtext.clean.extract.lead import MAX_CHARACTERS, with_lead
from webtext.clean.extract.metadata import read_metadata

LEAD = "Nobody had seen the harbour like this before, and few expected that it would last."
FIRST = "The first ships came in at dawn, long before the pilots were at their posts and the gates had been opened."
SECOND = "By noon there were more than forty of them, and the town had run out of places where they could be moored."
TEXT = f"{FIRST}\n{SECOND}"


def found(body: str, description: str = LEAD, text: str = TEXT, title: str = "Ships") -> str:
    html = (
        f'<html><head><title>{title}</title><meta name="description" content="{description}"></head>'
        f"<body>{body}<article><p>{FIRST}</p><p>{SECOND}</p></article></body></html>"
    )
    tree = parse(html)
    return with_lead(text, tree, read_metadata(tree, html))


@pytest.mark.parametrize(
    "body",
    [
        f"<div class=teaser><p>{LEAD}</p></div>",
        f"<header><h1>Ships</h1><h2><span>{LEAD}</span></h2></header>",
        f"<div><div>{'menu ' * 300}</div><br>{LEAD}</div>",
        f"<nav><span>{LEAD}</span></nav><p class=hidden>{LEAD}</p><p>{LEAD}</p>",
        f"<p>{LEAD.replace('harbour', '<b>harbour</b>').replace(' ', chr(10))}</p>",
    ],
)
def test_a_paragraph_that_the_page_states_as_its_description_begins_the_text(body: str) -> None:
    assert found(body) == f"{LEAD}\n{TEXT}"


def test_the_entire_paragraph_is_taken_if_the_description_is_cut_off_or_a_place_precedes_it() -> None:
    assert found(f"<p>OSLO – {LEAD}</p>", LEAD[:45] + " …") == f"OSLO – {LEAD}\n{TEXT}"


def test_short_lines_and_the_title_stay_before_the_lead() -> None:
    title = "Ships: a very long title that is longer than all the lines which are taken for the beginning of a text"
    before = f"1 June\n{title}"
    assert found(f"<p>{LEAD}</p>", text=f"{before}\n{TEXT}", title=title) == f"{before}\n{LEAD}\n{TEXT}"


@pytest.mark.parametrize(
    ("body", "description"),
    [
        ("", LEAD),
        (f"<p>{LEAD}</p>", "Ships"),
        (f"<p>{LEAD}</p>", ""),
        (f"<p>{LEAD}</p>", SECOND),
        (f"<figure><figcaption>{LEAD}</figcaption></figure>", LEAD),
        (f"<div class=image-caption><p>{LEAD}</p></div>", LEAD),
        (f"<p style='display: none'>{LEAD}</p>", LEAD),
        (f"<aside><p>{LEAD}</p></aside>", LEAD),
        (f"<script>let lead = '{LEAD}'</script>", LEAD),
        (f"<p>{LEAD + ' More.' * MAX_CHARACTERS}</p>", LEAD),
        (f"<p>{'Something else is said before it. ' * 3}{LEAD}</p>", LEAD),
    ],
)
def test_a_paragraph_that_is_not_a_lead_is_not_added(body: str, description: str) -> None:
    assert found(body, description) == TEXT


def test_a_paragraph_after_the_text_is_not_a_lead() -> None:
    after = f'<meta name="description" content="{LEAD}"><article><p>{FIRST}</p></article><div><p>{LEAD}</p></div>'
    tree = parse(f"<html>{after}</html>")
    assert with_lead(FIRST, tree, read_metadata(tree, after)) == FIRST


def test_a_page_gets_its_lead_once() -> None:
    """trafilatura alone leaves the teaser out; if it keeps the lead, nothing is added."""
    page = (
        "<html><head><title>Ships</title><meta property='og:description' content='{0}'></head><body><h1>Ships</h1>"
        "<div class='{1}'><p>{0}</p></div><article><p>{2}</p><p>{3}</p><p>{2} {3}</p></article></body></html>"
    )
    for name in ("teaser", "anything"):
        body = page.format(LEAD, name, FIRST, SECOND).encode()
        result = extract_body(body, "text/html", ExtractSettings())
        assert isinstance(result, Body)
        assert result.text.count(LEAD) == 1


@given(st.text("<>/=\"' \nabcmetadescriptionnamecontentpdiv", max_size=300), st.text(max_size=200))
def test_no_page_raises(body: str, text: str) -> None:
    html = f'<html><meta name=description content="{text}">{body}<p>{text}</p>{text}'
    tree = parse(html)
    if tree is not None:
        assert len(with_lead(text, tree, read_metadata(tree, html))) >= len(text)
