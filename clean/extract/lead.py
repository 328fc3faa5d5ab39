"""The lead: the paragraph under the title that says what follows, which extractors lose.

It often stands outside the element that holds the article, or in one called `teaser`, and goes with the teasers of other
articles. Its page tells it apart: the description that it states (`<meta>`, Open Graph) begins with the same words.
So what a page shows before its main text, and states as its description, belongs to the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, chain, islice
from typing import Any

from lxml import etree

from webtext.clean.extract.metadata import Metadata

MIN_LETTERS = 30
"""Of a description, blanks aside: shorter ones are slogans. So many have to agree."""
MAX_CHARACTERS = 800
MAX_BEFORE = 40
"""Letters that may stand before the description's first word in its paragraph: a place, a date."""
MAX_PLACES = 5
MAX_LINES = 20
LONG_LINE = 80
"""In characters: the first line of so many, title aside, begins the main text."""
LEVELS = 4  # of elements whose names are looked at; further up they are of layout

_SHOWN = "//body//text()[not(parent::script or parent::style or parent::noscript or parent::template)]"
_TEXTS, _NODES = (
    etree.XPath(_SHOWN, smart_strings=False),
    etree.XPath(_SHOWN),
)  # nodes know their elements, and cost more
_BLOCKS = frozenset(
    (
        "p",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "div",
        "section",
        "header",
        "summary",
        "article",
        "main",
        "td",
        "blockquote",
        "body",
    )
)
_NOT_MAIN = frozenset(("figure", "figcaption", "aside", "nav", "footer", "form", "button"))
_NOT_SHOWN = re.compile(r"byline|caption|hidden|display:\s*none|tooltip|popup|modal")


def with_lead(text: str, tree: Any, metadata: Metadata) -> str:
    """The text with its lead before its first long line, where the page has one that the text has not."""
    letters, named = _letters(text), _letters(metadata.title or "")
    stated = {_letters(description)[:MIN_LETTERS] for description in metadata.descriptions}
    missing = [
        each for each in sorted(stated) if len(each) == MIN_LETTERS and each not in letters and each not in named
    ]
    everything = _letters(tree.text_content()) if missing else ""  # scripts too: it is had for a tenth of what follows
    missing = [each for each in missing if each in everything]
    if not missing:
        return text
    words = ["".join(text.split()) for text in _TEXTS(tree)]
    page = "".join(words)
    lines = text.split("\n")
    place, end = _beginning(lines, named, page)
    missing = [each for each in missing if each in page[:end]]
    if not missing:
        return text
    nodes, starts = _NODES(tree), list(accumulate(map(len, words), initial=0))
    for beginning in missing:
        for match in islice(re.finditer(re.escape(beginning), page[:end]), MAX_PLACES):
            lead = _paragraph(nodes[bisect_right(starts, match.start()) - 1], beginning)
            if lead:
                return "\n".join([*lines[:place], lead, *lines[place:]])
    return text


def _beginning(lines: list[str], title: str, page: str) -> tuple[int, int]:
    """The first long line of the text that is not the title, and where it stands in the letters of the page; or 0, 0."""
    for place, line in enumerate(lines[:MAX_LINES]):
        beginning = _letters(line.removeprefix("- "))[:MIN_LETTERS]
        if len(line) >= LONG_LINE and beginning not in title:
            at = page.find(beginning)
            if at >= 0:
                return place, at
    return 0, 0


def _paragraph(node: Any, beginning: str) -> str | None:
    """What begins with these letters and is shown as text: the block around the text node, its element, or it alone."""
    element = node.getparent().getparent() if node.is_tail else node.getparent()
    above = [element, *element.iterancestors()]
    if any(each.tag in _NOT_MAIN for each in above) or any(_NOT_SHOWN.search(_names(each)) for each in above[:LEVELS]):
        return None
    block = next(each for each in above if each.tag in _BLOCKS)
    for text in chain(("".join(each.itertext()) for each in dict.fromkeys((block, element))), (str(node),)):
        shown = " ".join(text.split())
        if len(shown) <= MAX_CHARACTERS and 0 <= _letters(shown).find(beginning) <= MAX_BEFORE:
            return shown
    return None


def _names(element: Any) -> str:
    return " ".join(filter(None, (element.get("class"), element.get("id"), element.get("style")))).lower()


def _letters(text: str) -> str:
    return "".join(text.split())
