"""Every rule's value for one text, without early exit: one row of `signals/`. This is the readable twin of
`clean/native/signals/`; the two return equal values for every text, to the last bit.

The rules are those of Gopher (Rae et al. 2021, Tables A1 and A2), C4 (Raffel et al. 2020, §2.2) and FineWeb (Penedo et
al. 2024, §3.6). They count as FineWeb's code does, so decisions are equal if words and sentences are split equally.
Ratios are in [0, 1], except `hash_word_ratio`, `ellipsis_word_ratio` and `newline_word_ratio`, and 0 if the divisor is
0.

A letter of a script without spaces is a unit that weighs part of a word (`clean/text/unspaced.py`). Word counts add up
weights, and an n-gram consists of units that weigh n words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from reference.words import ngrams, weight_of

from webtext.base.parts.schemas import DUPLICATE_NGRAM_SIZES, TOP_NGRAM_SIZES
from webtext.clean.rules.characters import ATTACHED, LETTER, LINE_ENDS, OPEN_SENTENCES, PUNCTUATION, SYMBOLS, class_of
from webtext.clean.text.unspaced import SCRIPTS, WORD, ranges

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))  # Gopher, §A1.1
BULLETS = ("•", "-")
ELLIPSES = ("...", "…")
MAX_SHORT_LINE = 30  # FineWeb: characters
SPACED_WORD = 6  # characters: an English word has about five letters, plus a blank
MAX_C4_WORD = 1000
MIN_C4_LINE_WORDS = 3
C4_PUNCTUATION = (".", "?", "!", '"', "'")
UNSPACED_QUOTES = "」』"
MIN_PROSE_WORDS, MIN_SENTENCE_WORDS, MIN_PLAIN_TENTHS = 6, 4, 7
CELL = "|"
JOINERS = "'-‐’"
POLICY_PHRASES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def _class_of(code_points: Iterable[range]) -> str:
    return "".join(f"{chr(each[0])}-{chr(each[-1])}" for each in code_points)


_SYMBOLS = "".join(SYMBOLS)
_SYMBOL = "".join(map(re.escape, sorted(SYMBOLS)))
_WORD = re.compile(rf"(?P<word>[^\s{_SYMBOL}](?:\S*[^\s{_SYMBOL}])?)|(?P<symbol>\S)(?P=symbol)*")
_LETTERS = _class_of(each for script in SCRIPTS for each in script.letters)
_UNSPACED = re.compile(f"([{_LETTERS}])")
_SENTENCE_END = re.compile(
    r"[.!?][\"')\]”’」』）]*(?=\s|$)|[。！？។៕။][\"')\]”’」』）]*"
    rf"|[{_class_of(ranges(OPEN_SENTENCES))}](?=\s|$)"
)
_CITATION = re.compile(r"\[[0-9]*\]|\[edit\]|\[citation needed\]")
_PARAGRAPH_BREAK = re.compile(r"\n{2,}")
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def signals_of(text: str) -> dict[str, float | int | None]:
    """Return the value of every rule for a text, keyed by the columns of the 'signals' schema.

    >>> signals = signals_of("The cat sat.\\nThe cat sat.\\n- and #then...")
    >>> signals["n_words"], round(signals["duplicate_line_ratio"], 2), signals["n_stop_words"]
    (8, 0.33, 1)
    """
    words = list(cut(text))
    lines = [line for line in text.split("\n") if line.strip()]
    return (
        _word_signals(text, words)
        | _line_signals(text, lines, _weight(words))
        | _duplicate_signals(text, lines)
        | _ngram_signals(text, words)
        | _c4_signals(lines)
    )


class Word(NamedTuple):
    """A word, or a letter of a script without spaces with the marks that follow it."""

    text: str
    weight: int = WORD
    is_symbol: bool = False

    @property
    def is_unspaced(self) -> bool:
        """Whether this is a letter of a script without spaces."""
        return self.weight < WORD


def words_of(text: str) -> list[str]:
    """Split a text at blanks, and split off the symbols at both ends of each word; a run of one symbol is one word.

    >>> words_of('"Don\\'t ask (well-known)..." -- he')
    ['"', "Don't", 'ask', '(', 'well-known', ')', '...', '"', '--', 'he']
    >>> words_of("「GPT-2」とは。")
    ['「', 'GPT-2', '」', 'と', 'は', '。']
    """
    return [word.text for word in cut(text)]


def cut(text: str) -> Iterator[Word]:
    """Yield the words of a text with their weights."""
    for run in text.split():
        if _UNSPACED.search(run):
            yield from _cut_unspaced(run)
        else:
            yield from (Word(match[0], is_symbol=match[0][0] in SYMBOLS) for match in _WORD.finditer(run))


def _cut_unspaced(run: str) -> Iterator[Word]:
    """Yield each letter of a script without spaces as a word; between them, symbols are split off at both ends."""
    first, *others = _UNSPACED.split(run)
    yield from _cut_stretch(first)
    for letter, stretch in zip(others[::2], others[1::2], strict=True):
        marks = "".join(takewhile(lambda character: class_of(character) & ATTACHED, stretch))
        yield Word(letter + marks, weight_of(letter))
        yield from _cut_stretch(stretch[len(marks) :])


def _cut_stretch(stretch: str) -> Iterator[Word]:
    places = [
        i for i, character in enumerate(stretch) if not (character in SYMBOLS or class_of(character) & PUNCTUATION)
    ]
    start, end = (places[0], places[-1] + 1) if places else (len(stretch), len(stretch))
    yield from (Word("".join(run), is_symbol=True) for _, run in groupby(stretch[:start]))
    if start < end:
        yield Word(stretch[start:end])
    yield from (Word("".join(run), is_symbol=True) for _, run in groupby(stretch[end:]))


def n_sentences_of(line: str) -> int:
    """Count the sentences in a line: its sentence ends, plus one if any text follows the last.

    >>> n_sentences_of('He left. "Why?" No 3.5 answer'), n_sentences_of("他来了。她也来了。")
    (3, 2)
    """
    n_ends, rest = _sentence_ends(line)
    return n_ends + bool(rest)


def _sentence_ends(line: str) -> tuple[int, str]:
    """Return the number of sentence ends in a line, and the text after the last."""
    ends = [match.end() for match in _SENTENCE_END.finditer(line)]
    return len(ends), line[ends[-1] if ends else 0 :].strip()


def is_prose(line: str) -> bool:
    """Return whether a line reads as running text: enough words, most of them plain, no cells of a table.

    >>> is_prose("He never came back (so they say) from sea"), is_prose("He left."), is_prose("He never came back.")
    (True, False, True)
    >>> is_prose("av_log() : log.h, av_log_default : log.c, opt.h"), is_prose("void | he never came back from sea.")
    (False, False)
    """
    weight = plain = 0
    for run in line.split():
        if run == CELL:
            return False
        if _UNSPACED.search(run):
            letters = _weight(word for word in _cut_unspaced(run) if not word.is_symbol)
            weight, plain = weight + letters, plain + letters
        else:
            weight, plain = weight + WORD, plain + WORD * _is_plain(run.strip(_SYMBOLS))
    n_ends, rest = _sentence_ends(line)
    fewest = MIN_SENTENCE_WORDS if n_ends and not rest else MIN_PROSE_WORDS
    return weight >= fewest * WORD and 10 * plain >= MIN_PLAIN_TENTHS * weight


def _is_plain(word: str) -> bool:
    return bool(word) and all(character in JOINERS or class_of(character) & (LETTER | ATTACHED) for character in word)


def _word_signals(text: str, words: Sequence[Word]) -> dict[str, float | int | None]:
    """Word length and stop words are None if most words are unspaced: these rules are about spaced (English) words."""
    spaced = [word.text for word in words if not word.is_symbol and not word.is_unspaced]
    unspaced = _weight(word for word in words if word.is_unspaced)
    is_unspaced = unspaced > len(spaced) * WORD
    with_letter = (word for word in words if any(class_of(character) & LETTER for character in word.text))
    n_ellipses = sum(text.count(ellipsis) for ellipsis in ELLIPSES)
    return {
        "n_characters": len(text),
        "n_words": len(spaced) + unspaced // WORD,
        "mean_word_length": None if is_unspaced else _ratio(sum(map(len, spaced)), len(spaced)),
        "hash_word_ratio": _ratio(text.count("#") * WORD, _weight(words)),
        "ellipsis_word_ratio": _ratio(n_ellipses * WORD, _weight(words)),
        "alphabetic_word_ratio": _ratio(_weight(with_letter), _weight(words)),
        "n_stop_words": None if is_unspaced else len(STOP_WORDS.intersection(spaced)),
    }


def _weight(words: Iterable[Word]) -> int:
    return sum(word.weight for word in words)


def _line_length(line: str) -> int:
    """Return the length in thousandths of a character; an unspaced letter counts as its part of a spaced word."""
    letters = [word for word in cut(line) if word.is_unspaced] if _UNSPACED.search(line) else []
    return (len(line) - sum(len(word.text) for word in letters)) * WORD + _weight(letters) * SPACED_WORD


def _line_signals(text: str, lines: Sequence[str], weight: int) -> dict[str, float | int | None]:
    """Divide Gopher's bullets and ellipses by all lines, including empty ones; FineWeb's rules skip empty lines."""
    n_newlines = text.count("\n")
    return {
        "bullet_line_ratio": _ratio(sum(line.lstrip().startswith(BULLETS) for line in lines), n_newlines + 1),
        "ellipsis_line_ratio": _ratio(sum(line.rstrip().endswith(ELLIPSES) for line in lines), n_newlines + 1),
        "punctuated_line_ratio": _ratio(sum(line[-1] in LINE_ENDS for line in lines), len(lines)),
        "short_line_ratio": _ratio(sum(_line_length(line) <= MAX_SHORT_LINE * WORD for line in lines), len(lines)),
        "prose_character_ratio": _ratio(sum(len(line) for line in lines if is_prose(line)), len(text) - n_newlines),
        "newline_word_ratio": _ratio(n_newlines * WORD, weight),
    }


def _duplicate_signals(text: str, lines: Sequence[str]) -> dict[str, float | int | None]:
    paragraphs = _PARAGRAPH_BREAK.split(text.strip())
    n_lines, line_characters = _duplicates(lines)
    n_paragraphs, paragraph_characters = _duplicates(paragraphs)
    return {
        "duplicate_line_ratio": _ratio(n_lines, len(lines)),
        "duplicate_line_character_ratio": _ratio(line_characters, len(text)),
        "duplicate_character_ratio": _ratio(line_characters, len(text) - text.count("\n")),
        "duplicate_paragraph_ratio": _ratio(n_paragraphs, len(paragraphs)),
        "duplicate_paragraph_character_ratio": _ratio(paragraph_characters, len(text)),
    }


def _ngram_signals(text: str, words: Sequence[Word]) -> dict[str, float | int | None]:
    top: dict[str, float | int | None] = {
        f"top_{n}gram_character_ratio": min(1.0, _ratio(_top_ngram_characters(words, n), len(text)))
        for n in TOP_NGRAM_SIZES
    }
    return top | {
        f"duplicate_{n}gram_character_ratio": _ratio(_duplicate_ngram_characters(words, n), len(text))
        for n in DUPLICATE_NGRAM_SIZES
    }


def _c4_signals(lines: Sequence[str]) -> dict[str, float | int | None]:
    """Count what C4's document rules check. C4 also removes lines from the text; here all lines are kept.

    Counted twice: in lines of three words or more, as in FineWeb's C4 filter, and only in those that end in
    punctuation, as in C4.
    """
    counted = dict.fromkeys(("lorem_ipsum_lines", "curly_brace_lines", "sentences"), 0)
    punctuated = dict(counted)
    for line in map(str.strip, lines):
        if not _is_c4_line(line):
            continue
        line = _CITATION.sub("", line)
        ends_well = line.endswith(C4_PUNCTUATION) and not line.endswith("...")
        if _UNSPACED.search(line):
            ends_well |= line[-1] in LINE_ENDS and not line.endswith("...") or line[-1] in UNSPACED_QUOTES
        for counts in (counted, punctuated) if ends_well else (counted,):
            _count_c4_line(line, counts)
    values: dict[str, float | int | None] = {f"n_{name}": n for name, n in counted.items()}
    return values | {f"n_punctuated_{name}": n for name, n in punctuated.items()}


def _is_c4_line(line: str) -> bool:
    """Return whether C4 keeps a line. Blanks separate words; runs with unspaced letters are cut, symbols ignored."""
    weight = longest = 0
    for run in line.split():
        words = [word for word in _cut_unspaced(run) if not word.is_symbol] if _UNSPACED.search(run) else [Word(run)]
        weight += _weight(words)
        longest = max(longest, *(len(word.text) for word in words if not word.is_unspaced), 0)
    return weight >= MIN_C4_LINE_WORDS * WORD and longest <= MAX_C4_WORD


def _count_c4_line(line: str, counts: dict[str, int]) -> None:
    lower = line.translate(_LOWER)
    counts["lorem_ipsum_lines"] += "lorem ipsum" in lower
    if "javascript" not in lower:
        counts["curly_brace_lines"] += "{" in lower
        if not any(phrase in lower for phrase in POLICY_PHRASES):
            counts["sentences"] += n_sentences_of(line)


def _duplicates(pieces: Sequence[str]) -> tuple[int, int]:
    """Return the number of repeated pieces and of their characters."""
    seen: set[str] = set()
    n_duplicates = n_characters = 0
    for piece in pieces:
        if piece in seen:
            n_duplicates += 1
            n_characters += len(piece)
        else:
            seen.add(piece)
    return n_duplicates, n_characters


def _top_ngram_characters(words: Sequence[Word], n: int) -> int:
    """Count the characters of all occurrences of the most frequent n-gram (the first of several), blanks included."""
    counts = Counter(gram for _, gram in _ngrams(words, n))
    if not counts:
        return 0
    gram, most = max(counts.items(), key=lambda item: item[1])
    return most * (sum(map(len, gram)) + sum(weight_of(word) == WORD for word in gram[:-1]))


def _duplicate_ngram_characters(words: Sequence[Word], n: int) -> int:
    """Count the characters of repeated n-grams, without overlap, from left to right."""
    seen: set[tuple[str, ...]] = set()
    n_characters = next_start = 0
    for start, gram in _ngrams(words, n):
        if start < next_start:
            continue
        if gram in seen:
            n_characters += sum(map(len, gram))
            next_start = start + len(gram)
        else:
            seen.add(gram)
    return n_characters


def _ngrams(words: Sequence[Word], n: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each n-gram's start and words."""
    texts = [word.text for word in words]
    return ((start, tuple(texts[start:end])) for start, end in ngrams([word.weight for word in words], n))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
