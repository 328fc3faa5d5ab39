"""Texts for corpora: pieces of files, of pages and of document sets; copies of texts with some words replaced."""

from __future__ import annotations

import lzma
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from extraction_sets import read_evaluation

from webtext.base.parts.partset import PartSet
from webtext.clean.extract.charset import decode
from webtext.clean.extract.html import parse

DOCUMENT_CHARACTERS = 4000
COPIED_SHARE, COPIES, EDITED_SHARE = 1 / 3, (3, 10), 0.005


def pieces(corpus: Path) -> list[str]:
    """Split a file into documents of complete paragraphs, shuffled in a fixed order."""
    return shuffled(joined(lzma.decompress(corpus.read_bytes()).decode(errors="replace").split("\n\n"), "\n\n"))


def shuffled(texts: list[str]) -> list[str]:
    random.Random(0).shuffle(texts)
    return texts


def cut(texts: Sequence[str], n_characters: float) -> tuple[list[str], list[str]]:
    """Split the texts into the first ones, up to this many characters, and the others."""
    n = size = 0
    while n < len(texts) and size < n_characters:
        size += len(texts[n])
        n += 1
    return list(texts[:n]), list(texts[n:])


def joined(parts: Iterable[str], separator: str) -> list[str]:
    """Join the parts to documents of about DOCUMENT_CHARACTERS."""
    documents: list[list[str]] = [[]]
    size = 0
    for part in parts:
        if size > DOCUMENT_CHARACTERS:
            documents.append([])
            size = 0
        documents[-1].append(part)
        size += len(part) + len(separator)
    return [separator.join(each) + separator for each in documents]


def texts_of(documents: PartSet, split: str = "train") -> list[str]:
    """Return the texts of one split."""
    rows = (row for part in range(len(documents.parts)) for row in documents.table(part, ["text", "split"]).to_pylist())
    return [row["text"] for row in rows if row["split"] == split]


def unextracted(data: Path) -> list[str]:
    """Return all text of pages, navigation included: one text node per line."""
    made = []
    for page in read_evaluation(data):
        tree = parse(decode(page.body, "text/html"))
        if tree is not None:
            nodes = tree.xpath("//text()[not(ancestor::script or ancestor::style or ancestor::noscript)]")
            lines = (" ".join(node.split()) for node in nodes)
            made += joined([line for line in lines if line], "\n")
    return made


def with_copies(texts: Sequence[str]) -> list[str]:
    """Return the texts, shuffled, with copies of a share of them; the copies have some words of other documents."""
    chance = random.Random(0)
    all_words = [word for text in texts[:100] for word in text.split()]
    made = []
    for text in texts:
        made.append(text)
        if chance.random() < COPIED_SHARE:
            for _ in range(chance.randint(*COPIES) - 1):
                made.append(re.sub(r"\S+", lambda word: _exchanged(word[0], chance, all_words), text))
    chance.shuffle(made)
    return made


def _exchanged(word: str, chance: random.Random, words: Sequence[str]) -> str:
    return chance.choice(words) if chance.random() < EDITED_SHARE else word
