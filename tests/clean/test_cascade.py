"""The cascade without the steps that can't change the text: equal to trafilatura's own text, page by page."""

from __future__ import annotations

import tarfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from trafilatura import external, htmlprocessing, main_extractor, readability_lxml, xpaths
from trafilatura.baseline import baseline, basic_cleaning, html2txt
from trafilatura.core import bare_extraction

from webtext.clean.extract import cascade
from webtext.clean.extract.cascade import main_text
from webtext.clean.extract.charset import decode
from webtext.clean.extract.html import parse
from webtext.clean.extract.trafilatura_twin import _base, _external, _main

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


NAMES = [
    "article-body",
    "post",
    "entry-content",
    "main",
    "comments",
    "comment-list",
    "sidebar",
    "share-bar",
    "teaser",
    "caption",
    "cookie-banner",
    "footer",
    "hidden",
    "widget",
    "w3-code",
    "related",
    "container",
]
TAGS = [
    "div",
    "p",
    "section",
    "article",
    "span",
    "ul",
    "ol",
    "li",
    "table",
    "tr",
    "td",
    "blockquote",
    "pre",
    "h2",
    "form",
]
TAGS += [
    "figure",
    "aside",
    "b",
    "br",
    "nav",
    "header",
    "footer",
    "details",
    "sub",
    "dl",
    "dd",
    "select",
    "iframe",
    "math",
]
WORDS = [
    "",
    " ",
    "Short.",
    "a, b, c",
    SENTENCE,
    SENTENCE * 2,
    SENTENCE * 6,
    "x" * 60,
    "\n",
    "© 2020",
    "<a href=/x>Read more</a>",
]
WORDS += [f"<a href=/y>{SENTENCE}</a>", "<script>let a = 1</script>", "<br>", MENU[:400]]


def element(drawn: tuple[str, str, str, str, list[str]]) -> str:
    tag, name, text, tail, children = drawn
    return f"<{tag} {name}>{text}{''.join(children)}</{tag}>{tail}"


names = st.sampled_from(["", *(f"{key}={name!r}" for name in NAMES for key in ("class", "id")), "role=presentation"])
texts = st.sampled_from(WORDS)
pages = st.recursive(
    st.tuples(st.sampled_from(TAGS), names, texts, texts, st.just([])).map(element),
    lambda below: st.tuples(st.sampled_from(TAGS), names, texts, texts, st.lists(below, max_size=6)).map(element),
    max_leaves=25,
)


def by_its_own_functions(html: str) -> str:
    """Our sequence, with trafilatura's own functions in place of our replacements."""
    with patch.multiple(
        cascade,
        REMOVE_COMMENTS_AND_LISTS=xpaths.REMOVE_COMMENTS_AND_LISTS_XPATH,
        baseline=baseline,
        compare_extraction=external.compare_extraction,
        extract_content=lambda cleaned, options: main_extractor.extract_content(cleaned(), options),
        html2txt=html2txt,
        justext_rescue=external.justext_rescue,
        remove_unlikely_candidates=lambda tree: readability_lxml.Document(tree).remove_unlikely_candidates(),
        tree_cleaning=htmlprocessing.tree_cleaning,
    ):
        return ours(html)


@settings(max_examples=25, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(page=st.lists(pages, max_size=4).map("".join))
def test_any_page_gives_the_text_of_trafilatura_s_own_functions(page: str) -> None:
    """Pages with odd nesting; no shrinking, because it takes minutes."""
    html = f"<html><head><title>A title</title></head><body>{page}</body></html>"
    assert ours(html) == by_its_own_functions(html)


def test_the_modules_of_trafilatura_stay_as_they_are() -> None:
    """Functions are replaced in our private copies only; other code in the process doesn't see it."""
    assert main_extractor.BODY_XPATH is xpaths.BODY_XPATH
    assert external.basic_cleaning is basic_cleaning
    assert main_extractor.delete_by_link_density is htmlprocessing.delete_by_link_density
    assert _main is not main_extractor
    assert _base.baseline is not baseline
    assert _external is not external


@pytest.mark.parametrize("name", PAGES)
def test_each_skipped_step_would_have_changed_nothing(name: str) -> None:
    html = f"<html><head><title>A title</title></head><body>{PAGES[name]}</body></html>"
    assert ours(html) == of_trafilatura(html)


@pytest.mark.slow
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
