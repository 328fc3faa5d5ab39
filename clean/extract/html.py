"""Parse HTML within bounds that are checked before and after parsing, and extract its text, kind and metadata.

The reason for each bound, measured with lxml 6.1.3 (libxml2 2.14.6):

nodes       Every `<` can begin at most one node, and each node costs time and memory.
attributes  libxml2 compares the attributes of a tag pairwise: 20,000 take 1 s, 30,000 take 4 s. The bound is on
            the sum of squares. Tags are found as a browser finds them: not in scripts, and with any sign in quotes.
blocks      About 180 numbers describe each block: 50,000 take 1.5 s and 200 MiB. The largest evaluation page has 5,718.
depth       At 256 levels the parser silently drops the rest of the page, so such a tree is rejected.

The page is parsed once; text, kind and metadata come from the same tree, all in linear time.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from lxml import etree
from lxml.html import HtmlElement, HTMLParser, fromstring

from webtext.clean.extract.blocks import read_blocks
from webtext.clean.extract.kinds import page_facts
from webtext.clean.extract.layout import layout
from webtext.clean.extract.metadata import Metadata, read_metadata
from webtext.clean.extract.opinion import (
    ASKED_FROM,
    WEIGHT,
    agreement,
    by_trafilatura,
    in_recipe,
    second_opinion,
    shares,
)
from webtext.clean.extract.scorer import scorer
from webtext.clean.reasons import TooMuch

MAX_NODES = 250_000
MAX_DEPTH = 250
"""libxml2 opens no element deeper than 256, so a tree of that depth may lack the rest of its page."""
MAX_ATTRIBUTE_PAIRS = 30_000**2  # about four seconds
MAX_BLOCKS = 50_000
MIN_STATED = 2
"""The text that JSON-LD states is taken if it is so many times as long as all text of the page."""

_TOO_DEEP = etree.XPath(f"boolean({'/*' * (MAX_DEPTH + 1)})")
_START_CHARACTERS = 16_384
_EMPTY_ROOT = re.compile(r"(<(?:!doctype|html)\b[^<>]*)/>", re.IGNORECASE)  # some pages end their first tag so
_CONTROLS = bytes({*range(0x20)} - {*b"\t\n\r"})
_QUOTED = rb"""=\s*+(?:"[^"]*+"|'[^']*+')"""
_REST = rb"([^>=]*+(?:(?:%b|=)[^>=]*+)*+)" % _QUOTED
_TAG = re.compile(
    rb"<!--(?:-?>|(?:[^-]++|-(?!-!?>))*+)|<[!?][^>]*+|<(script|style|textarea|title|xmp|iframe|noembed|noframes)"
    rb"(?=[\s/>])%b[^<]*+(?:<(?!/\1[\s/>])[^<]*+)*+|</?[a-z]%b" % (_REST, _REST),
    re.IGNORECASE,
)
"""A comment or declaration; a tag, whose last group is what follows its name; or one whose content has no tags."""
_ATTRIBUTE_GAP = re.compile(rb"[\s/]+")
MAX_FORMATTING_DEPTH = 10  # the deepest of 467 evaluation pages has 4
_FORMATTING = "b big code em font i s small strike strong tt u"
"""HTML standard §13.2.4.3, without `a` and `nobr`, because the next `a` or `nobr` closes an open one."""
_SKIPPED = "aside nav footer form figure button menu select svg dialog fieldset label iframe time"


@dataclass(frozen=True, slots=True)
class Extracted:
    """Text, kind and metadata of a page; the text is raw: `clean.text.clean_text` is yet to be applied."""

    text: str
    metadata: Metadata
    kind: str | None = None
    agreement: float | None = None
    """How far the blocks' text and trafilatura's agree (`opinion.agreement`); None if trafilatura wasn't asked."""


