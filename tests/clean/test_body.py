"""Extraction of one body: real pages, kinds of bodies, and HTML made to do harm."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.clean.extract import html as html_module
from webtext.clean.extract.blocks import Blocks
from webtext.clean.extract.body import EXTRACTORS, Body, ExtractSettings, body_kind, extract_body
from webtext.clean.extract.features import PageFeatures
from webtext.clean.extract.html import MAX_DEPTH
from webtext.clean.extract.scorer import ScoredPage
from webtext.clean.reasons import Dropped, Refused
from webtext.clean.text.clean_text import clean_text

SETTINGS = ExtractSettings()
EACH = [ExtractSettings(extractor=name) for name in EXTRACTORS]
each_extractor = pytest.mark.parametrize("settings", EACH, ids=EXTRACTORS)
slow_by_libraries = pytest.mark.parametrize(
    "settings", [SETTINGS, *(pytest.param(each, marks=pytest.mark.slow) for each in EACH[1:])], ids=EXTRACTORS
)
LEAST_F1 = {"fused": 0.94, "blocks": 0.94, "trafilatura": 0.9, "resiliparse": 0.83}
PARAGRAPH = "<p>The harbour of the old town was built of granite, and people still walk there in the evening.</p>"


def long_article(first: int = 1) -> str:
    """Five paragraphs, of which none repeats another."""
    return "".join(PARAGRAPH.replace("<p>", f"<p>Paragraph {i}: ") for i in range(first, first + 5))


def html(inside: str) -> bytes:
    return f"<html><head><title>A title</title></head><body>{inside}</body></html>".encode()


@pytest.mark.slow
@each_extractor
def test_real_pages_have_their_wanted_passages_and_not_the_unwanted_ones(
    settings: ExtractSettings, shared_data: Path
) -> None:
    """Every tenth page of trafilatura's evaluation set, which the model has seen; for scores see tests/bench/bench_extract.py."""
    truth = json.loads((shared_data / "extract" / "evaldata.json").read_text("utf-8")).values()
    chosen = {entry["file"]: entry for entry in sorted(truth, key=lambda entry: str(entry["file"]))[::10]}
    found = missing = unwanted = 0
    with tarfile.open(shared_data / "extract" / "pages.tar.xz") as archive:
        for member in archive:
            if (entry := chosen.get(Path(member.name).name)) is not None:
                body = archive.extractfile(member).read()  # type: ignore[union-attr]
                text = getattr(extract_body(body, "text/html", settings), "text", "")
                assert text == clean_text(text)
                found += sum(passage in text for passage in entry["with"])
                missing += sum(passage not in text for passage in entry["with"])
                unwanted += sum(passage in text for passage in entry["without"])
    assert found + missing > 100
    precision, recall = found / (found + unwanted), found / (found + missing)
    assert 2 * precision * recall / (precision + recall) > LEAST_F1[settings.extractor]


@each_extractor
def test_text_and_title_come_out_and_the_menu_does_not(settings: ExtractSettings) -> None:
    menu = "<nav><ul><li><a href='/'>Home page of ours</a></li></ul></nav>"
    result = extract_body(html(menu + f"<article>{PARAGRAPH * 4}</article>"), "text/html; charset=utf-8", settings)
    assert isinstance(result, Body)
    assert result.title == "A title"
    assert "harbour of the old town" in result.text
    assert "Home page" not in result.text


def test_plain_text_and_markdown_pass_without_an_extractor() -> None:
    body = b"# Title\r\n\r\n    indented code  \r\n"
    for content_type in ("text/plain", "text/markdown; charset=utf-8", "Text/X-Markdown"):
        assert extract_body(body, content_type, SETTINGS) == Body("# Title\n\n    indented code")


@pytest.mark.parametrize(
    ("body", "content_type", "kind"),
    [
        (b"<p>hello", "text/html", "html"),
        (b"var x = 1;", "text/html", "html"),
        (b"\xef\xbb\xbf <!-- a comment --> <!DOCTYPE html><p>hello", "", "html"),
        (b"<html>", "application/octet-stream", "html"),
        (b'<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml">', "application/xml", "html"),
        (b"<rss></rss>", "text/xml", None),
        (b"hello", "", None),
        (b"%PDF-1.4 <html>", "text/html", None),
        (b"<html>", "image/png", None),
        (b"{}", "application/json", None),
    ],
)
def test_the_header_decides_the_kind_of_a_body_and_without_it_the_first_bytes(
    body: bytes, content_type: str, kind: str | None
) -> None:
    assert body_kind(body, content_type) == kind


