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
from dataclasses import dataclass

from webtext.base.errors import InputError

LONGEST_RUN = 32
"""Words that are tried as one. The limit bounds the work on a line of nothing but brackets."""
Rules = tuple[tuple[str, str], ...]
"""Patterns and their replacements."""


@dataclass(frozen=True)
class Detokenizer:
    """The rules of one tokenised form.

    `margin` is at both ends of a line of words; a line without words is one margin. `rewritten` has pairs (in words, in
    text). Words in `left` join the word before, words in `right` the word after, and words in `between_digits` both if
    there are digits around them; `quotes` join what they open or close; `ending` matches words that join the word
    before. `apart`, applied in order, puts the blanks between joined words again.
    """

    name: str
    margin: str
    apart: Rules
    ending: str
    left: frozenset[str] = frozenset()
    right: frozenset[str] = frozenset()
    between_digits: frozenset[str] = frozenset()
    quotes: frozenset[str] = frozenset()
    rewritten: Rules = ()

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
        written = [functools.reduce(lambda word, pair: word.replace(*pair), self.rewritten, word) for word in words]
        parts: list[str] = []
        start = 0
        while start < len(words):
            end = start + 1
            while end < len(words) and joins[end] and end - start < LONGEST_RUN:
                end += 1
            while end > start and split(joined := "".join(written[start:end]), self.apart) != tuple(words[start:end]):
                end -= 1
            if end == start:  # the inverse would change even this word alone
                joined, end = f" {words[start]}", start + 1
            parts.append(joined)
            start = end
        return " ".join(parts)

    def _joins(self, words: list[str]) -> list[bool]:
        """Return, for each word and one past the last, whether it would join the word before it."""
        joins = [False] * (len(words) + 1)
        is_open: set[str] = set()
        for i, word in enumerate(words):
            before = word in self.left or re.fullmatch(self.ending, word) is not None
            after = word in self.right
            if word in self.quotes:
                before = word in is_open or (word == "'" and words[i - 1].endswith("s"))
                after = not before
                (is_open.add if after else is_open.discard)(word)
            is_within = word in self.between_digits and 0 < i < len(words) - 1
            if is_within and words[i - 1][-1].isdigit() and words[i + 1][0].isdigit():
                before = after = True
            joins[i] |= before
            joins[i + 1] |= after
        return joins


@functools.lru_cache(1 << 16)
def split(joined: str, apart: Rules) -> tuple[str, ...]:
    """Return the words of a text that a form joined, by its rules `apart`."""
    for pattern, replacement in apart:
        joined = re.sub(pattern, replacement, joined)
    return tuple(filter(None, joined.split(" ")))


_MARKS = (r'(["()\[\];!?%$£¥€₱#…]|:(?!//)|,(?![\d<])|(?<![\d>]),)', r" \1 ")
_APOSTROPHES = ((r"(?<![\w>])'|'(?!\w)", " ' "), (r"(?<=[\w>])'", " '"))  # quotes, then endings such as 's
_WITH_DOT = (
    r"(?:Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Col|Lt|Maj|Capt|Sgt|Sen|Rep|Gov|St|Jr|Sr|No|Nos|vs|var|Inc|Co|Corp|Ltd|Bros|pp|al|"
    r"Jan|Feb|Aug|Sept|Oct|Nov|Dec)\.|(?:[A-Za-z]\.)+"
)
# the dot or dots at the end of a word, unless the word has its own
_LAST_DOTS = (rf"(?<![^ ])(?!(?:{_WITH_DOT})(?![^ ]))([^ ]*[^. ])(\.\.\.|\.)(?![^ ])", r"\1 \2")
_PTB_ENDING = r"(?i:n't|'(?:s|re|ve|ll|d|m)?)"
_CONTRACTIONS = (rf"(?<=[\w.>])({_PTB_ENDING})(?![^ ])", r" \1")
_CLOSING = frozenset((*")],.;:!?%", "..."))
_OPENING = frozenset("([$£¥€₱#")
_BETWEEN = frozenset(("@-@", "@,@", "@.@", "/"))

WIKITEXT = Detokenizer(
    name="wikitext",
    margin=" ",
    apart=(
        _MARKS,
        (r"(?<=[\d>])([.,])(?=[\d<])", r" @\1@ "),
        (r"(?<=[\w>])-(?=[\w<])", " @-@ "),
        (r"(?<=.)/(?=.)", " / "),
        (r"(?<=\d)([–⁄])(?=\d)", r" \1 "),
        (r"(?<=.)([°′″])", r" \1 "),
        *_APOSTROPHES,
        _LAST_DOTS,
    ),
    ending=r"'\w+",
    left=_CLOSING | _BETWEEN | {"°", "′", "″"},
    right=_OPENING | _BETWEEN,
    between_digits=frozenset((":", "–", "⁄")),
    quotes=frozenset("\"'"),
    rewritten=(("@-@", "-"), ("@,@", ","), ("@.@", ".")),
)
PTB = Detokenizer(
    name="ptb",
    margin=" ",
    apart=((r"^([$#])(?=.)", r"\1 "), ("/", r"\\/"), _CONTRACTIONS),
    ending=_PTB_ENDING,
    right=frozenset("$#"),
    rewritten=(("\\/", "/"),),
)
TREEBANK = Detokenizer(
    name="treebank",
    margin="",
    apart=(
        (r'(^|[(`])"', r"\1 `` "),
        ('"', " '' "),
        ("`` ``", "``"),
        (r"(?<!`)`(?!`)", " ` "),
        ("/", r"\\/"),
        (r"([;:!?%$#]|,(?!\d)|(?<!\d),)", r" \1 "),
        (r"\(", " -LRB- "),
        (r"\)", " -RRB- "),
        _LAST_DOTS,
        _CONTRACTIONS,
    ),
    ending=_PTB_ENDING,
    left=_CLOSING | {"''", "-RRB-"},
    right=_OPENING | {"``", "`", "-LRB-"},
    rewritten=(("\\/", "/"), ("``", '"'), ("''", '"'), ("-LRB-", "("), ("-RRB-", ")")),
)
NEWS = Detokenizer(
    name="news",
    margin="",
    apart=(_MARKS, *_APOSTROPHES, _LAST_DOTS),
    ending=r"'\w+",
    left=_CLOSING,
    right=_OPENING,
    between_digits=frozenset(":"),
    quotes=frozenset("\"'"),
)
