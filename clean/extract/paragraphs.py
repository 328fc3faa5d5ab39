"""justext's paragraphs and their classes (good or boilerplate), computed in a single walk; the result is the same.

justext turns the tree into SAX events, and recomputes a paragraph's text with a regular expression on each access. Here
the tree is walked directly and texts are stored. Justext's own functions classify them (Pomikálek 2011, chapter 2).
"""

from __future__ import annotations

import functools
from typing import Any

from justext.core import PARAGRAPH_TAGS, classify_paragraphs, revise_paragraph_classification
from justext.utils import get_stoplist, get_stoplists, normalize_whitespace
from lxml import etree

# trafilatura's arguments: lengths in characters, stop word and link densities, no_headings, distance from a heading
_CLASSIFY = (50, 150, 0.1, 0.2, 0.25, True)
_HEADING_DISTANCE = 150


class Paragraph:
    """Text between two block tags, with the attributes that justext's functions use."""

    __slots__ = ("cf_class", "chars_count_in_links", "class_type", "dom_path", "heading", "text", "words")

    def __init__(self, texts: list[str], n_linked: int, dom_path: str) -> None:
        self.text = _whitespace_as_one("".join(texts).strip())
        self.words = self.text.split()
        self.chars_count_in_links = n_linked
        self.dom_path = dom_path
        self.cf_class = self.class_type = ""
        self.heading = False

    def __len__(self) -> int:
        return len(self.text)

    def stopwords_density(self, stopwords: frozenset[str]) -> float:
        return sum(word.lower() in stopwords for word in self.words) / len(self.words) if self.words else 0

    def links_density(self) -> float:
        return self.chars_count_in_links / len(self.text) if self.text else 0


def justext_body(tree: Any, url: str | None = None, target_language: str | None = None) -> Any:
    """Return a `body` element with the good paragraphs, judged by the stop words of all languages."""
    paragraphs = make_paragraphs(tree)
    classify_paragraphs(paragraphs, _stop_words(), *_CLASSIFY)
    revise_paragraph_classification(paragraphs, _HEADING_DISTANCE)
    body = etree.Element("body")
    for paragraph in paragraphs:
        if paragraph.class_type == "good":
            etree.SubElement(body, "p").text = paragraph.text
    return body


def make_paragraphs(tree: Any) -> list[Paragraph]:
    """Return the paragraphs of a tree that have text, in document order."""
    made: list[Paragraph] = []
    texts: list[str] = []
    n_linked, in_link, after_break, in_select = 0, False, False, ""
    open_selects = 0  # justext checks a paragraph's path, at its beginning, only for `select`

    def begin() -> None:
        nonlocal texts, n_linked, in_select
        if texts and (paragraph := Paragraph(texts, n_linked, in_select)).text:
            made.append(paragraph)
        texts, n_linked, in_select = [], 0, "select" if open_selects else ""

    for event, element in etree.iterwalk(tree, ("start", "end")):
        name = element.tag
        if event == "start":
            text = element.text
            open_selects += "select" in name
            if name in PARAGRAPH_TAGS or (after_break and name == "br"):
                begin()
            else:
                after_break = name == "br"
                if after_break:
                    texts.append(" ")
                in_link = in_link or name == "a"
        else:
            text = element.tail
            open_selects -= "select" in name
            if name in PARAGRAPH_TAGS:
                begin()
            in_link = in_link and name != "a"
        if text and not text.isspace():
            shown = _whitespace_as_one(text)
            texts.append(shown)
            n_linked += len(shown) if in_link else 0
            after_break = False
    begin()
    return made


def _whitespace_as_one(text: str) -> str:
    """Replace each run of whitespace by a line feed if it contains a line end, else by a space.

    Text without line ends takes a path that is twice as fast.
    """
    if "\n" in text or "\r" in text:
        return str(normalize_whitespace(text))
    words = " ".join(text.split())
    if not words:
        return " " if text else ""
    return f"{' ' if text[0].isspace() else ''}{words}{' ' if text[-1].isspace() else ''}"


@functools.cache
def _stop_words() -> frozenset[str]:
    return frozenset(word for language in get_stoplists() for word in get_stoplist(language))
