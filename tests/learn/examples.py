"""Read pages with known text as examples: their blocks, and the share of each block's words that are in the text.

A block's target is the share of its words that are in the known text, aligned by a longest common subsequence. On
trafilatura's pages it is known where a passage is; elsewhere it is taken from trafilatura where its default and its
precision mode agree, if its text has the passages. The blocks of a page weigh by their words to the power of 0.6.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import random
import re
import sys
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import trafilatura
from rapidfuzz.distance import LCSseq

from webtext.base.errors import InputError
from webtext.base.web.urls import canonical_url, registrable_domain
from webtext.clean.extract.blocks import Blocks, read_blocks
from webtext.clean.extract.charset import decode
from webtext.clean.extract.features import WORD, n_words
from webtext.clean.extract.html import parse
from webtext.clean.extract.kinds import page_facts
from webtext.clean.extract.metadata import Metadata, read_metadata
from webtext.clean.extract.opinion import second_opinion

sys.path.append(str(Path(__file__).parents[1]))
from gold.align import NEUTRAL, matches, words  # noqa: E402

Array = npt.NDArray[Any]

GOLD_PAGES, FORUM_PAGES, GOLD_WEIGHT = 12, 4, 0.4
FORUMS = ("fhgr/harvest",)
SCORED = ("trafilatura", "wcxb")
MIN_FIXTURE_WORDS, UNKNOWN = 10, ("h1", "h2", "h3", "h4", "h5", "h6", "figcaption")
"""Whether headings, captions and short lines are in a text differs between fixtures, so these teach nothing."""
PAGE_WEIGHTS = {None: 0.6, True: 1.0, False: 1.5}
"""Of pages of which only passages are known, of articles, and of other kinds, which are fewer and differ more."""
LETTERS = re.compile(r"[^\W\d_]+")
BETWEEN = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")
AGREED = (0.07, 0.93)  # targets where trafilatura's modes agree
MIN_PASSAGES_F1 = 0.8
SCRIPTS = {
    "Cyrillic": (0x430, 32, 6, " "),
    "Arabic": (0x627, 36, 5, " "),
    "Hangul": (0xAC00, 11_172, 3, " "),
    "Han": (0x4E00, 20_000, 2, ""),
    "Thai": (0xE01, 46, 4, ""),
    "Devanagari": (0x915, 37, 6, " "),
    "Kana": (0x3042, 78, 3, ""),
}
"""First letter, number of letters, letters of a word at most, sign between words."""
LEARNED_SCRIPTS = tuple(SCRIPTS)[:5]
REWRITTEN_WEIGHT = 0.5


@dataclass(slots=True)
class Example:
    """A page with its blocks' targets; NaN where nothing is known."""

    set_name: str
    identifier: str
    domain: str
    found: Blocks
    metadata: Metadata
    facts: set[str]
    kind: str | None
    target: Array = field(default_factory=lambda: np.zeros(0))
    digest: str = ""
    """SHA-256 of its HTML."""
    opinion: str | None = None
    """trafilatura's text, of pages whose cross-validated texts are scored."""
    weight: float = 1.0

    def is_in(self, fold: int, n: int) -> bool:
        return zlib.crc32(f"{self.domain} {n}".encode()) % n == fold

    @property
    def weights(self) -> Array:
        sizes = np.array([n_words(block.text) for block in self.found.blocks], float)
        sizes = np.where(np.isnan(self.target), 0.0, sizes) ** 0.6
        weight = PAGE_WEIGHTS[self.kind == "article" if self.set_name == "wcxb" else None]
        weight = GOLD_WEIGHT if self.set_name == "gold" else weight
        return np.asarray(sizes / max(sizes.sum(), 1e-9) * weight * self.weight)

    def rewritten(self, name: str = "") -> Example:
        """Return the page with its words in a script; equal words stay equal. Without its name, the identifier chooses one."""
        script = SCRIPTS[name or LEARNED_SCRIPTS[zlib.crc32(self.identifier.encode()) % len(LEARNED_SCRIPTS)]]
        blocks = []
        for block in self.found.blocks:
            text = _in_script(block.text, script)
            longer = len(text) / len(block.text)
            linked, bold = round(block.n_linked * longer), round(block.n_bold * longer)
            blocks.append(replace(block, text=text, n_linked=linked, n_bold=bold))
        title = _in_script(self.metadata.title or "", script)
        stated = tuple(_in_script(each, script) for each in self.metadata.descriptions)
        metadata = replace(self.metadata, title=title, descriptions=stated)
        found = Blocks(blocks, self.found.containers)
        return replace(self, found=found, metadata=metadata, weight=REWRITTEN_WEIGHT)


