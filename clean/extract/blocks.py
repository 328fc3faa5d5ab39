"""Cut a page's tree into blocks: runs of text between the starts and ends of block elements, in the page's order.

Elements that browsers show as blocks are containers. A block belongs to the innermost one, and a container knows its
parent, so that a block can be judged by everything around it (`features.py`). One walk, linear in the tree's size.

- Text of `noscript` counts only if the page has more of it than of other text: some forums put all posts there.
- A block of MIN_REPEAT letters or more that the page has shown before is left out: pages contain their text once per
  screen size, and quoted posts twice.
- A link of a single sign to a place in the page, as after headings (`¶`), is left out.
- Inline elements side by side without a blank, in an element without text of its own, are cells or buttons that are
  laid out by style. They get a blank between them, outside code.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from lxml import etree

MIN_REPEAT = 30

_INLINE_TAGS = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label link mark meta nobr picture q rp"
    " rt ruby s samp small span strike strong sub sup time tt u var wbr"
)
_SKIPPED_TAGS = "audio canvas embed head iframe map object script select style svg template textarea video"
_INLINE, _SKIPPED = frozenset(_INLINE_TAGS.split()), frozenset(_SKIPPED_TAGS.split())
_CODE = frozenset(("pre", "code", "kbd", "samp"))
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
        self.links = self.bolds = self.pres = self.codes = 0
        self.own_text: dict[Any, bool] = {}

    def add(self, text: str) -> None:
        """Add a text node to the block."""
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
            if tag == "a" and _is_sign(element):
                return False
            self.inline(element, tag, 1)
        elif tag in _SKIPPED:
            return False
        elif tag == "br":
            self.parts.append("\n")
        elif tag == "math":
            self.add(element.get("alttext") or "".join(element.itertext()) or " ")
            return False
        else:
            self.finish()
            self.open.append(len(self.found.containers))
            self.found.containers.append(_container(element, self.open[-2], len(self.found.blocks)))
            self.pres += tag == "pre"
        return True

    def leave(self, element: Any) -> None:
        """End an element."""
        tag = element.tag
        if tag in _INLINE:
            if not (tag == "a" and _is_sign(element)):
                self.inline(element, tag, -1)
        elif tag not in _SKIPPED and tag not in ("br", "math"):
            self.finish()
            self.found.containers[self.open.pop()].end = len(self.found.blocks)
            self.pres -= tag == "pre"

    def inline(self, element: Any, tag: str, step: int) -> None:
        """Enter (step 1) or leave (-1) an inline element."""
        if tag == "a":
            self.links += step
            self.n_links += step > 0
        elif tag in ("b", "strong"):
            self.bolds += step
        elif tag in _CODE:
            self.codes += step
        if step < 0 and not element.tail and not self.pres and not self.codes and self._is_laid_out(element):
            self.parts.append(" ")

    def _is_laid_out(self, element: Any) -> bool:
        """Whether an inline element follows directly, and their parent has no text of its own."""
        after, parent = element.getnext(), element.getparent()
        if after is None or after.tag not in _INLINE or after.tag == "wbr":
            return False
        has_own = self.own_text.get(parent)
        if has_own is None:
            texts = (parent.text, *(child.tail for child in parent))
            has_own = self.own_text[parent] = any(text and not text.isspace() for text in texts)
        return not has_own


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
    return _without_repeats(_without_noscript(walk.found))


def _container(element: Any, parent: int, first: int) -> Container:
    names = " ".join(filter(None, map(element.get, _NAMED_BY)))
    style = element.get("style")
    hidden = element.get("hidden") is not None or element.get("aria-hidden") == "true"
    hidden = hidden or (style is not None and "display:none" in style.replace(" ", ""))
    return Container(element.tag, names, parent, hidden, first)


def _is_sign(link: Any) -> bool:
    """Whether a link leads to a place in the page and consists of one sign, such as `¶`."""
    if not (link.get("href") or "").startswith("#") or len(link):
        return False
    text = (link.text or "").strip()
    return len(text) == 1 and not text.isalnum()


def _without_noscript(found: Blocks) -> Blocks:
    if not any(container.tag == "noscript" for container in found.containers):
        return found
    within = [False] * len(found.containers)
    for i, container in enumerate(found.containers):
        within[i] = container.tag == "noscript" or (container.parent >= 0 and within[container.parent])
    inside = [block.container >= 0 and within[block.container] for block in found.blocks]
    n_inside = sum(len(block.text) for block, is_inside in zip(found.blocks, inside, strict=True) if is_inside)
    if 2 * n_inside > sum(len(block.text) for block in found.blocks):
        return found
    return _kept(found, [i for i, is_inside in enumerate(inside) if not is_inside])


def _without_repeats(found: Blocks) -> Blocks:
    seen: set[str] = set()
    keep = []
    for i, block in enumerate(found.blocks):
        letters = "".join(block.text.lower().split())
        if len(letters) < MIN_REPEAT or letters not in seen:
            keep.append(i)
            seen.add(letters)
    return found if len(keep) == len(found.blocks) else _kept(found, keep)


def _kept(found: Blocks, keep: list[int]) -> Blocks:
    for container in found.containers:
        container.first, container.end = bisect_left(keep, container.first), bisect_left(keep, container.end)
    return Blocks([found.blocks[i] for i in keep], found.containers)
