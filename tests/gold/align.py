"""Compare a page with its source: which of the source's words are in the page, in order, and what is between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import regex
from gold.truth import MENU, Block, Unresolved
from lxml import etree, html

MIN_WORDS = 50  # of a source: title pages and indexes are left out
MIN_FOUND = 0.98  # the share of the source's words that are in the page, in order
MAX_MORE = 0.02  # words of the page between gold's that neither source nor titles explain, per word of gold
NEUTRAL = 7  # the longest run of words between gold's that counts neither way: 'Note:', a number, 'Copy'
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = regex.compile(rf"[{_UNSPACED}]\p{{M}}*|[\w--[{_UNSPACED}]]+", regex.V1)
_INLINE = (
    "a abbr acronym b bdi bdo big cite code data dfn em font i ins kbd mark q s samp small span strong sub sup time"
)
_INLINE_TAGS = frozenset(f"{_INLINE} tt u var wbr".split())
_HIDDEN = {"head", "script", "style", "template", "noscript"}


class LeftOut(Exception):
    """A pair that doesn't count; the message is the reason."""


class Pair(NamedTuple):
    """A page's gold: its blocks, the neutral words between them, the shares of words found and of words unexplained."""

    blocks: Sequence[Block]
    neutral: Sequence[str]
    found: float
    more: float


def words(text: str) -> list[str]:
    """Return the lower-cased words of a text; in scripts without spaces each character is one.

    >>> words("It's 中文, ไทย")
    ['it', 's', '中', '文', 'ไ', 'ท', 'ย']
    """
    return _WORD.findall(text.lower())


def page_text(page: bytes) -> str:
    """Return all text of a page's body, with blanks between blocks and none inside a word."""
    encoding = "utf-8" if page.decode("utf-8", "replace").encode() == page else None
    try:
        root = html.document_fromstring(page, parser=html.HTMLParser(encoding=encoding))
    except (etree.ParserError, LookupError, ValueError) as error:
        raise LeftOut("page_not_parsed") from error
    return "".join(_pieces(root))


def _pieces(root: etree._Element) -> Iterator[str]:
    hidden = 0
    for event, element in etree.iterwalk(root, events=("start", "end", "comment", "pi")):
        hidden += (element.tag in _HIDDEN) * {"start": 1, "end": -1}.get(event, 0)
        text = element.text if event == "start" else element.tail
        yield " " if isinstance(element.tag, str) and element.tag not in _INLINE_TAGS else ""
        yield "" if hidden else text or ""


def align(blocks: Sequence[Block] | Unresolved, page: bytes, titles: frozenset[str] = frozenset()) -> Pair:
    """Return the gold of a page; LeftOut if the page isn't made of these blocks, or they aren't known.

    `titles` are the words of the titles and menus of its book: a long run of them between the blocks is a menu, with a few
    other words or without.
    """
    if isinstance(blocks, Unresolved):
        raise LeftOut(str(blocks))
    source = [(word, i) for i, block in enumerate(blocks) for word in words(block.text)]
    gold = [a for a, (_, i) in enumerate(source) if blocks[i].kind != MENU]
    if len(gold) < MIN_WORDS:
        raise LeftOut("few_words")
    theirs = words(page_text(page))
    places = dict(matches([word for word, _ in source], theirs))
    found = sum(a in places for a in gold) / len(gold)
    if found < MIN_FOUND:
        raise LeftOut("words_not_found")
    neutral: list[str] = []
    more, ends = 0, sorted(places.values())
    for before, after in zip(ends, ends[1:], strict=False):
        run = theirs[before + 1 : after]
        if len(run) <= NEUTRAL:
            neutral += run
        elif sum(word not in titles and not word.isdigit() for word in run) > 4 + 0.1 * len(run):
            more += len(run)
    if more > MAX_MORE * len(gold):
        raise LeftOut("page_has_more")
    n_found, n = Counter(source[a][1] for a in places), Counter(i for _, i in source)
    kept = [block for i, block in enumerate(blocks) if block.kind != MENU and n_found[i] * 2 > n[i]]
    return Pair(kept, neutral, found, more / len(gold))


def matches(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of equal words in both texts, ascending in both: the longest equal run, then those beside it.

    Of equal runs the last in the page counts, since a menu with the same titles stands before the text.

    >>> matches("title a b c d".split(), "title menu title a b x d".split())
    [(0, 2), (1, 3), (2, 4), (4, 6)]
    """
    a, b = len(ours) - 1, len(theirs) - 1
    runs = SequenceMatcher(None, ours[::-1], theirs[::-1], autojunk=False).get_matching_blocks()
    return sorted((a - run.a - k, b - run.b - k) for run in runs for k in range(run.size))
