"""HTML to text with trafilatura, inside bounds that hold before and after parsing.

What each bound is for, measured with lxml 6.1.3 (libxml2 2.14.6):

nodes       extraction makes several copies of the tree; every `<` can begin at most one node. Above MAX_FALLBACK_NODES
            trafilatura's second opinion (justext) is not asked: its time grows with the square of the paragraphs
attributes  attributes of one tag are compared pairwise: 20,000 take 0.4 s, 500,000 take minutes; the bound is on the
            sum of squares, since a script with a `<` looks like a tag to a scan this plain (10,546 "attributes" met)
depth       at 256 levels the parser leaves out the rest of the page without a word, so a tree that deep is refused
cells       a table's `colspan` and `rowspan` promise cells that are not there

trafilatura keeps a few caches of pure functions and no other state: its `deduplicate` remembers earlier pages of the
process, so texts would depend on the order of pages; it stays off. Its date search asks the clock; it is not used.
"""

from __future__ import annotations

import functools
import logging
import re
from dataclasses import dataclass
from typing import Any

from lxml import etree
from trafilatura.core import bare_extraction
from trafilatura.settings import Document, Extractor
from trafilatura.utils import load_html

PARSER_DEPTH = 256
"""libxml2 opens no element deeper than this: a tree as deep may have lost the rest of its page."""
MAX_ATTRIBUTE_PAIRS = 30_000**2  # about a second
MAX_SPANNED_CELLS = 10_000
"""Over a page. 5,000 cells of 1,000 columns, as many as the HTML standard allows one, took 12 s."""
MAX_FALLBACK_NODES = 20_000
"""The largest of 467 evaluation pages has 19,629; 32,000 tags in tables took 5 s, nearly all of it in justext."""
MAX_TITLE_CHARACTERS = 500

_LONG_STRETCH = re.compile(r"<[^<]{16384,}")
_TAG_CONTENT = re.compile(r"""(?:=\s*+(?:"[^"]*+"|'[^']*+')|[^>])*+""")
_ATTRIBUTE_GAP = re.compile(r"[\s/]+")
_SPAN = ("colspan", "rowspan")


class TooMuch(ValueError):
    """A page above one of the bounds; `reason` is the counted key."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Extracted:
    """What an extractor found; `text` is raw, for `clean.text.clean_text`."""

    text: str
    title: str | None


def extract_html(html: str, *, max_nodes: int, max_depth: int) -> Extracted:
    """Main text and title of a page. TooMuch when the page is above a bound; empty text when there is none."""
    n_nodes = html.count("<")
    if n_nodes > max_nodes:
        raise TooMuch("too_many_nodes", f"{n_nodes:,} tags")
    _check_attributes(html)
    tree = load_html(html, len(html) + 1)
    if tree is None:
        return Extracted("", None)
    if _is_deeper(tree, min(max_depth, PARSER_DEPTH - 1)):
        raise TooMuch("too_deep", f"elements nested deeper than {max_depth}")
    _cap_spans(tree)
    title = _title(tree)
    document = bare_extraction(tree, options=_options(fast=n_nodes > MAX_FALLBACK_NODES))
    return Extracted((document.text or "") if isinstance(document, Document) else "", title)


@functools.cache
def _options(*, fast: bool) -> Any:
    """Chosen by `tests/bench/bench_extract.py`: see the table in clean/README.md."""
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # it reports each page it finds nothing on
    return Extractor(output_format="python", comments=False, tables=True, formatting=False, dedup=False, fast=fast)


def _check_attributes(html: str) -> None:
    n_pairs = sum(_n_attributes(html, *stretch.span()) ** 2 for stretch in _LONG_STRETCH.finditer(html))
    if n_pairs > MAX_ATTRIBUTE_PAIRS:
        raise TooMuch("too_many_nodes", f"tags with about {int(n_pairs**0.5):,} attributes")


def _n_attributes(html: str, start: int, end: int) -> int:
    content = _TAG_CONTENT.match(html, start, end)
    return len(_ATTRIBUTE_GAP.findall(content[0])) if content else 0


def _is_deeper(tree: Any, max_depth: int) -> bool:
    """Whether some element lies below level `max_depth`; found level by level inside libxml2."""
    return bool(_depth_path(max_depth + 1)(tree.getroottree()))


@functools.cache
def _depth_path(depth: int) -> Any:
    return etree.XPath(f"boolean({'/*' * depth})")


def _cap_spans(tree: Any) -> None:
    """Take the spans away where one is no number or all together promise too many cells."""
    spans = [(cell, name) for cell in tree.iter("td", "th") for name in _SPAN if cell.get(name) is not None]
    promised = 0
    for cell, name in spans:
        value = cell.get(name).strip()
        if value.isascii() and value.isdecimal() and len(value) < 6:
            promised += int(value)
        else:
            del cell.attrib[name]
    if promised > MAX_SPANNED_CELLS:
        for cell, name in spans:
            cell.attrib.pop(name, None)


def _title(tree: Any) -> str | None:
    """What the page calls itself: og:title, else <title>, else its first heading."""
    for path in ("string(//meta[@property='og:title']/@content)", "string(//head/title)", "string(//h1)"):
        title = " ".join(str(tree.xpath(path)).split())
        if title:
            return title[:MAX_TITLE_CHARACTERS]
    return None
