"""Cut a page's tree into blocks: runs of text between the starts and ends of block elements, in the page's order.

Elements that browsers show as blocks are containers. A block belongs to the innermost one, and a container knows its
parent, so that a block can be judged by everything around it (`features.py`). One walk, linear in the tree's size.

- Text of `noscript` counts only if the page has more of it than of other text: some forums put all posts there. Markup in
  it that was escaped never counts.
- Text that an attribute hides is left out if it is less than a tenth of the page's: notes for machines. More of it is what
  a script shows, as tabs do.
- A block of MIN_REPEAT letters or more that the page has shown before is left out: pages contain their text once per
  screen size, and quoted posts twice. Not so beside its first copy, where it is a refrain, and not in cells or code. A
  block that has most of the page's other blocks in it is a copy of them, and is left out, too.
- A link of a single sign to a place in the page, as after headings (`¶`), is left out. A heading that links to itself
  counts as unlinked.
- Links side by side, or spans of which none continues the other's word, in an element without text of its own, are cells
  or buttons that are laid out by style. They get a blank between them, outside code.
- An element that HTML doesn't know is shown in its line, as by browsers, if there is text beside it: `<st1:City>`. Others
  lay out a page, and are containers.
- Code is one block, whatever elements its lines have.
- Ruby annotations, which say how a word is pronounced, are left out.
- A number raised beside another one has raised digits: 10⁶, not 106.
- A formula is its TeX where the page has it, else the text of its MathML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, islice
from typing import Any

import numpy as np
import numpy.typing as npt
from lxml.html import defs

from webtext.clean.text.unspaced import script_of

MIN_REPEAT = 30
MAX_NOSCRIPT, MAX_UNSHOWN = 0.5, 0.1
MIN_COPY, RUN, COPIED = 100, 5, 0.8
"""A block of so many runs of five words is a copy if this share of them is in others."""
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

_INLINE_TAGS = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label link mark meta nobr picture"
    " q rb rp rt rtc ruby s samp small source span strike strong sub sup time tt u var wbr"
)
_SKIPPED_TAGS = "audio canvas embed head iframe map object script select style svg template textarea video"
_DRAWN_FORMULA = re.compile(r"\b(?:katex-html|MathJax(?:_Preview|_Display)?)(?:\s|$)")
_INLINE, _SKIPPED = frozenset(_INLINE_TAGS.split()), frozenset(_SKIPPED_TAGS.split())
_KNOWN = defs.tags | _SKIPPED | {"dialog", "listing", "main", "noframes", "plaintext", "search", "xmp"}
_NAMESPACES = ("mjx-", "o:", "st1:")  # of MathJax 3 and of Microsoft Word, all of whose elements are inline
_LEFT_OUT = frozenset(("mjx-math", "rp", "rt", "rtc"))
_SEEN = re.compile(r"[^\s\u00ad\u034f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe0f\ufeff]")
"""A character that a reader sees: editors fill empty paragraphs and items with others."""
_EXPONENT = re.compile(r"[+\-−–]?[0-9]{1,4}(?:[,–-] ?[0-9]{1,4})*")
_RAISED = str.maketrans("0123456789+-−–", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻")
_CODE = frozenset(("pre", "code", "kbd", "samp"))
_PRE, _LINES = frozenset(("pre", "xmp", "listing")), frozenset(("div", "li", "ol", "ul"))
_HEADINGS = frozenset(f"h{level}" for level in range(1, 7))
_LAID_OUT = frozenset(("a", "button", "img", "input", "label", "span", "time"))
_NAMED_BY = ("class", "id", "itemprop", "role", "data-testid")


@dataclass(slots=True)
class Container:
    """An element that is shown as a block: blocks[first:end] are in it. `parent` is an index, -1 at the top."""

    tag: str
    names: str
    """Its class, id, itemprop, role and data-testid, separated by blanks."""
    parent: int
    hidden: bool
    """Whether an attribute of it says so; a style sheet may still show it."""
    first: int
    end: int = 0
    unshown: bool = False
    """Whether it is hidden from all readers, and not only from screen readers."""
    number: str = ""
    """Where a list's numbers start, or an item's number, as the page states it."""


@dataclass(slots=True)
class TextBlock:
    """A run of text. Its blanks are single and its lines end where the page has `br`; code is as it was."""

    text: str
    container: int
    n_linked: int
    """Characters in links."""
    n_links: int
    n_bold: int


@dataclass(slots=True)
class Blocks:
    """A page's blocks and containers, in the page's order; a container comes after its parent."""

    blocks: list[TextBlock]
    containers: list[Container]


class _Walk:
    """State of the walk: the innermost container, and the parts of the block that is being read."""

    def __init__(self) -> None:
        self.found = Blocks([], [])
        self.open = -1
        self.parts: list[str] = []
        self.n_linked = self.n_links = self.n_bold = 0
        self.links = self.bolds = self.pres = self.codes = self.noscripts = 0
        self.own_text: dict[Any, bool] = {}
        self.raised = False

    def add(self, text: str) -> None:
        """Add a text node to the block."""
        if self.noscripts and text.lstrip().startswith("<"):
            return  # markup that was escaped
        if not self.pres and text.isspace():  # between most tags
            if self.parts:
                self.parts.append(" ")
            return
        if self.raised:
            text = text.translate(_RAISED)
        if self.links or self.bolds:
            n = len(text.strip() if self.pres else " ".join(text.split()))
            self.n_linked += n if self.links else 0
            self.n_bold += n if self.bolds else 0
        self.parts.append(text if self.pres else text.replace("\n", " "))

    def finish(self) -> None:
        """End the block, at a start or end of a container."""
        if self.parts:
            lines = "".join(self.parts).split("\n")
            text = "\n".join(lines if self.pres else filter(None, (" ".join(line.split()) for line in lines)))
            if _SEEN.search(text):
                block = TextBlock(text.strip("\n"), self.open, self.n_linked, self.n_links, self.n_bold)
                self.found.blocks.append(block)
            self.parts = []
        self.n_linked = self.n_links = self.n_bold = 0

    def read(self, element: Any) -> None:
        """Read an element, without the text after it."""
        tag, attributes = element.tag, dict(element.items())
        if tag in _INLINE or (tag not in _KNOWN and _is_in_line(element, tag)):
            if not _is_left_out(element, tag, attributes):
                self.inline(element, tag, attributes, 1)
                self.content(element)
                self.inline(element, tag, attributes, -1)
        elif tag in _SKIPPED and not (tag == "template" and attributes.get("shadowrootmode")):
            if tag == "script" and attributes.get("type", "").startswith("math/tex"):
                self.add(element.text or " ")
        elif tag == "br":
            self.parts.append("\n")
            self.content(element)
        elif tag == "math":
            tex = element.find(".//annotation[@encoding='application/x-tex']")
            self.add(attributes.get("alttext") or "".join((element if tex is None else tex).itertext()) or " ")
        elif self.pres and tag in _LINES:
            self.line()
            self.content(element)
            self.line()
        else:
            self.container(element, tag, attributes)

    def line(self) -> None:
        """Begin another line of code, unless one has just begun."""
        if self.parts and not self.parts[-1].endswith("\n"):
            self.parts.append("\n")

    def content(self, element: Any) -> None:
        """Read the text and the elements in an element."""
        if text := element.text:
            self.add(text)
        for child in element:
            self.read(child)
            if text := child.tail:
                self.add(text)

    def container(self, element: Any, tag: str, attributes: Mapping[str, str]) -> None:
        """Read an element that is shown as a block."""
        self.finish()
        containers, names = self.found.containers, " ".join(filter(None, map(attributes.get, _NAMED_BY)))
        unshown = _is_unshown(attributes)
        hidden = unshown or attributes.get("aria-hidden") == "true"
        inside = Container(tag, names, self.open, hidden, len(self.found.blocks), 0, unshown)
        inside.number = attributes.get("value" if tag == "li" else "start", "")
        above, self.open = self.open, len(containers)
        containers.append(inside)
        self.pres += tag in _PRE
        self.noscripts += tag == "noscript"
        self.content(element)
        self.finish()
        self.open, inside.end = above, len(self.found.blocks)
        self.pres -= tag in _PRE
        self.noscripts -= tag == "noscript"

    def inline(self, element: Any, tag: str, attributes: Mapping[str, str], step: int) -> None:
        """Enter (step 1) or leave (-1) an inline element."""
        if tag == "a":
            if not (attributes.get("href", "").startswith("#") and element.getparent().tag in _HEADINGS):
                self.links += step
                self.n_links += step > 0
        elif tag in ("b", "strong"):
            self.bolds += step
        elif tag in _CODE:
            self.codes += step
        elif tag == "sup":
            is_beside = step > 0 and "".join(self.parts[-1:])[-1:].isdecimal()
            self.raised = is_beside and _EXPONENT.fullmatch("".join(islice(element.itertext(), 3)).strip()) is not None
        if step < 0 and not self.pres and not self.codes and self._is_laid_out(element, tag):
            self.parts.append(" ")

    def _is_laid_out(self, element: Any, tag: str) -> bool:
        """Whether a cell or button follows directly on one, and their parent has no text of its own."""
        if tag not in _LAID_OUT or element.tail or (after := element.getnext()) is None or after.tag not in _LAID_OUT:
            return False
        parent = element.getparent()
        has_own = self.own_text.get(parent)
        if has_own is None:
            texts = (parent.text, *(child.tail for child in parent))
            has_own = self.own_text[parent] = any(text and not text.isspace() for text in texts)
        if has_own or tag == after.tag == "a":
            return not has_own
        first = next((text for text in after.itertext() if text), " ")[0]
        return first.isalnum() and not first.islower() and script_of(first) is None


def read_blocks(tree: Any) -> Blocks:
    """Return the blocks of a page's tree."""
    body = tree if tree.tag == "body" else tree.find(".//body")
    body = tree if body is None else body
    walk = _Walk()
    walk.read(body)
    walk.finish()
    found = _without(walk.found, [container.tag == "noscript" for container in walk.found.containers], MAX_NOSCRIPT)
    found = _without(found, [container.unshown for container in found.containers], MAX_UNSHOWN)
    return _without_copies(_without_repeats(found))