def extract_html(html: str, *, extractor: str, markdown: bool) -> Extracted:
    """Return the main text (may be empty) and metadata of a page; raises TooMuch if the page exceeds a bound."""
    n_nodes = html.count("<")
    if n_nodes > MAX_NODES:
        raise TooMuch("too_many_nodes", f"{n_nodes:,} tags")
    tree = parse(html)
    if tree is None:
        return Extracted("", Metadata())
    if _TOO_DEEP(tree.getroottree()):  # libxml2 searches level by level
        raise TooMuch("too_deep", f"elements nested deeper than {MAX_DEPTH}")
    metadata = read_metadata(tree, html)
    if extractor in _LIBRARIES:
        return Extracted(_LIBRARIES[extractor](tree), metadata)
    found = read_blocks(tree)
    if not found.blocks:
        return Extracted(metadata.text, metadata)
    if len(found.blocks) > MAX_BLOCKS:
        raise TooMuch("too_many_nodes", f"{len(found.blocks):,} blocks of text")
    judged = scorer().judge(found, metadata.title or "", metadata.descriptions, page_facts(tree, html))
    if len(metadata.text) > MIN_STATED * sum(len(block.text) for block in found.blocks):
        # Some pages are drawn by scripts, and only their JSON-LD has the text.
        return Extracted(metadata.text, metadata, judged.kind)
    opinion = second_opinion(tree) if extractor == "fused" and judged.undecided(WEIGHT) >= ASKED_FROM else None
    stated = in_recipe(found.blocks, metadata.recipe)
    if opinion is None:
        return Extracted(layout(found, judged.kept | stated, markdown=markdown), metadata, judged.kind)
    fused = judged.with_opinion(shares(found.blocks, opinion), WEIGHT)
    agreed = agreement(layout(found, judged.kept), opinion)
    return Extracted(layout(found, fused.kept | stated, markdown=markdown), metadata, judged.kind, agreed)


def parse(html: str) -> Any:
    """Parse a page; None if it isn't HTML at all. Raises TooMuch if its tags have too many attributes.

    Element classes are looked up inside lxml; lxml's default HTML parser calls Python for each one, which takes a tenth
    of the total time.
    """
    html = _EMPTY_ROOT.sub(r"\1>", html[:_START_CHARACTERS]) + html[_START_CHARACTERS:]
    for character in "\ufffe\uffff":
        html = html.replace(character, "")
    data = html.encode("utf-8", "replace").translate(None, _CONTROLS)
    _check_attributes(data)
    try:
        tree = fromstring(data, parser=_parser())
    except etree.LxmlError:
        return None
    return tree if "html" in html[:50].lower() or len(tree) > 1 else None


@functools.cache
def _parser() -> HTMLParser:
    parser = HTMLParser(
        collect_ids=False, default_doctype=False, encoding="utf-8", remove_comments=True, remove_pis=True
    )
    parser.set_element_class_lookup(etree.ElementDefaultClassLookup(element=HtmlElement))
    return parser


def _by_resiliparse(tree: Any) -> str:
    """Return the main text by resiliparse, faster than the block scorer and less accurate; changes the tree.

    resiliparse parses like a browser, which reopens an unclosed formatting element in every following block: 240 open
    `<b>` before 20,000 `<div>` took 1.9 GB. So it gets our bounded tree, with every element closed.
    """
    from resiliparse.extract.html2text import extract_plain_text  # loaded only if it is chosen

    depths, tags = dict[Any, int](), _FORMATTING.split()
    for element in tree.iter(*tags):
        depths[element] = 1 + depths.get(next(element.iterancestors(*tags), None), 0)
        if depths[element] > MAX_FORMATTING_DEPTH:
            raise TooMuch("too_deep", f"formatting elements nested deeper than {MAX_FORMATTING_DEPTH}")
    for element in tree.iter("script", "style"):  # not removed, which would copy the text after each
        element.text = None
    return extract_plain_text(
        etree.tostring(tree, method="html", encoding="unicode"),
        main_content=True,
        preserve_formatting=True,
        comments=False,
        alt_texts=False,
        skip_elements=_SKIPPED.split(),
    )


_LIBRARIES = {"trafilatura": by_trafilatura, "resiliparse": _by_resiliparse}


def _check_attributes(page: bytes) -> None:
    tags = (tag[tag.lastindex] for tag in _TAG.finditer(page) if tag.lastindex)
    n_pairs = sum(len(_ATTRIBUTE_GAP.findall(re.sub(_QUOTED, b"= ", tag))) ** 2 for tag in tags if len(tag) > 1024)
    if n_pairs > MAX_ATTRIBUTE_PAIRS:
        raise TooMuch("too_many_nodes", f"tags with about {int(n_pairs**0.5):,} attributes")
