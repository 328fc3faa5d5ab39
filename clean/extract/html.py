"""Parse HTML within bounds that are checked before and after parsing, and extract its text and metadata.

The reason for each bound, measured with lxml 6.1.3 (libxml2 2.14.6):

nodes       Extraction copies the tree several times; every `<` can begin at most one node. Above MAX_FALLBACK_NODES,
            readability and justext are skipped, because the time of justext is quadratic in the number of paragraphs.
attributes  libxml2 compares the attributes of a tag pairwise: 20,000 take 0.4 s, 500,000 take minutes. The bound is on
            the sum of squares, because our plain scan takes a `<` in a script for a tag (10,546 "attributes" seen).
depth       At 256 levels the parser silently drops the rest of the page, so such a tree is rejected.
cells       `colspan` and `rowspan` declare more cells than a table contains.
siblings    The text after a removed element is appended to the previous sibling's, which copies it each time: 10,000
            empty tags with 100 letters after each took 6 s. A list of 10,000 items also did; its time is quadratic.

The page is parsed once; text and metadata come from the same tree. trafilatura has a few caches of pure functions and
no other state that we use. Its `deduplicate` is off, because it remembers earlier pages, so texts would depend on the
order of pages. Its date search depends on the clock, so `metadata.py` reads the dates that the page states instead.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from lxml import etree
from lxml.html import HtmlElement, HTMLParser, fromstring
from trafilatura.settings import CUT_EMPTY_ELEMS, MANUALLY_CLEANED
from trafilatura.utils import repair_faulty_html

from webtext.clean.extract.cascade import main_text
from webtext.clean.extract.lead import with_lead
from webtext.clean.extract.metadata import Metadata, read_metadata

MAX_MERGED_CHARACTERS = 3_000_000_000
"""Bound on the removable (empty or non-text) children of an element, times the characters between its children."""
MAX_LIST_ITEMS = 10_000
PARSER_DEPTH = 256
"""libxml2 opens no deeper element, so a tree of this depth may lack the rest of its page."""
MAX_ATTRIBUTE_PAIRS = 30_000**2  # about a second
MAX_SPANNED_CELLS = 10_000
"""Total per page. 5,000 cells of 1,000 columns each, the HTML standard's maximum per cell, took 12 s."""
MAX_FALLBACK_NODES = 20_000
"""The largest of 467 evaluation pages has 19,629; 32,000 tags in tables took 5 s, nearly all of it in justext."""

_START_CHARACTERS = 16_384  # trafilatura repairs only the doctype and the html tag, which are at the start
_CONTROLS = bytes({*range(0x20)} - {*b"\t\n\r"})
_LONG_STRETCH = re.compile(r"<[^<]{16384,}")
_TAG_CONTENT = re.compile(r"""(?:=\s*+(?:"[^"]*+"|'[^']*+')|[^>])*+""")
_ATTRIBUTE_GAP = re.compile(r"[\s/]+")
MANY_SIBLINGS = 2000
_MANY_SIBLINGS = etree.XPath(f"//*[count(*) > {MANY_SIBLINGS}]")
_SPAN = ("colspan", "rowspan")
MAX_FORMATTING_DEPTH = 10  # the deepest of 467 evaluation pages has 4
_FORMATTING = ("b", "big", "code", "em", "font", "i", "s", "small", "strike", "strong", "tt", "u")
"""HTML standard §13.2.4.3, without `a` and `nobr`, because the next `a` or `nobr` closes an open one."""
_SKIPPED = [
    *("aside", "nav", "footer", "form", "figure", "button", "menu", "select", "svg", "dialog", "fieldset", "label"),
    *("iframe", "time"),
]


