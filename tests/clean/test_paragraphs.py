"""Our paragraphs are justext's: their texts, classes and counts of linked characters."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from justext.core import ParagraphMaker
from lxml import etree, html
from trafilatura import external

from webtext.clean.extract.paragraphs import justext_body, make_paragraphs

SENTENCE = "The harbour of the old town was built of granite, and people still walk there in the evening. "

texts = st.one_of(
    st.none(),
    st.sampled_from(
        [" ", "\n  ", "\xa0", "a  b", " a\n\n b ", "a\r", "\x85x", "© 2020", SENTENCE, SENTENCE * 3, "w " * 90]
    ),
)
tags = st.sampled_from(["div", "p", "br", "a", "b", "span", "select", "option", "td", "li", "h2", "article"])
trees = st.recursive(
    st.tuples(tags, texts, texts, st.just([])),
    lambda below: st.tuples(tags, texts, texts, st.lists(below, max_size=5)),
    max_leaves=30,
)


def tree_of(drawn: Any) -> Any:
    tag, text, tail, children = drawn
    element = html.Element(tag)
    element.text, element.tail = text, tail
    element.extend(tree_of(child) for child in children)
    return element


def same(tree: Any) -> None:
    theirs = [
        (each.text, each.chars_count_in_links, "select" in each.dom_path, each.words_count)
        for each in ParagraphMaker.make_paragraphs(tree)
    ]
    ours = [
        (each.text, each.chars_count_in_links, "select" in each.dom_path, len(each.words))
        for each in make_paragraphs(tree)
    ]
    assert ours == theirs
    of_trafilatura = external.try_justext(tree, None, None)
    assert etree.tostring(justext_body(tree)) == etree.tostring(of_trafilatura)


def test_two_breaks_separate_paragraphs_and_one_does_not() -> None:
    tree = html.fromstring("<div>one<br>two<br><br>three <a href=x>linked</a></div>")
    assert [(each.text, each.chars_count_in_links) for each in make_paragraphs(tree)] == [
        ("one two", 0),
        ("three linked", 6),
    ]
    same(tree)


def test_long_sentences_are_kept_and_menus_are_not() -> None:
    menu = "".join(f"<li><a href='/{i}'>Something else number {i}</a></li>" for i in range(9))
    tree = html.fromstring(f"<body><ul>{menu}</ul><p>{SENTENCE * 4}</p><p>Short.</p><p>{SENTENCE * 4}</p></body>")
    assert [p.text for p in justext_body(tree)] == [(SENTENCE * 4).strip(), "Short.", (SENTENCE * 4).strip()]
    same(tree)


@settings(max_examples=30)
@given(drawn=trees)
def test_any_tree_has_the_paragraphs_of_justext(drawn: Any) -> None:
    same(tree_of(("body", None, None, [drawn])))
