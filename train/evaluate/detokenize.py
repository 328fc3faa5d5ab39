"""De-tokenizers that lose nothing: tokenised text as it is usually written, and back, byte for byte.

Evaluation sets come as words with a blank around each, punctuation and parts of words too (`Teddy 's "`, `two @-@ part`),
which no model of running text has seen. Radford et al. (2019, section 3.1) take such artefacts back by "invertible
de-tokenizers", so that the text's probability is still that of the original, and report perplexities 2.5 to 5 lower.

Two words are joined where the set's rules say so *and* the inverse takes them apart again as they were; elsewhere the
blank stays. A word that the inverse would take apart although it was one, or would rewrite, follows a second blank and
is left as it is. So every line of words is restored, whatever it says and however good the rules are:

>>> text = WIKITEXT.detokenize(' He \\'s in a " two @-@ part " show . \\n \\n')
>>> text
'He\\'s in a "two-part" show.\\n\\n'
>>> WIKITEXT.tokenize(text)
' He \\'s in a " two @-@ part " show . \\n \\n'
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from webtext.base.errors import InputError

LONGEST_RUN = 32
"""Words that are tried as one; it bounds the work on a line of nothing but brackets."""


@dataclass(frozen=True)
class Detokenizer:
    """The rules of one tokenised form.

    `margin` stands at both ends of a line of words; a line without words is one margin. `rewritten` are pairs (in words,
    in text). `left`, `right` and `both` are words that join the one before, the one after, or both; `between_digits`
    joins both where digits stand around it, `quotes` what it opens or closes; `ending` matches words that join the one
    before. `split` takes joined words apart.
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
        """The text as it is usually written; InputError when a line is not words with one blank between two."""
        lines = text.split("\n")
        last = lines.pop()  # what follows the last newline is a line where there is something
        if last and last == self.margin:
            raise InputError(f"the text ends inside a line of {self.name}", "end it with a newline")
        joined = [self._join(line, number) for number, line in enumerate(lines, 1)]
        return "\n".join([*joined, last and self._join(last, len(lines) + 1)])

    def tokenize(self, text: str) -> str:
        """What `detokenize` made `text` of."""
        *lines, last = text.split("\n")
        return "\n".join([*map(self._take_apart, lines), last and self._take_apart(last)])

    def _join(self, line: str, number: int) -> str:
        if line == self.margin:
            return ""
        words = line.removeprefix(self.margin).removesuffix(self.margin).split(" ")
        if line != f"{self.margin}{' '.join(words)}{self.margin}" or not all(words):
            raise InputError(
                f"line {number:,} is not tokenised as {self.name} is: {line[:60]!r}",
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
        """The words as one, or None where `split` would not give them back."""
        joined = "".join(words)
        if any(inside in joined for inside, _ in self.rewritten):
            joined = "".join(functools.reduce(lambda word, pair: word.replace(*pair), self.rewritten, w) for w in words)
        return joined if self._split(joined) == tuple(words) else None

    def _joins(self, words: list[str]) -> list[bool]:
        """For each word, and one past the last, whether it would join the one before."""
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

    def _take_apart(self, line: str) -> str:
        if not line:
            return self.margin
        words: list[str] = []
        is_word = False
        for part in line.split(" "):
            if part:
                words += [part] if is_word else self._split(part)
            is_word = not part
        return f"{self.margin}{' '.join(words)}{self.margin}"

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
    """At blanks, and a sentence's last dot from its word."""
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
    name="ptb",
    margin=" ",
    split=_split_ptb,
    ending=_PTB_ENDING,
    right=frozenset("$#"),
    rewritten=(("\\/", "/"),),
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