def _is_in_line(element: Any, tag: str) -> bool:
    """Whether an element that HTML doesn't know is shown in its line."""
    before = element.getprevious()
    texts = element.tail, element.getparent().text if before is None else before.tail
    return tag.startswith(_NAMESPACES) or any(text and not text.isspace() for text in texts)


def _is_left_out(element: Any, tag: str, attributes: Mapping[str, str]) -> bool:
    """Whether an inline element isn't read."""
    if tag in _LEFT_OUT or not attributes:
        return tag in _LEFT_OUT
    return (
        (tag == "a" and _is_sign(element, attributes))
        or (tag == "span" and _DRAWN_FORMULA.search(attributes.get("class", "")) is not None)
        or (_is_unshown(attributes) and element.find(".//math") is None)
    )


def _is_unshown(attributes: Mapping[str, str]) -> bool:
    style = attributes.get("style", "")
    if style:
        style = style.replace(" ", "").lower()
    return "hidden" in attributes or "display:none" in style or "visibility:hidden" in style


def _is_sign(link: Any, attributes: Mapping[str, str]) -> bool:
    """Whether a link leads to a place in the page and consists of one sign, such as `¶`."""
    if not attributes.get("href", "").startswith("#") or len(link):
        return False
    text = (link.text or "").strip()
    return len(text) == 1 and not text.isalnum()


