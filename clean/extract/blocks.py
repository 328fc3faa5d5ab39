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
- Ruby annotations, which say how a word is pronounced, are left out.
- A formula is its TeX where the page has it, else the text of its MathML.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import Any

from lxml import etree

from webtext.clean.text.unspaced import script_of

MIN_REPEAT = 30
MAX_NOSCRIPT, MAX_UNSHOWN = 0.5, 0.1
MIN_COPY, RUN, COPIED = 100, 5, 0.8
"""A block of so many runs of five words is a copy if this share of them is in others."""

_INLINE_TAGS = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label link mark meta nobr picture q rp"
    " rt ruby s samp small span strike strong sub sup time tt u var wbr"
)
_SKIPPED_TAGS = "audio canvas embed head iframe map object script select style svg template textarea video"
_DRAWN_FORMULA = re.compile(r"\b(?:katex-html|MathJax(?:_Preview|_Display)?|mjx-assistive-mml)(?:\s|$)")
_INLINE, _SKIPPED = frozenset(_INLINE_TAGS.split()), frozenset(_SKIPPED_TAGS.split())
_CODE = frozenset(("pre", "code", "kbd", "samp"))
_PRE = frozenset(("pre", "xmp", "listing"))
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
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


@dataclass(slots=True)
class Block:
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

    blocks: list[Block]
    containers: list[Container]


class _Walk:
    """State of the walk: the open containers, and the parts of the block that is being read."""

    def __init__(self) -> None:
        self.found = Blocks([], [])
        self.open = [-1]
        self.parts: list[str] = []
        self.n_linked = self.n_links = self.n_bold = 0
        self.links = self.bolds = self.pres = self.codes = self.noscripts = 0
        self.own_text: dict[Any, bool] = {}
        self.skipped: Any = None

    def add(self, text: str) -> None:
        """Add a text node to the block."""
        if self.noscripts and text.lstrip().startswith("<"):
            return  # markup that was escaped
        if not self.pres:
            if text.isspace():  # between most tags
                if self.parts:
                    self.parts.append(" ")
                return
            words = " ".join(text.split())
            text = f"{' ' if text[0].isspace() else ''}{words}{' ' if words and text[-1].isspace() else ''}"
        self.parts.append(text)
        if self.links or self.bolds:
            n = len(text.strip())
            self.n_linked += n if self.links else 0
            self.n_bold += n if self.bolds else 0

    def finish(self) -> None:
        """End the block, at a start or end of a container."""
        if self.parts:
            lines = "".join(self.parts).split("\n")
            text = "\n".join(lines if self.pres else filter(None, (" ".join(line.split()) for line in lines)))
            if text and not text.isspace():
                block = Block(text.strip("\n"), self.open[-1], self.n_linked, self.n_links, self.n_bold)
                self.found.blocks.append(block)
            self.parts = []
        self.n_linked = self.n_links = self.n_bold = 0

    def enter(self, element: Any) -> bool:
        """Begin an element; return whether its content is to be read."""
        tag = element.tag
        if tag in _INLINE:
            if (
                tag in ("rt", "rp")
                or _is_sign(element)
                or _is_drawn(element)
                or (_is_unshown(element) and element.find(".//math") is None)
            ):
                return self.skip(element)
            self.inline(element, tag, 1)
        elif tag in _SKIPPED and not (tag == "template" and element.get("shadowrootmode")):
            if tag == "script" and (element.get("type") or "").startswith("math/tex"):
                self.add(element.text or " ")
            return self.skip(element)
        elif tag == "br":
            self.parts.append("\n")
        elif tag == "math":
            tex = element.find(".//annotation[@encoding='application/x-tex']")
            self.add(element.get("alttext") or "".join((element if tex is None else tex).itertext()) or " ")
            return self.skip(element)
        else:
            self.finish()
            self.open.append(len(self.found.containers))
            self.found.containers.append(_container(element, self.open[-2], len(self.found.blocks)))
            self.pres += tag in _PRE
            self.noscripts += tag == "noscript"
        return True

    def skip(self, element: Any) -> bool:
        """Remember an element whose content isn't read."""
        self.skipped = element
        return False

    def leave(self, element: Any) -> None:
        """End an element."""
        tag = element.tag
        if element is self.skipped:
            self.skipped = None
        elif tag in _INLINE:
            self.inline(element, tag, -1)
        elif tag != "br":
            self.finish()
            self.found.containers[self.open.pop()].end = len(self.found.blocks)
            self.pres -= tag in _PRE
            self.noscripts -= tag == "noscript"

    def inline(self, element: Any, tag: str, step: int) -> None:
        """Enter (step 1) or leave (-1) an inline element."""
        if tag == "a":
            if not (element.getparent().tag in _HEADINGS and (element.get("href") or "").startswith("#")):
                self.links += step
                self.n_links += step > 0
        elif tag in ("b", "strong"):
            self.bolds += step
        elif tag in _CODE:
            self.codes += step
        if step < 0 and not element.tail and not self.pres and not self.codes and self._is_laid_out(element):
            self.parts.append(" ")

    def _is_laid_out(self, element: Any) -> bool:
        """Whether a cell or button follows directly on one, and their parent has no text of its own."""
        after, parent = element.getnext(), element.getparent()
        if after is None or after.tag not in _LAID_OUT or element.tag not in _LAID_OUT:
            return False
        has_own = self.own_text.get(parent)
        if has_own is None:
            texts = (parent.text, *(child.tail for child in parent))
            has_own = self.own_text[parent] = any(text and not text.isspace() for text in texts)
        if has_own or element.tag == after.tag == "a":
            return not has_own
        first = next((text for text in after.itertext() if text), " ")[0]
        return first.isalnum() and not first.islower() and script_of(first) is None