def _in_script(text: str, script: tuple[int, int, int, str]) -> str:
    """Return a text with other letters in its words, which aren't numbers; pseudo-random, by each word alone."""
    first, n_letters, longest, between = script

    def other(found: re.Match[str]) -> str:
        chance = random.Random(found[0].lower())
        n = min(len(found[0]), longest) if between else chance.randint(1, longest)
        return "".join(chr(first + chance.randrange(n_letters)) for _ in range(n))

    rewritten = LETTERS.sub(other, text)
    return rewritten if between else BETWEEN.sub("", rewritten)


def read_examples(data: Path) -> list[Example]:
    """Read both sets; raises InputError if a file is missing."""
    given = [data / name for name in ("wcxb/pages.tar.xz", "wcxb/gold.jsonl.xz")]
    given += [data / name for name in ("extract/pages.tar.xz", "extract/evaldata.json")]
    missing = next((path for path in given if not path.is_file()), None)
    if missing is not None:
        raise InputError(f"'{missing}' is missing", "give the folder that contains both 'wcxb' and 'extract'")
    examples = []
    bodies = _bodies(given[0])
    with lzma.open(given[1], "rt", encoding="utf-8") as lines:
        for line in lines:
            gold = json.loads(line)
            example = _example("wcxb", gold["id"], gold["url"], bodies[f"{gold['id']}.html"], gold["page_type"])
            example.target = _aligned(example.found, gold["text"])
            examples.append(example)
    bodies = _bodies(given[2])
    for url, passages in sorted(json.loads(given[3].read_text("utf-8")).items()):
        if passages["file"] in bodies:
            body = bodies[passages["file"]]
            example = _example("trafilatura", passages["file"], url.strip(), body, None)
            example.target = _by_passages(example.found, passages["with"], passages["without"], body)
            examples.append(example)
    return examples


def read_gold(folder: Path, n_pages: int = GOLD_PAGES) -> list[Example]:
    """Read up to `n_pages` pages of each source package in the training split; their ids, which are hashes, choose."""
    taken: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(path, filters=[("split", "==", "train")]).to_pylist():
            taken[row["source"]].append(row)
    rows = (row for source in taken.values() for row in sorted(source, key=lambda row: row["id"])[:n_pages])
    return [_of_gold(row) for row in rows]


def _of_gold(row: dict[str, Any]) -> Example:
    example = _example("gold", row["id"], row["source"], row["html"], None)
    text = words("\n".join(block["text"] for block in row["blocks"]))
    own = [words(block.text) for block in example.found.blocks]
    found = {place for place, _ in matches([word for each in own for word in each], text)}
    neutral = set(row["neutral"])
    starts = np.cumsum([0, *map(len, own)])
    shares = [sum(i in found for i in range(a, b)) / max(b - a, 1) for a, b in pairwise(starts.tolist())]
    is_neutral = [len(each) <= NEUTRAL and neutral.issuperset(each) for each in own]
    example.target = np.where(np.array(is_neutral, bool) & (np.array(shares) == 0), np.nan, np.array(shares))
    return example


def read_fixtures(file: Path) -> list[Example]:
    """Read other projects' pages with their whole text; only their paragraphs teach."""
    return [_of_fixture(row) for row in pq.read_table(file, filters=[("is_whole", "==", True)]).to_pylist()]


