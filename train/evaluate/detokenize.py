"""Lossless de-tokenizers: tokenised text as it is usually written, which leads back to it, byte for byte.

Evaluation sets are published as words with a blank around each, punctuation and parts of words too (`Teddy 's "` or
`two @-@ part`), as no model of running text has seen it. Radford et al. (2019, section 3.1) undo these artefacts by
"invertible de-tokenizers", so that the text's probability is still the original's, and report perplexities 2.5 to 5 lower.

Two words are joined only if the set's rules say so *and* the inverse splits them again as they were; otherwise the
blank remains. A word that the inverse would split or rewrite, although it was one word, gets a second blank before it
and is left as it is. So every line of words can be restored, however good the rules are:

>>> WIKITEXT.detokenize(' He \\'s in a " two @-@ part " show . \\n \\n')
'He\\'s in a "two-part" show.\\n\\n'
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from webtext.base.errors import InputError

LONGEST_RUN = 32
"""Words that are tried as one. The limit bounds the work on a line of nothing but brackets."""


@dataclass(frozen=True)
class Detokenizer:
    """The rules of one tokenised form.

    `margin` is at both ends of a line of words; a line without words is one margin. `rewritten` has pairs (in words, in
    text). Words in `left`, `right` and `both` join the word before, the word after, or both. Words in `between_digits`
    join both if there are digits around them; `quotes` join what they open or close; `ending` matches words that join
    the word before. `split` splits joined words.
    """

    name: str
    margin: str
    split: Callable[[str], Sequence[str]]
    ending: re.Pattern[str]
    left: frozenset[str] = frozenset()
    right: frozenset[str] = frozenset()
    both: frozenset[str] = frozenset()
    between_digits: frozenset[str] = frozenset()
    quotes: frozenset[str] = frozenset()
    rewritten: tuple[tuple[str, str], ...] = ()

    def detokenize(self, text: str) -> str:
        """Return the text as it is usually written. InputError names a line that is not words with single blanks."""
        lines = text.split("\n")
        last = lines.pop()  # text after the last newline is a line too, unless it is empty
        if last and last == self.margin:
            raise InputError(f"the text ends inside a line of {self.name}", "end it with a newline")
        joined = [self._join(line, number) for number, line in enumerate(lines, 1)]
        return "\n".join([*joined, last and self._join(last, len(lines) + 1)])

    def _join(self, line: str, number: int) -> str:
        if line == self.margin:
            return ""
        words = line.removeprefix(self.margin).removesuffix(self.margin).split(" ")
        if line != f"{self.margin}{' '.join(words)}{self.margin}" or not all(words):
            raise InputError(
                f"line {number:,} is not in the tokenised form {self.name}: {line[:60]!r}",
                f"expected words with one blank between two and {'one' if self.margin else 'none'} at both ends",
            )
        joins = self._joins(words)
        parts: list[str] = []
        start = 0
        while start < len(words):
            end = start + 1
            while end < len(words) and joins[end] and end - start < LONGEST_RUN:
                end += 1
            while (joined := self._joined(words[start:end])) is None and end - start > 1:
                end -= 1
            parts.append(f" {words[start]}" if joined is None else joined)
            start = end
        return " ".join(parts)

    def _joined(self, words: list[str]) -> str | None:
        """Return the words joined, or None if `split` would not restore them."""
        joined = "".join(words)
        if any(inside in joined for inside, _ in self.rewritten):
            joined = "".join(functools.reduce(lambda word, pair: word.replace(*pair), self.rewritten, w) for w in words)
        return joined if self._split(joined) == tuple(words) else None

    def _joins(self, words: list[str]) -> list[bool]:
        """Return, for each word and one past the last, whether it would join the word before it."""
        joins = [False] * (len(words) + 1)
        is_open: set[str] = set()
        for i, word in enumerate(words):
            before = word in self.left or word in self.both or self.ending.fullmatch(word) is not None
            after = word in self.right or word in self.both
            if word in self.quotes:
                before = word in is_open or (word == "'" and words[i - 1].endswith("s"))
                after = not before
                is_open -= {word}
                is_open |= {word} if after else set()
            if word in self.between_digits and 0 < i < len(words) - 1:
                before = after = words[i - 1][-1].isdigit() and words[i + 1][0].isdigit()
                before |= word in self.left
            joins[i] |= before
            joins[i + 1] |= after
        return joins

    @functools.cached_property
    def _split(self) -> Callable[[str], tuple[str, ...]]:
        return functools.lru_cache(1 << 16)(lambda joined: tuple(self.split(joined)))


_MARKS = re.compile(r'(["()\[\];!?%$£¥€₱#…]|:(?!//)|,(?![\d<])|(?<![\d>]),)')
_NUMBER_MARKS = re.compile(r"(?<=[\d>])([.,])(?=[\d<])")
_HYPHENS = re.compile(r"(?<=[\w>])-(?=[\w<])")
_DASHES = re.compile(r"(?<=\d)([–⁄])(?=\d)")
_SLASHES = re.compile(r"(?<=.)/(?=.)")
_DEGREES = re.compile(r"(?<=.)([°′″])")
_APOSTROPHES = re.compile(r"(?<=[\w>])'(?=\w)|'")
_DOTS = re.compile(r"(.*[^.])(\.\.\.|\.)", re.DOTALL)
_INITIALS = re.compile(r"(?:[A-Za-z]\.)+")
_ABBREVIATIONS = re.compile(
    r"(?:Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Col|Lt|Maj|Capt|Sgt|Sen|Rep|Gov|St|Jr|Sr|No|Nos|vs|var|Inc|Co|Corp|Ltd|Bros|pp|al|"
    r"Jan|Feb|Aug|Sept|Oct|Nov|Dec)\."
)


def _split_wikitext(joined: str) -> list[str]:
    apart = _NUMBER_MARKS.sub(r" @\1@ ", _MARKS.sub(r" \1 ", joined))
    apart = _SLASHES.sub(" / ", _HYPHENS.sub(" @-@ ", apart))
    apart = _DEGREES.sub(r" \1 ", _DASHES.sub(r" \1 ", apart))
    return _split_words(_APOSTROPHES.sub(_apostrophe, apart))


def _split_news(joined: str) -> list[str]:
    return _split_words(_APOSTROPHES.sub(_apostrophe, _MARKS.sub(r" \1 ", joined)))


def _split_words(apart: str) -> list[str]:
    """Split at blanks, and a sentence's last dot from its word."""
    words: list[str] = []
    for word in filter(None, apart.split(" ")):
        dots = _DOTS.fullmatch(word)
        is_one = dots is None or _ABBREVIATIONS.fullmatch(word) or (dots[2] == "." and _INITIALS.fullmatch(word))
        words += [word] if dots is None or is_one else dots.groups()
    return words


