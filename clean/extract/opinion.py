"""A second opinion on a page: trafilatura's text, asked for where the block scorer is unsure.

It is asked if it can tip blocks with much of the text. Then the share of a block that its text has moves the block's log
odds (late fusion, as in Bordley 1982, "A multiplicative formula for aggregating probability assessments"). Choosing one of
both texts is worse than judging block by block.

trafilatura gets the tree that was parsed within bounds, and only if the page is below bounds of its own: its time grows
with elements times characters, 1 s at both bounds, and it writes a cell for each column that a cell spans. A page that is
larger, or on which it fails, is judged without it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from lxml import etree

from webtext.clean.extract.blocks import TextBlock
from webtext.clean.extract.features import WORD
from webtext.clean.reasons import TooMuch

Array = npt.NDArray[Any]

ASKED_FROM = 0.1
"""trafilatura, which is made for articles, is asked from this `Judged.undecided`: about a third of the evaluation pages."""
WEIGHT = 0.7
"""Log odds that a block gains if all of it is in trafilatura's text, and loses if none is."""
MAX_ELEMENTS, MAX_CHARACTERS = 10_000, 300_000
"""Limit for pages that trafilatura may read; 1 % of the evaluation pages have more."""

Words = tuple[str, ...]


def by_trafilatura(tree: Any) -> str:
    """Return trafilatura's text of a page, without reader comments; may be empty, and changes the tree.

    Raises TooMuch if the page exceeds a bound, and whatever trafilatura raises.
    """
    import trafilatura  # loaded only where it is asked

    n_elements = n_characters = 0
    for element in tree.iter():
        n_elements += 1
        n_characters += len(element.text or "") + len(element.tail or "")
    if n_elements > MAX_ELEMENTS or n_characters > MAX_CHARACTERS:
        raise TooMuch("too_large_for_trafilatura", f"{n_elements:,} elements, {n_characters:,} characters")
    etree.strip_attributes(tree, "colspan", "rowspan")
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    return trafilatura.extract(tree, include_comments=False, fast=True) or ""


def second_opinion(tree: Any) -> str | None:
    """Return trafilatura's text of a page; None if the page is too large for it, or if it fails."""
    try:
        return by_trafilatura(tree)
    except MemoryError:  # the machine's lack: with more memory the text would be another
        raise
    except Exception:  # whatever a page does to it: its blocks are judged without it
        return None


def shares(blocks: Sequence[TextBlock], text: str) -> Array:
    """Return the share of each block that a text has, float [n] in [0, 1]: of its runs of three words.

    A shorter block is in the text if it is one of its lines; one without words is half in it.

    >>> blocks = [TextBlock(text, -1, 0, 0, 0) for text in ("One two three four.", "Menu", "*")]
    >>> shares(blocks, "one two three\\n- menu").tolist()
    [0.5, 1.0, 0.5]
    """
    lines = {_words(line.removeprefix("- ")) for line in text.split("\n")}
    runs = set(_runs(_words(text)))
    return np.array([_share(_words(block.text), lines, runs) for block in blocks])


def in_recipe(blocks: Sequence[TextBlock], recipe: str) -> Array:
    """Return which blocks are part of a recipe, bool [n]: more than half of each is in its text."""
    return shares(blocks, recipe) > 0.5 if recipe else np.zeros(len(blocks), bool)


def agreement(ours: str, theirs: str) -> float:
    """Return how far two texts agree, in [0, 1]: the F1 of their runs of three words, as sets."""
    one, other = set(_runs(_words(ours))), set(_runs(_words(theirs)))
    return 2 * len(one & other) / max(len(one) + len(other), 1)


def _share(words: Words, lines: set[Words], runs: set[Words]) -> float:
    if not words:
        return 0.5
    if len(words) < 3:
        return float(words in lines)
    return sum(map(runs.__contains__, _runs(words))) / (len(words) - 2)


def _words(text: str) -> Words:
    return tuple(WORD.findall(text.lower()))


def _runs(words: Words) -> Iterator[Words]:
    return zip(words, words[1:], words[2:], strict=False)