def _without(found: Blocks, is_out: list[bool], most: float) -> Blocks:
    """Leave out blocks in some containers, if they have less than a share of the page's text."""
    if not any(is_out[i] and container.first < container.end for i, container in enumerate(found.containers)):
        return found
    for i, container in enumerate(found.containers):
        is_out[i] |= container.parent >= 0 and is_out[container.parent]
    is_kept = [block.container < 0 or not is_out[block.container] for block in found.blocks]
    lengths = [len(block.text) for block in found.blocks]
    n_out = sum(lengths) - sum(compress(lengths, is_kept))
    return _kept(found, is_kept) if n_out <= most * sum(lengths) else found


def _without_repeats(found: Blocks) -> Blocks:
    seen: dict[str, int] = {}  # the parent of the first copy's container
    is_kept = []
    for block in found.blocks:
        letters = "".join(block.text.lower().split()) if len(block.text) >= MIN_REPEAT else ""
        container = found.containers[block.container] if block.container >= 0 else None
        parent = container.parent if container else -1
        is_free = container is not None and container.tag in ("td", "th", *_PRE)
        is_kept.append(len(letters) < MIN_REPEAT or is_free or seen.setdefault(letters, parent) == parent)
    return _kept(found, is_kept)


def _without_copies(found: Blocks) -> Blocks:
    """Leave out long blocks of which most is in other blocks: the longest first."""
    texts = [block.text for block in found.blocks]
    most = sum(map(len, texts)) / (1 + COPIED)
    if not any(3 * MIN_COPY < len(text) < most for text in texts):
        return found  # nor can it be a copy of less
    units = list(map(_units, texts))
    if max(map(len, units)) < MIN_COPY:
        return found
    numbers: dict[str, int] = {}
    runs = [_runs([numbers.setdefault(unit, len(numbers)) for unit in of]) for of in units]
    _, places, counts = np.unique(np.concatenate(runs), return_inverse=True, return_counts=True)
    mine = np.split(places, np.cumsum([len(of) for of in runs]))
    is_kept = [True] * len(texts)
    for i in sorted(range(len(texts)), key=lambda i: -len(texts[i])):
        if len(mine[i]) >= MIN_COPY and (counts[mine[i]] > 1).sum() > COPIED * len(mine[i]):
            is_kept[i] = False
            counts[mine[i]] -= 1
    return _kept(found, is_kept)


def _runs(numbers: list[int]) -> npt.NDArray[np.uint64]:
    """Return a hash of each distinct run of units, given by their numbers."""
    n = max(0, len(numbers) - RUN + 1)
    units, hashes = np.array(numbers, np.uint64), np.zeros(n, np.uint64)
    for i in range(RUN):
        hashes = hashes * MULTIPLIER + units[i : i + n]
    return np.unique(hashes)


def _units(text: str) -> Sequence[str]:
    """Return a text's words, or its characters in a script without blanks."""
    words = text.lower().split()
    return words if len(text) < 20 * len(words) else text


def _kept(found: Blocks, is_kept: list[bool]) -> Blocks:
    if all(is_kept):
        return found
    n_before = [0, *accumulate(is_kept)]
    for container in found.containers:
        container.first, container.end = n_before[container.first], n_before[container.end]
    return Blocks(list(compress(found.blocks, is_kept)), found.containers)