class TooMuch(ValueError):
    """The page exceeds a bound; `reason` is the key under which it is counted."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Extracted:
    """Text and metadata of a page, raw: `clean.text.clean_text` is yet to be applied."""

    text: str
    metadata: Metadata


def extract_html(html: str, *, extractor: str, max_nodes: int, max_depth: int) -> Extracted:
    """Return the main text (may be empty) and metadata of a page; raises TooMuch if the page exceeds a bound."""
    n_nodes = html.count("<")
    if n_nodes > max_nodes:
        raise TooMuch("too_many_nodes", f"{n_nodes:,} tags")
    _check_attributes(html)
    tree = parse(html)
    if tree is None:
        return Extracted("", Metadata())
    if _is_deeper(tree, min(max_depth, PARSER_DEPTH - 1)):
        raise TooMuch("too_deep", f"elements nested deeper than {max_depth}")
    if n_nodes > MANY_SIBLINGS:
        _check_siblings(tree)
    metadata = read_metadata(tree, html)
    if extractor == "resiliparse":
        return Extracted(_by_resiliparse(tree), metadata)
    _cap_spans(tree)
    text = main_text(tree, html, fast=n_nodes > MAX_FALLBACK_NODES)
    return Extracted(with_lead(text, tree, metadata), metadata)


def parse(html: str) -> Any:
    """Parse a page to the same tree as trafilatura does; None if it isn't HTML at all.

    Element classes are looked up inside lxml; lxml's default HTML parser calls Python for each one, which takes a tenth
    of the total time.
    """
    start = html[:50].lower()
    repaired = repair_faulty_html(html[:_START_CHARACTERS], start) + html[_START_CHARACTERS:]
    for character in "\ufffe\uffff":
        repaired = repaired.replace(character, "")
    try:
        tree = fromstring(repaired.encode("utf-8", "replace").translate(None, _CONTROLS), parser=_parser())
    except etree.LxmlError:
        return None
    return tree if "html" in start or len(tree) > 1 else None


@functools.cache
def _parser() -> HTMLParser:
    parser = HTMLParser(
        collect_ids=False, default_doctype=False, encoding="utf-8", remove_comments=True, remove_pis=True
    )
    parser.set_element_class_lookup(etree.ElementDefaultClassLookup(element=HtmlElement))
    return parser


def _by_resiliparse(tree: Any) -> str:
    """Return the main text by resiliparse, several times as fast as trafilatura and less accurate; changes the tree.

    resiliparse parses like a browser, which reopens an unclosed formatting element in every following block: 240 open
    `<b>` before 20,000 `<div>` took 1.9 GB. So it gets our bounded tree, with every element closed.
    """
    from resiliparse.extract.html2text import extract_plain_text  # loaded only if it is chosen

    depths: dict[Any, int] = {}
    for element in tree.iter(*_FORMATTING):
        depths[element] = 1 + depths.get(next(element.iterancestors(*_FORMATTING), None), 0)
        if depths[element] > MAX_FORMATTING_DEPTH:
            raise TooMuch("too_deep", f"formatting elements nested deeper than {MAX_FORMATTING_DEPTH}")
    etree.strip_elements(tree, "script", "style", with_tail=False)
    return extract_plain_text(
        etree.tostring(tree, method="html", encoding="unicode"),
        main_content=True,
        preserve_formatting=True,
        comments=False,
        alt_texts=False,
        skip_elements=_SKIPPED,
    )


def _check_attributes(html: str) -> None:
    n_pairs = sum(_n_attributes(html, *stretch.span()) ** 2 for stretch in _LONG_STRETCH.finditer(html))
    if n_pairs > MAX_ATTRIBUTE_PAIRS:
        raise TooMuch("too_many_nodes", f"tags with about {int(n_pairs**0.5):,} attributes")


def _n_attributes(html: str, start: int, end: int) -> int:
    content = _TAG_CONTENT.match(html, start, end)
    return len(_ATTRIBUTE_GAP.findall(content[0])) if content else 0


def _is_deeper(tree: Any, max_depth: int) -> bool:
    """Whether an element is nested deeper than `max_depth`; libxml2 searches level by level."""
    return bool(_depth_path(max_depth + 1)(tree.getroottree()))


@functools.cache
def _depth_path(depth: int) -> Any:
    return etree.XPath(f"boolean({'/*' * depth})")


def _check_siblings(tree: Any) -> None:
    for parent in _MANY_SIBLINGS(tree):
        if sum(child.tag in ("li", "dt", "dd") for child in parent) > MAX_LIST_ITEMS:
            raise TooMuch("too_many_nodes", f"a list of {len(parent):,} items")
        n_removed = sum(
            child.tag in MANUALLY_CLEANED or (child.tag in CUT_EMPTY_ELEMS and not (len(child) or child.text))
            for child in parent
        )
        if n_removed * sum(len(child.tail or "") for child in parent) > MAX_MERGED_CHARACTERS:
            raise TooMuch("too_many_nodes", f"{n_removed:,} empty elements beside each other")


def _cap_spans(tree: Any) -> None:
    """Remove spans that aren't small numbers, and all spans if together they declare too many cells."""
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
