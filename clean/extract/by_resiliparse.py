"""Main text by resiliparse: several times as fast as trafilatura, and less exact (the table in clean/README.md).

resiliparse parses HTML as browsers do. There a formatting element that is not closed is opened again in every block that
follows: 240 open `<b>` before 20,000 `<div>` became 1.9 GB. So it is given the bounded tree written out again, where each
element is closed in its place, and no tree in which more than MAX_FORMATTING_DEPTH of them hold one another.
"""

from __future__ import annotations

from typing import Any

from lxml import etree
from resiliparse.extract.html2text import extract_plain_text

MAX_FORMATTING_DEPTH = 10  # the deepest of 467 evaluation pages has 4
_FORMATTING = ("b", "big", "code", "em", "font", "i", "s", "small", "strike", "strong", "tt", "u")
"""HTML standard §13.2.4.3; without `a` and `nobr`, of which the next one closes the one before."""
_SKIPPED = [
    "aside",
    "nav",
    "footer",
    "form",
    "figure",
    "button",
    "menu",
    "select",
    "svg",
    "dialog",
    "fieldset",
    "label",
    "iframe",
    "time",
]


def resiliparse_text(tree: Any) -> str:
    """Main text of a parsed page (changed in place); empty when there is none. See `nests_formatting` first."""
    etree.strip_elements(tree, "script", "style", with_tail=False)
    return extract_plain_text(
        etree.tostring(tree, method="html", encoding="unicode"),
        main_content=True,
        preserve_formatting=True,
        comments=False,
        alt_texts=False,
        skip_elements=_SKIPPED,
    )


def nests_formatting(tree: Any) -> bool:
    """Whether more than MAX_FORMATTING_DEPTH formatting elements hold one another."""
    depths: dict[Any, int] = {}
    for element in tree.iter(*_FORMATTING):
        depth = depths[element] = 1 + depths.get(next(element.iterancestors(*_FORMATTING), None), 0)
        if depth > MAX_FORMATTING_DEPTH:
            return True
    return False