def _apostrophe(found: re.Match[str]) -> str:
    before, after = found.string[: found.start()][-1:], found.string[found.end() :][:1]
    return " '" if re.match(r"[\w>]\w", before + after) else " ' "


_PTB_ENDING = re.compile(r"n't|'(?:s|re|ve|ll|d|m)?", re.IGNORECASE)
_PTB_WORD = re.compile(r"(.*\w|.*[.>])(n't|'(?:s|re|ve|ll|d|m)?)", re.IGNORECASE)
_PTB_QUOTE = re.compile(r'(^|[(`])"')


def _split_ptb(joined: str) -> list[str]:
    currency = [joined[0]] if joined[:1] in ("$", "#") and len(joined) > 1 else []
    return currency + _split_contraction(joined[len(currency) :].replace("/", "\\/"))


def _split_treebank(joined: str) -> list[str]:
    apart = _PTB_QUOTE.sub(r"\1 `` ", joined).replace('"', " '' ").replace("`` ``", "``")
    apart = re.sub(r"(?<!`)`(?!`)", " ` ", apart)
    apart = re.sub(r"([;:!?%$#]|,(?!\d)|(?<!\d),)", r" \1 ", apart.replace("/", "\\/"))
    apart = apart.replace("(", " -LRB- ").replace(")", " -RRB- ")
    return [part for word in _split_words(apart) for part in _split_contraction(word)]


def _split_contraction(word: str) -> list[str]:
    found = _PTB_WORD.fullmatch(word)
    return [word] if found is None else [found[1], found[2]]


_CLOSING = frozenset((*")],.;:!?%", "..."))
_OPENING = frozenset("([$£¥€₱#")
_APOSTROPHE_WORD = re.compile(r"'\w+")

WIKITEXT = Detokenizer(
    name="wikitext",
    margin=" ",
    split=_split_wikitext,
    ending=_APOSTROPHE_WORD,
    left=_CLOSING | {"°", "′", "″"},
    right=_OPENING,
    both=frozenset(("@-@", "@,@", "@.@", "/")),
    between_digits=frozenset((":", "–", "⁄")),
    quotes=frozenset("\"'"),
    rewritten=(("@-@", "-"), ("@,@", ","), ("@.@", ".")),
)
PTB = Detokenizer(
    name="ptb", margin=" ", split=_split_ptb, ending=_PTB_ENDING, right=frozenset("$#"), rewritten=(("\\/", "/"),)
)
TREEBANK = Detokenizer(
    name="treebank",
    margin="",
    split=_split_treebank,
    ending=_PTB_ENDING,
    left=_CLOSING | {"''", "-RRB-"},
    right=_OPENING | {"``", "`", "-LRB-"},
    rewritten=(("\\/", "/"), ("``", '"'), ("''", '"'), ("-LRB-", "("), ("-RRB-", ")")),
)
NEWS = Detokenizer(
    name="news",
    margin="",
    split=_split_news,
    ending=_APOSTROPHE_WORD,
    left=_CLOSING,
    right=_OPENING,
    between_digits=frozenset(":"),
    quotes=frozenset("\"'"),
)