@each_extractor
@pytest.mark.parametrize("body", [b"", b"   ", html(""), b"<!doctype html>", html("<script>1</script>"), b"\x00\x00"])
def test_a_page_without_text_is_dropped_as_empty(body: bytes, settings: ExtractSettings) -> None:
    assert extract_body(body, "text/html", settings) == Dropped("empty_text")


HOSTILE = {
    "100,000 nested divs": (html("<div>" * 100_000 + "deep" + "</div>" * 100_000), "too_deep"),
    "50,000 unclosed tags": (html("<b>" * 50_000 + "deep"), "too_deep"),
    "nested tables": (html("<table><tr><td>" * 20_000 + "deep"), "too_deep"),
    "a million tags": (html("<p>a" * 1_000_000), "too_many_nodes"),
    "a million angle brackets": (html("<" * 1_000_000), "too_many_nodes"),
    "attributes behind a quoted bracket": (html("<p a='>' a" + " a".join(map(str, range(500_000)))), "too_many_nodes"),
    "attributes with quoted tags": (
        html("<script>a<b='</script><!-- <b='--><p a" + '="<b>" a'.join(map(str, range(40_000))) + ">x"),
        "too_many_nodes",
    ),
    "attributes side by side": (html("<p a" + '="1"a'.join(map(str, range(40_000))) + ">x"), "too_many_nodes"),
    "eleven megabytes": (html("x" * 11_000_000), "body_too_large"),
    "wrong UTF-16": (b"\xfe\xff" + b"\xd8\x00" * 1000, "undecodable"),
}


