"""trafilatura's text without the steps that cannot change it: equal to trafilatura's own, page by page."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from trafilatura.core import bare_extraction

from webtext.clean.extract.cascade import main_text
from webtext.clean.extract.charset import decode
from webtext.clean.extract.html import parse

SENTENCE = "The harbour of the old town was built of granite, and people still walk there in the evening. "
ARTICLE = "".join(f"<p>Paragraph {i}. {SENTENCE * 3}</p>" for i in range(5))
COMMENT = "<p>I never liked that harbour, to be honest, and my aunt did not either.</p>"
MENU = "<ul>" + "".join(f"<li><a href='/{i}'>Something else number {i}</a></li>" for i in range(60)) + "</ul>"
FORUM = '<script type="application/ld+json">{"@type": "DiscussionForumPosting"}</script>'
STATED = '<script type="application/ld+json">{"articleBody": "' + SENTENCE * 4 + '"}</script>'

PAGES = {
    "an article": f"<article>{ARTICLE}</article>",
    "an article and comments": f"<article>{ARTICLE}</article><div class='comments'>{COMMENT * 4}</div>",
    "comments by their id": f"<article>{ARTICLE}</article><ol id=comment-list><li>{COMMENT * 4}</li></ol>",
    "a forum": f"{FORUM}<div class='comments'>{COMMENT * 9}</div>",
    "follow-up articles": f"<article>{ARTICLE}</article><div class='infinite-scroll'><article>{ARTICLE * 3}</article></div>",
    "a long menu": f"<div>{MENU * 4}</div><div class='content'>{ARTICLE}</div><script>{SENTENCE * 99}</script>",
    "hardly any text": "<div><p>Short.</p></div>",
    "text in JSON alone": f"{STATED}<div id=app></div>",
    "a little of a large page": f"<article><p>{SENTENCE * 4}</p></article>"
    + f"<div><b>{SENTENCE * 9}</b><br></div>" * 9,
    "more elsewhere": f"<div id=content><p>{SENTENCE * 3}</p></div><div><div>{ARTICLE * 3}</div></div>",
    "tables for layout": "<table>"
    + f"<tr><td><table><tr><td>{SENTENCE * 3}</td></tr></table></td></tr>" * 5
    + "</table>",
    "a form around it": f"<form>{ARTICLE}</form>",
    "no text": "<div></div>",
}


def of_trafilatura(html: str) -> str:
    document = bare_extraction(html, include_comments=False, include_formatting=False)
    return (getattr(document, "text", None) or "") if document else ""


def ours(html: str) -> str:
    tree = parse(html)
    return "" if tree is None else main_text(tree, html)


@pytest.mark.parametrize("name", PAGES)
def test_each_step_that_is_left_out_would_have_changed_nothing(name: str) -> None:
    html = f"<html><head><title>A title</title></head><body>{PAGES[name]}</body></html>"
    assert ours(html) == of_trafilatura(html)


def test_real_pages_give_the_text_of_trafilatura(shared_data: Path) -> None:
    """Every eighth of the evaluation pages; tests/bench/bench_extract.py takes them all."""
    n_compared = 0
    with tarfile.open(shared_data / "extract" / "pages.tar.xz") as archive:
        for place, member in enumerate(archive):
            if place % 8 == 0 and member.isfile():
                html = decode(archive.extractfile(member).read(), "text/html")  # type: ignore[union-attr]
                assert ours(html) == of_trafilatura(html), member.name
                n_compared += 1
    assert n_compared > 50
