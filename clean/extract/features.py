"""Numbers that describe each block of a page to the scorer: its text, its place, what is around it and what repeats.

Most are ratios and logarithms of counts, so that a long page and a short one look alike. Lengths are in characters, in
logarithms log(1 + n); a letter of a script without spaces counts as many as its share of a word has in English, so that
a page looks alike in all scripts. Everything takes linear time in the page's size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.clean.extract.blocks import Blocks
from webtext.clean.extract.characters import DIGIT, LINE, PUNCTUATION, SIGN, SPACE, UNSPACED, UPPER, Characters
from webtext.clean.text.unspaced import SCRIPTS

Array = npt.NDArray[Any]
Columns = dict[str, Array]

WORD = re.compile(r"\w+")
MAX_NAMES = 1000  # characters
MAX_WORDS, MAX_CAPITALS = 30, 21  # the beginning of a block whose words are looked up, and counted
MAX_STATED = 20_000  # characters of a description
PLAIN_WORDS, PLAIN_LINKED = 10, 0.2
"""A block is plain text from this number of words and below this share of its characters in links."""
LEVELS = 4  # ancestors of a block that are described one by one
NAME_LEVELS = 3

_TAGS = "p li h1 h2 h3 h4 h5 h6 td th div pre blockquote dt dd figcaption button section article main summary"
_AROUND_TAGS = (
    "nav header footer aside article main form table ul ol figure section dialog pre blockquote dl button li noscript"
)
TAG_NUMBER = {tag: i + 1 for i, tag in enumerate(_TAGS.split())}
_AROUND = _AROUND_TAGS.split()
_NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PRICE = re.compile(r"[$€£¥₹] ?\d|\d ?[€£¥₹]")
CHARACTERS_PER_WORD = 6.0  # of English, with the blank
_LETTERS = [re.compile("[" + "".join(f"{chr(r[0])}-{chr(r[-1])}" for r in script.letters) + "]") for script in SCRIPTS]
_UNSPACED = re.compile("|".join(each.pattern for each in _LETTERS))
_ENDS = tuple(".!?。！？…")
_CLOSING = "\"')]”’»」 "
_PER_PAGE_TAGS = ("article", "main", "h1", "form", "table", "pre", "li", "p")


def words_of(text: str) -> list[str]:
    """Return the first words of a text in lower case."""
    return WORD.findall(text[: 20 * MAX_WORDS].lower())[:MAX_WORDS]


def name_parts(names: str) -> tuple[str, ...]:
    """Return the distinct parts of class and other names, as written in camel case or with signs between, sorted.

    >>> name_parts("post-body relatedItems x2")
    ('body', 'items', 'post', 'related')
    """
    return _name_parts(names[:MAX_NAMES])


@lru_cache(maxsize=20_000)
def _name_parts(names: str) -> tuple[str, ...]:
    return tuple(sorted({part.lower() for part in _NAME_PART.findall(names) if 2 < len(part) < 20}))


def n_words(text: str) -> float:
    """Return the number of words of a text, also in scripts without spaces.

    >>> n_words("a b"), round(n_words("\u4e2d" * 17))
    (2.0, 10)
    """
    unspaced = sum(_by_script(text))
    return len(WORD.findall(_UNSPACED.sub(" ", text))) + unspaced if unspaced else text.count(" ") + 1.0


def _n_added(text: str) -> float:
    """Return by how many characters a text would be longer if its words in scripts without spaces were English."""
    added = zip(SCRIPTS, _by_script(text), strict=False)
    return sum(n * (CHARACTERS_PER_WORD - script.letters_per_word) for script, n in added)


@lru_cache(maxsize=1)  # texts may be long
def _by_script(text: str) -> tuple[float, ...]:
    """Return the number of words in each of SCRIPTS; empty if there is none of them."""
    if text.isascii() or not _UNSPACED.search(text):
        return ()
    return tuple(
        len(each.findall(text)) / script.letters_per_word for script, each in zip(SCRIPTS, _LETTERS, strict=True)
    )


class PageFeatures:
    """A page with at least one block. In its arrays over containers, the last element is the page itself."""

    def __init__(self, found: Blocks) -> None:
        blocks, containers = found.blocks, found.containers
        self.found, self.n_blocks, self.top = found, len(blocks), len(containers)
        self.texts = [block.text for block in blocks]
        self.low = [words_of(text) for text in self.texts]
        n = _floats(map(len, self.texts))
        self.characters = Characters(self.texts)
        self.n_words, self.n = self.characters.count(SPACE) + 1, n.copy()
        for i in np.flatnonzero(self.characters.count(UNSPACED)):
            self.n_words[i] = n_words(self.texts[i])
            self.n[i] += _n_added(self.texts[i])
        self.linked = np.minimum(_floats(block.n_linked for block in blocks), n) / n
        self.bold = _floats(block.n_bold for block in blocks) / n
        self.is_plain = (self.linked < PLAIN_LINKED) & (self.n_words >= PLAIN_WORDS)
        self.tags = np.array([*(TAG_NUMBER.get(c.tag, 0) for c in containers), 0], float)
        self.parents = np.array([*(self._index(c.parent) for c in containers), self.top])
        self.firsts = np.array([*(c.first for c in containers), 0])
        self.ends = np.array([*(c.end for c in containers), self.n_blocks])
        self.own = np.array([self._index(block.container) for block in blocks])
        self.tag = self.tags[self.own]
        self.sums = {
            "n": _sums(self.n),
            "linked": _sums(self.linked * self.n),
            "plain": _sums(self.n * self.is_plain),
            "words": _sums(self.n_words),
        }
        kinds: dict[Any, int] = {}
        self.kinds = np.array([*(kinds.setdefault((c.tag, c.names), len(kinds)) for c in containers), self.top + 1])
        pairs = self.kinds[self.own] * (self.top + 2) + self.kinds[self.parents[self.own]]
        self.groups = np.unique(pairs, return_inverse=True)[1]  # blocks in containers of equal tags and names
        self.total = self.sums["n"][-1]
        self.plain = max(self.sums["plain"][-1], 1.0)

    def described(
        self,
        title: str,
        descriptions: Sequence[str],
        name_weights: Mapping[str, float],
        word_weights: Mapping[str, float],
    ) -> Columns:
        """Return features by name, each [n_blocks]. The weights say how often text with a name or word was kept."""
        return (
            self._text()
            | self._words(word_weights)
            | self._names(name_weights)
            | self._place()
            | self._ancestors()
            | self._title(title, descriptions)
            | self._repeats()
            | self._neighbours()
            | self._page()
        )

    def judged(self, probability: Array) -> Columns:
        """Return features made of the blocks' own probabilities to be kept: of neighbours, around, and the page's."""
        n = self.n_words + 0.5
        sums, counts = _sums(probability * n), _sums(n)
        means = (sums[self.ends] - sums[self.firsts]) / np.maximum(counts[self.ends] - counts[self.firsts], 1e-9)
        per_block = _sums(probability)
        plain_means = (per_block[self.ends] - per_block[self.firsts]) / np.maximum(self.ends - self.firsts, 1)
        columns = {"own": probability}
        above = self.own
        for level in range(LEVELS + 2):
            columns |= {f"above{level}": means[above], f"above{level}_per_block": plain_means[above]}
            above = self.parents[above]
        columns |= {f"next{by:+}": _shifted(probability, by) for by in (-3, -2, -1, 1, 2, 3)}
        places = np.arange(self.n_blocks)
        for radius in (2, 5, 15):
            low, high = np.maximum(0, places - radius), np.minimum(self.n_blocks, places + radius + 1)
            for side, start, end in (("around", low, high), ("before", low, places), ("after", places + 1, high)):
                columns[f"{side}{radius}"] = (sums[end] - sums[start]) / np.maximum(counts[end] - counts[start], 1e-9)
        weighed = np.bincount(self.groups, probability * n) / np.bincount(self.groups, n)
        likely = np.flatnonzero(probability > 0.5)
        first, last = (likely[0], likely[-1]) if len(likely) else (0, self.n_blocks)
        columns |= {
            "repeats": weighed[self.groups],
            "page": np.full(self.n_blocks, sums[-1] / counts[-1]),
            "highest": np.full(self.n_blocks, probability.max()),
            "share_before": sums[:-1] / max(sums[-1], 1e-9),
            "before_first": np.log1p(np.maximum(0, first - places)),
            "after_last": np.log1p(np.maximum(0, places - last)),
        }
        return {f"judged_{name}": values for name, values in columns.items()}

    def _index(self, container: int) -> int:
        return container if container >= 0 else self.top

    def _within(self, name: str) -> Array:
        """Return the sum of a quantity over the blocks in each container."""
        return np.asarray(self.sums[name][self.ends] - self.sums[name][self.firsts])

    def _text(self) -> Columns:
        blocks, count = self.found.blocks, self.characters.count
        return {
            "n": np.log1p(self.n),
            "words": np.log1p(self.n_words),
            "linked": self.linked,
            "links": np.log1p(_floats(block.n_links for block in blocks)),
            "bold": self.bold,
            "lines": np.log1p(count(LINE)),
            "punctuation": count(PUNCTUATION) / self.n_words,
            "ends": _floats(text.rstrip(_CLOSING).endswith(_ENDS) for text in self.texts),
            "colon": _floats(text.endswith(":") for text in self.texts),
            "upper": count(UPPER) / self.n,
            "signs": count(SIGN) / self.n,
            "digits": count(DIGIT) / self.n,
            "capitals": self.characters.capitals(MAX_CAPITALS) / np.minimum(self.n_words, MAX_CAPITALS),
            "word_length": self.n / self.n_words,
            "tag": self.tag,
        }

    def _words(self, weights: Mapping[str, float]) -> Columns:
        """Describe the words by their weights, and the heading above."""
        found = [[weights.get(word, 0.0) for word in words] or [0.0] for words in self.low]
        means = _floats(sum(each) / len(each) for each in found)
        is_heading = (self.tag >= TAG_NUMBER["h1"]) & (self.tag <= TAG_NUMBER["h6"])
        places = np.arange(self.n_blocks)
        last = np.maximum.accumulate(np.where(is_heading, places, -1))
        above = np.concatenate([[-1], last[:-1]])
        has = above >= 0
        return {
            "word_mean": means,
            "word_min": _floats(map(min, found)),
            "word_max": _floats(map(max, found)),
            "heading_distance": np.log1p(places - above),
            "heading_mean": np.where(has, means[above], 0.0),
            "heading_tag": np.where(has, self.tag[above], 0.0),
        }

    def _names(self, weights: Mapping[str, float]) -> Columns:
        """Describe class names and others by their weights: of the container, around it, and of neighbours."""
        known: dict[str, float] = {}
        lists: dict[str, list[float]] = {key: [0.0] * (self.top + 1) for key in ("own", "min", "max", "sum")}
        own, low, high, total = lists.values()
        for i, container in enumerate(self.found.containers):
            weight = known.get(container.names)
            if weight is None:
                parts = [weights[part] for part in name_parts(container.names) if part in weights] or [0.0]
                weight = known[container.names] = min(parts) + max(parts) if len(parts) > 1 else parts[0]
            parent = self._index(container.parent)
            own[i], low[i], high[i] = weight, min(low[parent], weight), max(high[parent], weight)
            total[i] = 0.7 * total[parent] + weight
        columns = {f"name_{key}": np.array(values)[self.own] for key, values in lists.items()}
        above, weights_of = self.own, np.array(own)
        for level in range(1, NAME_LEVELS + 1):
            above = self.parents[above]
            columns[f"name_{level}"] = weights_of[above]
        return columns | {f"name{by:+}": _shifted(columns["name_own"], by) for by in (-1, 1)}

    def _place(self) -> Columns:
        """Describe where the block is: inside which elements, how deep, and how far into the page and its main part."""
        bits = {tag: 1 << i for i, tag in enumerate(_AROUND)}
        hidden = 1 << len(_AROUND)
        size = self.top + 1
        around, depth, in_main, below_main = ([0] * size for _ in range(4))
        is_main = (self._within("plain") >= 0.5 * self.plain).tolist()
        for i, container in enumerate(self.found.containers):
            parent = self._index(container.parent)
            around[i] = around[parent] | bits.get(container.tag, 0) | (hidden if container.hidden else 0)
            depth[i] = depth[parent] + 1
            in_main[i] = in_main[parent] + is_main[i]
            below_main[i] = 0 if is_main[i] else below_main[parent] + 1
        masks = np.array(around)[self.own]
        columns = {f"in_{tag}": (masks & bit > 0).astype(float) for tag, bit in (bits | {"hidden": hidden}).items()}
        middles = (self.sums["n"][:-1] + self.sums["n"][1:]) / 2
        plains = (self.sums["plain"][:-1] + self.sums["plain"][1:]) / 2
        return columns | {
            "depth": np.array(depth, float)[self.own],
            "in_main_part": np.array(in_main)[self.own] / max(1, *in_main),
            "below_main_part": np.array(below_main, float)[self.own],
            "position": middles / self.total,
            "plain_position": plains / self.plain,
        }

    def _ancestors(self) -> Columns:
        columns: Columns = {}
        n, counts = self._within("n"), self.ends - self.firsts
        described = {
            "linked": self._within("linked") / np.maximum(n, 1),
            "plain": self._within("plain") / np.maximum(n, 1),
            "n": np.log1p(n),
            "share": n / self.total,
            "blocks": np.log1p(counts),
            "words": np.log1p(self._within("words") / np.maximum(counts, 1)),
        }
        above = self.own
        for level in range(LEVELS + 1):
            columns |= {f"above{level}_{name}": values[above] for name, values in described.items()}
            if 0 < level < 3:
                columns[f"above{level}_tag"] = self.tags[above]
            above = self.parents[above]
        return columns

    def _title(self, title: str, descriptions: Sequence[str]) -> Columns:
        """Compare with the page's stated title and descriptions, and measure the distance from the main heading."""
        title = " ".join(title.lower().split())
        stated = " ".join(" ".join(each[:MAX_STATED].lower().split()) for each in descriptions)
        low = [" ".join(text[:200].lower().split()) for text in self.texts]
        is_title = [text in title if len(text) > 10 else text == title for text in low]
        words = set(words_of(title))
        headings = np.flatnonzero(self.tag == TAG_NUMBER["h1"]).tolist()
        among = [i for i in headings if is_title[i]] or headings or [i for i, each in enumerate(is_title) if each]
        place = int(among[0]) if among else -1
        by = np.arange(self.n_blocks) - place
        characters = self.sums["n"][:-1] - self.sums["n"][max(place, 0)]
        return {
            "is_title": _floats(is_title),
            "title_words": _floats(sum(map(words.__contains__, each)) / max(1, len(each)) for each in self.low),
            "is_description": _floats(len(text) > 20 and text[:60] in stated for text in low),
            "from_title": np.sign(by) * np.log1p(np.abs(by)) * (place >= 0),
            "characters_from_title": np.sign(characters) * np.log1p(np.abs(characters)) * (place >= 0),
        }

    def _repeats(self) -> Columns:
        """Describe blocks in containers of equal tags and names, and containers with such siblings."""
        group = self.groups
        counts, n = np.bincount(group), np.bincount(group, self.n)
        _, pair, n_pairs = np.unique(
            self.parents * (self.top + 2) + self.kinds, return_inverse=True, return_counts=True
        )
        siblings = np.log1p(n_pairs[pair])
        texts = Counter(self.texts)
        columns = {
            "repeats": np.log1p(counts)[group],
            "repeats_n": np.log1p(n / counts)[group],
            "repeats_linked": (np.bincount(group, self.n * self.linked) / n)[group],
            "repeats_share": (n / self.total)[group],
            "equal_texts": np.log1p(_floats(texts[text] for text in self.texts)),
        }
        above = self.own
        for level in range(3):
            columns[f"siblings{level}"] = siblings[above]
            above = self.parents[above]
        return columns

    def _neighbours(self) -> Columns:
        columns: Columns = {}
        given = {"n": np.log1p(self.n), "linked": self.linked, "tag": self.tag}
        for by in (-2, -1, 1, 2):
            columns |= {f"{name}{by:+}": _shifted(values, by) for name, values in given.items()}
        for radius in (3, 10):
            for name in ("n", "linked", "plain"):
                sums, blocks = windows(self.sums[name], radius)
                per = blocks if name == "n" else np.maximum(windows(self.sums["n"], radius)[0], 1)
                columns[f"around{radius}_{name}"] = np.log1p(sums / per) if name == "n" else sums / per
        return columns

    def _page(self) -> Columns:
        """Describe the page: the same for all of its blocks."""
        tags = [container.tag for container in self.found.containers]
        given = {
            "n": np.log1p(self.total),
            "blocks": np.log1p(self.n_blocks),
            "linked": self.sums["linked"][-1] / self.total,
            "plain": self.sums["plain"][-1] / self.total,
            "words": np.log1p(self.sums["words"][-1] / self.n_blocks),
            "longest": np.log1p(self.n.max()),
        }
        given["prices"] = np.log1p(len(_PRICE.findall("\n".join(compress(self.texts, self.characters.count(SIGN))))))
        given |= {f"n_{tag}": np.log1p(tags.count(tag)) for tag in _PER_PAGE_TAGS}
        for tag in ("p", "li", "td", "pre"):
            given[f"share_{tag}"] = self.n[self.tag == TAG_NUMBER[tag]].sum() / self.total
        return {f"page_{name}": np.full(self.n_blocks, value) for name, value in given.items()}


def windows(sums: Array, radius: int) -> tuple[Array, Array]:
    """Return the sum over the blocks around each, at most `radius` away, and how many these are."""
    places = np.arange(len(sums) - 1)
    low, high = np.maximum(0, places - radius), np.minimum(len(places), places + radius + 1)
    return sums[high] - sums[low], high - low


def _shifted(values: Array, by: int) -> Array:
    """Return the values of the blocks `by` places further on; zero outside the page."""
    outside = np.zeros(abs(by))
    return np.concatenate([outside, values, outside])[abs(by) + by :][: len(values)]


def _sums(values: Array) -> Array:
    """Return the sums of the first 0, 1, ... n values."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _floats(values: Iterable[Any]) -> Array:
    return np.fromiter(values, float)
