"""Restore the lead, the summary paragraph under the title, which extractors often lose.

The lead is often outside the article's element, or in one called `teaser`, and is removed like the teasers of other
articles. It can be recognised because the page's description (`<meta>`, Open Graph) begins with the same words. So a
paragraph that the page shows before its main text and also states as its description is added to the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, chain, islice
from typing import Any

from lxml import etree

from webtext.clean.extract.metadata import Metadata

MIN_LETTERS = 30
"""Letters, without blanks, of a description that must match; a shorter description is a slogan."""
MAX_CHARACTERS = 800
MAX_BEFORE = 40
"""Letters allowed before the description's first word in the paragraph, such as a place or a date."""
MAX_PLACES = 5
MAX_LINES = 20
LONG_LINE = 80
"""Characters: the first line of this length that isn't the title begins the main text."""
LEVELS = 4  # ancestors whose class, id and style are checked; names further up belong to the layout

_SHOWN = "//body//text()[not(parent::script or parent::style or parent::noscript or parent::template)]"
_TEXTS, _NODES = (
    etree.XPath(_SHOWN, smart_strings=False),
    etree.XPath(_SHOWN),
)  # _NODES keeps the elements of the texts, and is slower
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
    """Return the text, with the page's lead inserted before its first long line if the text lacks it."""
    letters, named = _letters(text), _letters(metadata.title or "")
    stated = {_letters(description)[:MIN_LETTERS] for description in metadata.descriptions}
    missing = [
        each for each in sorted(stated) if len(each) == MIN_LETTERS and each not in letters and each not in named
    ]
    everything = _letters(tree.text_content()) if missing else ""  # includes scripts; takes a tenth of the time below
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
    """Return the index of the first long line that isn't the title, and its offset in the page's letters; or 0, 0."""
    for place, line in enumerate(lines[:MAX_LINES]):
        beginning = _letters(line.removeprefix("- "))[:MIN_LETTERS]
        if len(line) >= LONG_LINE and beginning not in title:
            at = page.find(beginning)
            if at >= 0:
                return place, at
    return 0, 0


def _paragraph(node: Any, beginning: str) -> str | None:
    """Return the visible paragraph that begins with these letters: the node's block, its element or the node alone."""
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
