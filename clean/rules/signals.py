"""Every rule's value for one text, without early exit: what `signals/` holds, row for row with documents. The readable
twin of `clean/native/signals.cpp`: equal for every text, to the last bit.

After Gopher (Rae et al. 2021, Tables A1 and A2), C4 (Raffel et al. 2020, §2.2) and FineWeb (Penedo et al. 2024, §3.6),
counted as FineWeb's code counts, so that its decisions are ours wherever words and sentences are cut alike. Ratios lie in
[0, 1] except `hash_word_ratio`, `ellipsis_word_ratio` and `newline_word_ratio`, and are 0 where there is nothing to
divide by.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from webtext.base.schemas import DUPLICATE_NGRAM_SIZES, TOP_NGRAM_SIZES
from webtext.clean.rules.characters import SYMBOLS, TERMINAL_PUNCTUATION

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))  # Gopher, §A1.1
BULLETS = ("•", "-")
ELLIPSES = ("...", "…")
MAX_SHORT_LINE = 30  # FineWeb: characters
MAX_C4_WORD = 1000
MIN_C4_LINE_WORDS = 3
C4_PUNCTUATION = (".", "?", "!", '"', "'")
POLICY_PHRASES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")

_SYMBOL = "".join(map(re.escape, sorted(SYMBOLS)))
_WORD = re.compile(rf"(?P<word>[^\s{_SYMBOL}](?:\S*[^\s{_SYMBOL}])?)|(?P<symbol>\S)(?P=symbol)*")
_SENTENCE_END = re.compile(r"[.!?][\"')\]”’」』）]*(?=\s|$)|[。！？][\"')\]”’」』）]*")
_CITATION = re.compile(r"\[[0-9]*\]|\[edit\]|\[citation needed\]")
_PARAGRAPH_BREAK = re.compile(r"\n{2,}")
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def signals_of(text: str) -> dict[str, float | int]:
    """The value of every rule for a text, keyed by the columns of the 'signals' schema.

    >>> signals = signals_of("The cat sat.\\nThe cat sat.\\n- and #then...")
    >>> signals["n_words"], round(signals["duplicate_line_ratio"], 2), signals["n_stop_words"]
    (8, 0.33, 1)
    """
    words = words_of(text)
    lines = [line for line in text.split("\n") if line.strip()]
    return (
        _word_signals(text, words)
        | _line_signals(text, lines, len(words))
        | _duplicate_signals(text, lines)
        | _ngram_signals(text, words)
        | _c4_signals(lines)
    )


def words_of(text: str) -> list[str]:
    """What stands between blanks, with the symbols at both ends split off; a run of one symbol is one word.

    >>> words_of('"Don\\'t ask (well-known)..." -- he')
    ['"', "Don't", 'ask', '(', 'well-known', ')', '...', '"', '--', 'he']
    """
    return [match[0] for match in _WORD.finditer(text)]


def n_sentences_of(line: str) -> int:
    """Sentences in a line: its sentence ends, and one more when something follows the last.

    >>> n_sentences_of('He left. "Why?" No 3.5 answer'), n_sentences_of("他来了。她也来了。")
    (3, 2)
    """
    ends = [match.end() for match in _SENTENCE_END.finditer(line)]
    return len(ends) + bool(line[ends[-1] if ends else 0 :].strip())


def _word_signals(text: str, words: Sequence[str]) -> dict[str, float | int]:
    named = [word for word in words if word[0] not in SYMBOLS]
    return {
        "n_characters": len(text),
        "n_words": len(named),
        "mean_word_length": _ratio(sum(map(len, named)), len(named)),
        "hash_word_ratio": _ratio(text.count("#"), len(words)),
        "ellipsis_word_ratio": _ratio(sum(text.count(ellipsis) for ellipsis in ELLIPSES), len(words)),
        "alphabetic_word_ratio": _ratio(sum(any(map(str.isalpha, word)) for word in words), len(words)),
        "n_stop_words": len(STOP_WORDS.intersection(words)),
    }


def _line_signals(text: str, lines: Sequence[str], n_words: int) -> dict[str, float | int]:
    """Gopher's bullets and ellipses are held against all lines, empty ones too; FineWeb's rules against the others."""
    n_newlines = text.count("\n")
    return {
        "bullet_line_ratio": _ratio(sum(line.lstrip().startswith(BULLETS) for line in lines), n_newlines + 1),
        "ellipsis_line_ratio": _ratio(sum(line.rstrip().endswith(ELLIPSES) for line in lines), n_newlines + 1),
        "punctuated_line_ratio": _ratio(sum(line[-1] in TERMINAL_PUNCTUATION for line in lines), len(lines)),
        "short_line_ratio": _ratio(sum(len(line) <= MAX_SHORT_LINE for line in lines), len(lines)),
        "newline_word_ratio": _ratio(n_newlines, n_words),
    }


def _duplicate_signals(text: str, lines: Sequence[str]) -> dict[str, float | int]:
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


def _ngram_signals(text: str, words: Sequence[str]) -> dict[str, float | int]:
    top = {
        f"top_{n}gram_character_ratio": min(1.0, _ratio(_top_ngram_characters(words, n), len(text)))
        for n in TOP_NGRAM_SIZES
    }
    return top | {
        f"duplicate_{n}gram_character_ratio": _ratio(_duplicate_ngram_characters(words, n), len(text))
        for n in DUPLICATE_NGRAM_SIZES
    }


def _c4_signals(lines: Sequence[str]) -> dict[str, float | int]:
    """C4 drops lines and judges what is left; here the lines stay and only the judgement is taken.

    Counted twice: in lines of three words and more, as FineWeb runs C4, and in those that end in punctuation, as C4 does.
    """
    counted = dict.fromkeys(("lorem_ipsum_lines", "curly_brace_lines", "sentences"), 0)
    punctuated = dict(counted)
    for line in map(str.strip, lines):
        words = line.split()
        if len(words) < MIN_C4_LINE_WORDS or max(map(len, words)) > MAX_C4_WORD:
            continue
        line = _CITATION.sub("", line)
        ends_well = line.endswith(C4_PUNCTUATION) and not line.endswith("...")
        for counts in (counted, punctuated) if ends_well else (counted,):
            _count_c4_line(line, counts)
    values: dict[str, float | int] = {f"n_{name}": n for name, n in counted.items()}
    return values | {f"n_punctuated_{name}": n for name, n in punctuated.items()}


def _count_c4_line(line: str, counts: dict[str, int]) -> None:
    lower = line.translate(_LOWER)
    counts["lorem_ipsum_lines"] += "lorem ipsum" in lower
    if "javascript" not in lower:
        counts["curly_brace_lines"] += "{" in lower
        if not any(phrase in lower for phrase in POLICY_PHRASES):
            counts["sentences"] += n_sentences_of(line)


def _duplicates(pieces: Sequence[str]) -> tuple[int, int]:
    """How many pieces were there before, and their characters."""
    seen: set[str] = set()
    n_duplicates = n_characters = 0
    for piece in pieces:
        if piece in seen:
            n_duplicates += 1
            n_characters += len(piece)
        else:
            seen.add(piece)
    return n_duplicates, n_characters


def _top_ngram_characters(words: Sequence[str], n: int) -> int:
    """Characters in all occurrences of the most frequent n-gram (of several the first), with blanks between words."""
    counts = Counter(zip(*(words[i:] for i in range(n)), strict=False))
    if not counts:
        return 0
    gram, most = max(counts.items(), key=lambda item: item[1])
    return most * len(" ".join(gram))


def _duplicate_ngram_characters(words: Sequence[str], n: int) -> int:
    """Characters of n-grams that occurred before, counted without overlap, left to right."""
    seen: set[tuple[str, ...]] = set()
    n_characters, i = 0, 0
    while i <= len(words) - n:
        gram = tuple(words[i : i + n])
        if gram in seen:
            n_characters += sum(map(len, gram))
            i += n
        else:
            seen.add(gram)
            i += 1
    return n_characters


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
