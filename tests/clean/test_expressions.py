"""Our interpreter of trafilatura's expressions selects the same elements as XPath."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree, html
from trafilatura import xpaths
from trafilatura.settings import BASIC_CLEAN_XPATH

from webtext.clean.extract.expressions import MAX_ANSWERS, MAX_REMEMBERED_CHARACTERS, Expression, expression

ALL = [
    BASIC_CLEAN_XPATH,
    *xpaths.OVERALL_DISCARD_XPATH,
    *xpaths.TEASER_DISCARD_XPATH,
    *xpaths.DISCARD_IMAGE_ELEMENTS,
    *xpaths.REMOVE_COMMENTS_AND_LISTS_XPATH,
]
WORDS = sorted(
    {word for path in ALL + xpaths.BODY_XPATH for word in re.findall(r"[A-Za-z_ -]{3,}", path.path)} | {"none"}
)
TAGS = ["div", "p", "section", "article", "main", "span", "list", "item", "ul", "details", "aside", "footer", "h1", "b"]
NAMES = ["class", "id", "style", "role", "itemprop", "aria-hidden", "data-component", "data-lp-replacement-content"]

values = st.one_of(
    st.sampled_from(WORDS),
    st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=3).map("-".join),
    st.sampled_from(["true", "display:none", "display: none", "Teaser", "NAVIGATION", "post", "Main-Content", ""]),
)
attributes = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=4)
trees = st.recursive(
    st.tuples(st.sampled_from(TAGS), attributes, st.just([])),
    lambda below: st.tuples(st.sampled_from(TAGS), attributes, st.lists(below, max_size=4)),
    max_leaves=25,
)


def tree_of(drawn: Any) -> Any:
    tag, given_attributes, children = drawn
    element = html.Element(tag)
    for name, value in given_attributes:
        element.set(name, value)
    element.extend(tree_of(child) for child in children)
    return element


def test_the_first_of_two_attributes_in_the_source_decides() -> None:
    select = Expression(".//*[starts-with(@id|@class, 'reply-')]")
    tree = html.fromstring(
        "<div><p id=a class=reply-1>1</p><p class=reply-1 id=a>2</p><p id=reply-2>3</p><p>4</p></div>"
    )
    assert [element.text for element in select(tree)] == ["2", "3"]


def test_unions_negations_and_literals_with_blanks_and_brackets_are_read() -> None:
    path = (
        ".//aside|.//*[self::p or self::ol][re:test(@class, '( or |[)]|x]y)')][not(self::ol or self::ul) or @id = 'a']"
    )
    tree = html.fromstring(
        "<div><aside></aside><p class='a or b'></p><p class='or'></p><ol class=')'></ol><ol class=') or' id=a></ol></div>"
    )
    of_xpath = etree.XPath(path, namespaces={"re": xpaths.REGEXP_NS})(tree)
    assert Expression(path)(tree) == of_xpath
    assert [element.tag for element in of_xpath] == ["aside", "p", "ol"]


@pytest.mark.parametrize("path", [*ALL, *xpaths.BODY_XPATH], ids=lambda path: " ".join(path.path.split())[:60])
def test_all_forms_used_on_pages_are_supported(path: Any) -> None:
    assert isinstance(expression(path, first=path in xpaths.BODY_XPATH), Expression)


@pytest.mark.parametrize(
    "path",
    [
        "//p",
        ".//p[1]",
        ".//p[.//h1]",
        ".//p[not(.//h1)]",
        ".//p[@id > 'a']",
        ".//p[re:test(@id, 'a', 'm')]",
        ".//p[re:test(@id, 'a*')]",
        ".//p[contains(text(), 'a')]",
        ".//p/b",
    ],
)
def test_other_expressions_stay_xpath(path: str) -> None:
    made = etree.XPath(path, namespaces={"re": xpaths.REGEXP_NS})
    assert expression(made) is made


@settings(max_examples=30)
@given(drawn=trees)
def test_every_expression_of_trafilatura_selects_what_xpath_selects(drawn: Any) -> None:
    tree = tree_of(("body", [], [drawn]))
    for path in ALL:
        assert _COMPILED[path](tree) == path(tree), path.path
    for path in xpaths.BODY_XPATH:
        assert next(iter(_FIRST[path](tree)), None) is next(iter(path(tree)), None), path.path


def test_the_cache_is_bounded_and_skips_long_values() -> None:
    select = Expression(".//p[contains(@class, 'x')]")
    tree = html.Element("div")
    paragraph = etree.SubElement(tree, "p")
    answers = select._simple["class"]  # type: ignore[index]
    for number in range(MAX_ANSWERS + 10):
        paragraph.set("class", f"x{number}")
        assert select(tree) == [paragraph]
    assert len(answers) <= MAX_ANSWERS
    answers.clear()
    paragraph.set("class", "x" * (MAX_REMEMBERED_CHARACTERS + 1))
    assert select(tree) == [paragraph]
    assert not answers


_COMPILED = {path: expression(path) for path in ALL}
_FIRST = {path: expression(path, first=True) for path in xpaths.BODY_XPATH}
