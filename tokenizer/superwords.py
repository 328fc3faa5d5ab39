r"""Superwords: tokens that reach over the blank between words, such as " of the".

First ordinary BPE inside pieces. Then its tokens are kept, and merging goes on in *runs*: words in a row, each of which is
one token by now, a word being a piece of letters with at most one leading blank, or a contraction ('s, 't, ...). This is
the second phase of Schmidt et al. 2026, "Faster Superword Tokenization" (arXiv:2604.05192), which learns what BoundlessBPE
(arXiv:2504.00178) does from counts of distinct runs instead of whole documents; the most frequent pair merges, the
smallest among equals, as ever. No run holds digits, punctuation or line ends, or crosses the end of a text.

Encoding is plain BPE over the pieces of another pattern, "gpt2-superwords", in which a row of words is one piece. As no
ordinary merge reaches over the border of two words, all of them are done before the first superword, as in training. So
the tokenizer is SuperBPE's kind (Liu et al. 2025, arXiv:2503.13423, section 2): HF tokenizers and tiktoken apply it with
equal ids. BoundlessBPE itself merges two pieces only when each is one token as a whole; no file of theirs can say that.
Here " of" and " the" merge also before a rest of a word (" of the|nce"), which is rare because such words are.

Texts are read three times or more: for the pieces, for the pairs of words, and for the runs, which are cut where no
superword can be (native/superwords.hpp). The result is that of counting all runs as they are. Where a corpus has more
than 16.8 million distinct pairs of words the seldom ones are forgotten, and no superword is learned whose count could
have lost by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from webtext.base.errors import ConfigError
from webtext.tokenizer import _trainer
from webtext.tokenizer.counts import PieceCounts, batches
from webtext.tokenizer.patterns import GPT2, SUPERWORDS, UNICODE_VERSION
from webtext.tokenizer.text import Text, checked_texts, encodable
from webtext.tokenizer.training import tokens_of
from webtext.tokenizer.vocabulary import Vocabulary, special_ids

Read = Callable[[], Iterable[tuple[Sequence[Text], int]]]
"""Reads the texts from the start, in batches of some megabytes, each with how often it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Which superwords are learned, and by how many threads."""

    min_frequency: int
    max_token_length: int | None
    threads: int


_PAIRS_PER_SUPERWORD = 2  # a first guess: superwords occur as often as the (2 * n)-th most frequent pair of words
_LOWER = 4  # the guess is divided by this until it is right


def check_request(superwords: int | str, pattern: str, unicode_version: str) -> None:
    """ConfigError for superwords that cannot be learned."""
    if pattern != GPT2:
        raise ConfigError(f"superwords join pieces of the pattern 'gpt2', not of {pattern!r}", "leave out one of both")
    if unicode_version != UNICODE_VERSION:
        raise ConfigError(f"superwords are learned by Unicode {UNICODE_VERSION} only", "leave out unicode_version")


def reader(texts: Iterable[Text]) -> Read:
    """Reads texts that can be read several times; ConfigError for others."""
    if iter(checked_texts(texts)) is texts:
        raise ConfigError("superwords need texts that can be read several times", "give a list, not an iterator")
    return lambda: ((batch, 1) for batch in batches(texts))


def learn(
    ordinary: Callable[[int], Vocabulary],
    vocab_size: int,
    superwords: int | Literal["auto"],
    counts: PieceCounts,
    read: Read,
    goal: Goal,
) -> Vocabulary:
    """A vocabulary of `vocab_size` tokens of which `superwords` are superwords; `ordinary` learns one of a size from `counts`."""
    n_superwords = natural_number(ordinary(vocab_size), counts, read, goal) if superwords == "auto" else superwords
    return add_superwords(ordinary(vocab_size - n_superwords), read, n_superwords, goal)


def natural_number(base: Vocabulary, counts: PieceCounts, read: Read, goal: Goal) -> int:
    """How many of as many tokens as `base` has are superwords when the more frequent merge always comes first.

    That is BoundlessBPE's order, in which merges within words and over words compete (arXiv:2604.05192, two-phase
    BoundlessBPE). A word is one token by the merges that come before its superwords: its last merge occurs as often as
    the word at least, and a superword of it no more often; among equals the ordinary merge comes first. So learning this
    number of superwords after the other merges gives the same vocabulary. `counts` are those that `base` is learned from.
    """
    ordinary = counts.merge_counts(len(base.tokens), goal.min_frequency, goal.max_token_length)
    if not ordinary:
        return 0
    words = _count_pairs(base, read, goal.threads)
    runs = _count_runs(words, read, goal.threads, ordinary[-1])
    least = ordinary[-1] + words.error
    over = words.merge_counts(runs, list(base.tokens), 2 * len(base.tokens), least, goal.max_token_length)
    n_superwords = n_ordinary = 0
    while n_superwords + n_ordinary < len(ordinary):
        if n_superwords < len(over) and over[n_superwords] > ordinary[n_ordinary]:
            n_superwords += 1
        else:
            n_ordinary += 1
    return n_superwords


def add_superwords(base: Vocabulary, read: Read, superwords: int, goal: Goal) -> Vocabulary:
    """The vocabulary of `base` with `superwords` tokens more, fewer when none is left that occurs `min_frequency` times."""
    assert base.merges is not None
    words = _count_pairs(base, read, goal.threads)
    n_tokens = len(base.tokens) + superwords
    min_count = words.count_of_nth_pair(_PAIRS_PER_SUPERWORD * superwords)
    while True:
        min_count = max(min_count, goal.min_frequency)
        runs = _count_runs(words, read, goal.threads, min_count)
        found = words.train(runs, list(base.tokens), n_tokens, min_count + words.error, goal.max_token_length)
        merges = [*base.merges, *found]
        tokens = tokens_of(merges)
        if len(tokens) == n_tokens or min_count == goal.min_frequency:
            specials = special_ids(base.special_tokens.keys(), first=len(tokens))
            return Vocabulary(tokens=tokens, merges=merges, pattern=SUPERWORDS, special_tokens=specials)
        min_count //= _LOWER


def _count_pairs(base: Vocabulary, read: Read, threads: int) -> _trainer.SuperwordCounts:
    """The words that are one token, and how often two stand in a row."""
    encoder = base.native()
    whole = [token if encoder.encode(token) == [id_] else b"" for id_, token in enumerate(base.tokens)]
    words = _trainer.SuperwordCounts(whole)
    for batch, weight in read():
        words.count_pairs(list(map(encodable, batch)), weight, threads)
    return words


def _count_runs(words: _trainer.SuperwordCounts, read: Read, threads: int, min_count: int) -> _trainer.PieceCounts:
    """Runs of words, cut where two stand in a row less than `min_count` times."""
    runs = _trainer.PieceCounts()
    for batch, weight in read():
        words.count_runs(list(map(encodable, batch)), weight, threads, min_count, runs)
    return runs