def _of_fixture(row: dict[str, Any]) -> Example:
    kind = "forum" if row["source"] in FORUMS else "article"
    example = _example("fixtures", row["id"], row["url"], row["html"], kind)
    example.target = _aligned(example.found, row["text"])
    for i, block in enumerate(example.found.blocks):
        tag = example.found.containers[block.container].tag if block.container >= 0 else ""
        if tag in UNKNOWN or n_words(block.text) < MIN_FIXTURE_WORDS:
            example.target[i] = np.nan
    return example


def _bodies(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {Path(m.name).name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]


def _example(set_name: str, identifier: str, url: str, body: bytes, kind: str | None) -> Example:
    html = decode(body, "text/html")
    canonical, tree = canonical_url(url), parse(html)
    domain = (registrable_domain(canonical) if canonical else None) or url
    example = Example(set_name, identifier, domain, Blocks([], []), Metadata(), set(), kind)
    example.digest = hashlib.sha256(body).hexdigest()
    if tree is not None:
        example.found, example.metadata, example.facts = (
            read_blocks(tree),
            read_metadata(tree, html),
            page_facts(tree, html),
        )
        example.opinion = second_opinion(tree) if set_name in SCORED else None
    return example


def _aligned(found: Blocks, text: str) -> Array:
    """Return the share of each block's words that are in the text."""
    own = [words(block.text) for block in found.blocks]
    wanted = words(text)
    numbers: dict[str, int] = {}
    every = [numbers.setdefault(word, len(numbers)) for each in own for word in each]
    of_block = np.repeat(np.arange(len(own)), [len(each) for each in own])
    hits = np.zeros(len(own))
    for step in LCSseq.opcodes(every, [numbers.setdefault(word, len(numbers)) for word in wanted]):
        if step.tag == "equal":
            np.add.at(hits, of_block[step.src_start : step.src_end], 1)
    triples = set(zip(wanted, wanted[1:], wanted[2:], strict=False))
    target = np.full(len(own), np.nan)
    for i, each in enumerate(own):
        if each:
            target[i] = hits[i] / len(each)
        if len(each) >= 6:  # long enough to be recognised where the text has another order
            share = sum(t in triples for t in zip(each, each[1:], each[2:], strict=False)) / (len(each) - 2)
            target[i] = max(share, target[i] if share > 0.3 else min(target[i], share + 0.1))
    return target


def _by_passages(found: Blocks, wanted: Sequence[str], unwanted: Sequence[str], body: bytes) -> Array:
    target = _agreed(found, wanted, unwanted, body)
    passages, others = ([_plain(each) for each in given] for given in (wanted, unwanted))
    for i, block in enumerate(found.blocks):
        text = _plain(block.text)
        is_wanted = any(each in text or (len(text) > 25 and text in each) for each in passages)
        is_unwanted = any(each in text for each in others)
        if is_wanted or is_unwanted:
            target[i] = np.nan if is_wanted and is_unwanted else float(is_wanted)
    return target


def _agreed(found: Blocks, wanted: Sequence[str], unwanted: Sequence[str], body: bytes) -> Array:
    """Return targets where trafilatura's modes agree, if the text of the first has the passages."""
    target = np.full(len(found.blocks), np.nan)
    texts = [
        trafilatura.extract(body, include_comments=False, favor_precision=is_strict) or ""
        for is_strict in (False, True)
    ]
    plain = _plain(texts[0])
    right, wrong = (sum(_plain(each) in plain for each in given) for given in (wanted, unwanted))
    if 2 * right < MIN_PASSAGES_F1 * (right + wrong + len(wanted)):
        return target
    words = [WORD.findall(text.lower()) for text in texts]
    triples = [set(zip(each, each[1:], each[2:], strict=False)) for each in words]
    for i, block in enumerate(found.blocks):
        own = WORD.findall(block.text.lower())
        if len(own) >= 3:
            of_block = list(zip(own, own[1:], own[2:], strict=False))
            shares = [sum(each in known for each in of_block) / len(of_block) for known in triples]
            if min(shares) > 0.8 or max(shares) < 0.2:
                target[i] = AGREED[min(shares) > 0.8]
    return target


def _plain(text: str) -> str:
    return " ".join(normalize("NFC", text).split())