@pytest.mark.usefixtures("linear_time")
@slow_by_libraries
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_html_is_rejected_with_a_reason_before_it_costs_time(
    name: str, settings: ExtractSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for text and metadata in the tree is what costs time; it must not begin."""
    for costly in ("read_blocks", "read_metadata"):
        monkeypatch.setattr(html_module, costly, None)
    monkeypatch.setattr(html_module, "_LIBRARIES", dict.fromkeys(html_module._LIBRARIES))
    body, reason = HOSTILE[name]
    result = extract_body(body, "text/html", settings)
    assert isinstance(result, Refused)
    assert result.reason == reason


@pytest.mark.parametrize("start", ["<html lang='en'/>", "<!DOCTYPE html /><html>"])
def test_a_page_whose_first_tag_is_closed_at_once_is_read(start: str) -> None:
    result = extract_body(f"{start}<body>{PARAGRAPH}</body></html>".encode(), "text/html", SETTINGS)
    assert isinstance(result, Body)
    assert "harbour" in result.text


def test_a_page_of_very_many_blocks_is_rejected() -> None:
    refused = extract_body(html("".join(f"<p>word {i}" for i in range(60_000))), "text/html", SETTINGS)
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.cause) == ("too_many_nodes", "60,000 blocks of text")


def test_nested_formatting_is_rejected_only_for_the_extractor_that_reopens_it_in_every_block() -> None:
    """11 nested elements before 10,000 blocks would become 110,000, and 240 take 2 GB; our tree has 11."""
    body = html("<p>" + "".join(f"<b class=c{i}>" for i in range(11)) + "<div>A block of text.</div>" * 10_000)
    refused = extract_body(body, "text/html", ExtractSettings(extractor="resiliparse"))
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.cause) == ("too_deep", "formatting elements nested deeper than 10")
    assert isinstance(extract_body(body, "text/html", SETTINGS), Body)


JSON = "[" + '{"a key": "a value &amp; more > less", "n": 1}, ' * 26_000 + "]"
HARMLESS = {
    "one line of a megabyte": html("<p>" + "word " * 300_000 + "</p>"),
    "one word of five megabytes": html("<p>" + "x" * 5_000_000 + "</p>"),
    "colspan bomb": html(
        PARAGRAPH * 3 + "<table>" + "<tr><td colspan=100000000 rowspan=99999999>cell</td></tr>" * 50 + "</table>"
    ),
    "entity bomb": b'<!DOCTYPE html [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>'
    + html(PARAGRAPH * 3 + "&b;" * 1000),
    "NULs and controls": html((PARAGRAPH * 3).replace("granite", "gra\x00ni\x01te\x1f")),
    "invalid UTF-8": html(PARAGRAPH * 3).replace(b"granite", b"gra\xffnite"),
    "surrogates in bytes": html(PARAGRAPH * 3).replace(b"granite", b"gra\xed\xa0\x80nite"),
    "formatting never closed": html(PARAGRAPH * 3 + "<p><i class=a>b</p>" * 5_000),
    "surrogate references": html(
        PARAGRAPH * 3 + "<p>&#xD800; and &#0; and &#x110000; stand here for nothing at all.</p>"
    ),
    "a thousand small tables": html(PARAGRAPH * 3 + "<table><tr><td>a</table>" * 1_000),
    "wide cells": html(PARAGRAPH * 3 + "<table><tr>" + "<td colspan=1000>a</td>" * 5_000 + "</table>"),
    "a thousand open comments": html("<!--" * 1000 + PARAGRAPH * 3),
    "empty tags between words": html(PARAGRAPH + ("<nav></nav>" + "word " * 20) * 30_000),
    "empty formatting between words": html(PARAGRAPH + ("<b></b>" + "word " * 20) * 30_000),
    "a list of 40,000 items": html("<ul>" + "<li>an item of the list</li>" * 40_000 + "</ul>"),
    "10,000 spans": html(PARAGRAPH * 3 + "<p>" + "<span>a</span>" * 10_000),
    "20,000 attributes": html(f"<p {' '.join(f'a{i}=1' for i in range(20_000))}>" + PARAGRAPH * 3),
    "one attribute of JSON": html(f"<div data-page='{JSON}'></div>" + PARAGRAPH * 3),
}


@pytest.mark.usefixtures("linear_time")
@slow_by_libraries
@pytest.mark.parametrize("name", HARMLESS)
def test_odd_html_gives_a_valid_text_or_a_reason_in_bounded_time(name: str, settings: ExtractSettings) -> None:
    result = extract_body(HARMLESS[name], "text/html", settings)
    if isinstance(result, Body):
        assert result.text == clean_text(result.text)
        result.text.encode("utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("linear_time")
@pytest.mark.parametrize("settings", [SETTINGS, ExtractSettings(markdown=True)], ids=["text", "markdown"])
@pytest.mark.parametrize(
    "body",
    [
        "<div>" * 240 + "".join(f"<p>{i}" for i in range(45_000)),
        "".join(f"<p id=a{i}>{i}" for i in range(45_000)),
        "<p>" + "words and " * 900_000,
        "<pre>" + "\n" * 9_000_000 + "end",
        "<blockquote>" * 60 + "<ul><li>" * 60 + "<pre>" + "a\n" * 4_500_000,
        f"<table><tr>{'<td>a</td>' * 25_000}</tr>{'<tr><td>b</td></tr>' * 20_000}</table>",
        f"<meta name=description content='{'word ' * 800_000}'>" + "<p>words that it lacks</p>" * 45_000,
        "<p>a date" + "<time itemprop=datePublished content=then datetime=now></time>" * 120_000,
        "<p>an author" + "<div itemprop='author'>" * 9 + "<b itemprop=name></b>" * 120_000,
    ],
    ids=["deep", "flat", "one line", "empty lines", "deep lines", "table", "description", "dates", "authors"],
)
def test_the_largest_pages_that_are_allowed_take_linear_time(body: str, settings: ExtractSettings) -> None:
    assert isinstance(extract_body(html(body), "text/html", settings), Body)


def test_a_page_with_a_long_attribute_of_json_is_read() -> None:
    """1.2 MB with 180,000 blanks inside quotes aren't as many attributes."""
    assert len(JSON) > 1_200_000
    result = extract_body(HARMLESS["one attribute of JSON"], "text/html", SETTINGS)
    assert isinstance(result, Body)
    assert "harbour" in result.text


def test_the_kind_of_a_page_is_estimated_and_a_text_has_none() -> None:
    page = html(f"<article><h1>A harbour</h1>{long_article()}</article>")
    result = extract_body(page, "text/html", SETTINGS)
    assert isinstance(result, Body)
    assert result.kind == "article"
    for body, content_type, settings in ((b"a text", "text/plain", SETTINGS), (page, "text/html", EACH[-1])):
        other = extract_body(body, content_type, settings)
        assert isinstance(other, Body)
        assert other.kind is None


def test_markdown_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks are kept, so that the model doesn't matter."""

    def judge(found: Blocks, *_: object) -> ScoredPage:
        return ScoredPage(PageFeatures(found), np.ones(len(found.blocks)), {"article": 1.0})

    monkeypatch.setattr(html_module, "scorer", lambda: SimpleNamespace(judge=judge))
    page = html("<h1>A harbour</h1><pre>if x:\n    y</pre>")
    for markdown, text in ((True, "# A harbour\n\n```\nif x:\n    y\n```"), (False, "A harbour\nif x:\n    y")):
        result = extract_body(page, "text/html", ExtractSettings(markdown=markdown))
        assert result == Body(text, "A title", kind="article")


def test_a_long_poem_and_a_long_list_are_read_to_the_end() -> None:
    poem = "".join(
        f"This is line number {i} of a poem that does not come to its end for a long time,<br>" for i in range(8000)
    )
    items = "".join(f"<li>This is item number {i} of a list that has many of them.</li>" for i in range(2500))
    for body, last in (
        (f"<div>{poem}</div>", "line number 7999 of"),
        (f"{PARAGRAPH}<ul>{items}</ul>", "number 2499 of"),
    ):
        result = extract_body(html(f"<article>{body}</article>"), "text/html", SETTINGS)
        assert isinstance(result, Body)
        assert last in result.text


def test_a_page_as_deep_as_allowed_is_read_completely_and_one_level_more_is_rejected() -> None:
    """html and body are two levels, the paragraph at the bottom a third."""

    def page(depth: int) -> bytes:
        return html("<div>" * (depth - 3) + long_article() + "</div>" * (depth - 3))

    deepest = extract_body(page(MAX_DEPTH), "text/html", SETTINGS)
    assert isinstance(deepest, Body)
    assert deepest.text.count("harbour") == 5
    assert isinstance(extract_body(page(MAX_DEPTH + 1), "text/html", SETTINGS), Refused)


def test_the_text_does_not_depend_on_pages_read_before() -> None:
    page = html(f"<article>{PARAGRAPH * 5}</article>")
    first = extract_body(page, "text/html", SETTINGS)
    for _ in range(5):
        assert extract_body(page, "text/html", SETTINGS) == first


@given(
    st.binary(max_size=400) | st.text("<>/abdivptables =\"'&;!-", max_size=400).map(str.encode), st.sampled_from(EACH)
)
def test_no_body_makes_extraction_raise(body: bytes, settings: ExtractSettings) -> None:
    assert isinstance(extract_body(body, "text/html", settings), Body | Dropped | Refused)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"extractor": "block"}, "did you mean"),
        ({"extractor": "resiliparse", "markdown": True}, "markdown is on for extractor 'resiliparse'"),
    ],
)
def test_impossible_settings_are_config_errors(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExtractSettings(**settings)  # type: ignore[arg-type]


def test_the_text_that_json_ld_states_is_taken_where_the_page_has_none() -> None:
    story = "A sentence of the story. " * 9
    stated = f'<script type="application/ld+json">{{"@type": "NewsArticle", "articleBody": "{story}"}}</script>'
    for shown, expected in (("<div id=app>Loading</div>", story.strip()), (f"<p>{story}</p><p>{SHOWN}</p>", SHOWN)):
        found = extract_body(
            f"<html><head>{stated}</head><body>{shown}</body></html>".encode(), "text/html", ExtractSettings()
        )
        assert isinstance(found, Body)
        assert expected in found.text


def test_a_recipe_that_json_ld_states_is_kept_wherever_the_page_has_it() -> None:
    """Beside it, other notes of the page stay out."""
    story = "<p>The harbour of the town was built of granite, and people walk there when the ships come home.</p>"
    lines = ["two cups of cooked lentils", "salt", "Cook the onion in oil until it is soft."]
    steps = [{"@type": "HowToSection", "itemListElement": [{"@type": "HowToStep", "text": lines[2]}]}]
    stated = {"@graph": [{"@type": "Recipe", "recipeIngredient": lines[:2], "recipeInstructions": steps}]}
    page = f"<html><head><title>Lentils</title>%s</head><body><article>{story * 4}</article>"
    page += "".join(f"<div class='sidebar widget'>{line}</div>" for line in [*lines, "Follow us"])
    for head, expected in ((f'<script type="application/ld+json">{json.dumps(stated)}</script>', lines), ("", [])):
        found = extract_body((page % head).encode(), "text/html", ExtractSettings())
        assert isinstance(found, Body)
        assert found.text.splitlines()[4:] == expected


SHOWN = "And a paragraph that only the page has, of a length that makes it text."


def test_soft_hyphens_and_blanks_of_no_width_are_left_out_and_joiners_stay() -> None:
    found = extract_body(
        "<html><p>Hafen&shy;kredit\u200b und می\u200cخواهم ist ein langer Satz.</p>".encode(),
        "text/html",
        ExtractSettings(),
    )
    assert isinstance(found, Body)
    assert "Hafenkredit und می\u200cخواهم" in found.text