def read_blocks(tree: Any) -> Blocks:
    """Return the blocks of a page's tree."""
    body = tree if tree.tag == "body" else tree.find(".//body")
    body = tree if body is None else body
    walk = _Walk()
    events = etree.iterwalk(body, events=("start", "end"))
    for event, element in events:
        if event == "end":
            walk.leave(element)
            if element.tail and element is not body:
                walk.add(element.tail)
        elif not walk.enter(element):
            events.skip_subtree()
        elif element.text:
            walk.add(element.text)
    walk.finish()
    found = _without(walk.found, [container.tag == "noscript" for container in walk.found.containers], MAX_NOSCRIPT)
    found = _without(found, [container.unshown for container in found.containers], MAX_UNSHOWN)
    return _without_copies(_without_repeats(found))


def _container(element: Any, parent: int, first: int) -> Container:
    names = " ".join(filter(None, map(element.get, _NAMED_BY)))
    unshown = _is_unshown(element)
    return Container(element.tag, names, parent, unshown or element.get("aria-hidden") == "true", first, 0, unshown)


def _is_unshown(element: Any) -> bool:
    attributes = element.attrib
    if not attributes:
        return False
    style = attributes.get("style")
    if style:
        style = style.replace(" ", "").lower()
        if "display:none" in style or "visibility:hidden" in style:
            return True
    return "hidden" in attributes


def _is_drawn(element: Any) -> bool:
    """Whether an element draws a formula that the page has as TeX or MathML, too."""
    return element.tag == "span" and _DRAWN_FORMULA.search(element.get("class") or "") is not None


def _is_sign(link: Any) -> bool:
    """Whether a link leads to a place in the page and consists of one sign, such as `¶`."""
    if link.tag != "a" or not (link.get("href") or "").startswith("#") or len(link):
        return False
    text = (link.text or "").strip()
    return len(text) == 1 and not text.isalnum()


def _without(found: Blocks, is_out: list[bool], most: float) -> Blocks:
    """Leave out blocks in some containers, if they have less than a share of the page's text."""
    if not any(is_out):
        return found
    for i, container in enumerate(found.containers):
        is_out[i] |= container.parent >= 0 and is_out[container.parent]
    outside = [i for i, block in enumerate(found.blocks) if block.container < 0 or not is_out[block.container]]
    n_outside, n = sum(len(found.blocks[i].text) for i in outside), sum(len(block.text) for block in found.blocks)
    return _kept(found, outside) if n - n_outside <= most * n else found


def _without_repeats(found: Blocks) -> Blocks:
    seen: dict[str, int] = {}  # the parent of the first copy's container
    keep = []
    for i, block in enumerate(found.blocks):
        letters = "".join(block.text.lower().split())
        container = found.containers[block.container] if block.container >= 0 else None
        parent = container.parent if container else -1
        is_free = container is not None and container.tag in ("td", "th", *_PRE)
        if len(letters) < MIN_REPEAT or is_free or seen.setdefault(letters, parent) == parent:
            keep.append(i)
    return found if len(keep) == len(found.blocks) else _kept(found, keep)


def _without_copies(found: Blocks) -> Blocks:
    """Leave out long blocks of which most is in other blocks: the longest first."""
    texts = [block.text for block in found.blocks]
    total = sum(map(len, texts))
    if not any(3 * MIN_COPY < len(text) < total / (1 + COPIED) for text in texts):  # nor can it be a copy of less
        return found
    runs = dict(enumerate(map(_runs, texts)))
    long = [i for i, each in runs.items() if len(each) >= MIN_COPY]
    counts = Counter(run for each in runs.values() for run in each) if long else Counter()
    left_out = set()
    for i in sorted(long, key=lambda i: (-len(found.blocks[i].text), i)):
        if sum(counts[run] > 1 for run in runs[i]) > COPIED * len(runs[i]):
            left_out.add(i)
            counts.subtract(runs[i])
    return _kept(found, [i for i in runs if i not in left_out]) if left_out else found


def _runs(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    words = words if len(text) < 20 * len(words) else list(text)  # a script without blanks
    return set(zip(*(words[i:] for i in range(RUN)), strict=False))


def _kept(found: Blocks, keep: list[int]) -> Blocks:
    for container in found.containers:
        container.first, container.end = bisect_left(keep, container.first), bisect_left(keep, container.end)
    return Blocks([found.blocks[i] for i in keep], found.containers)
