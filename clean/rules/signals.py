"""Every rule's value for one text, in one pass and without early exit: what `signals/` holds, row for row with documents.

After Gopher (Rae et al. 2021, Tables A1 and A2), C4 (Raffel et al. 2020, §2.2) and FineWeb (Penedo et al. 2024, §3.6).
A word is a run of characters that are no blanks, without the punctuation at its ends; a word without a letter or digit
is a symbol. Ratios lie in [0, 1] except `newline_word_ratio`, and are 0 where there is nothing to divide by.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from webtext.base.schemas import DUPLICATE_NGRAM_SIZES, TOP_NGRAM_SIZES

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))  # Gopher, §A1.1
BULLETS = ("•", "‣", "▶", "◦", "■", "▪", "●", "-", "*")
ELLIPSES = ("...", "…")
TERMINAL_PUNCTUATION = tuple(".!?。！？\"'”’»")
MAX_SHORT_LINE = 30  # FineWeb: characters
MAX_C4_WORD = 1000
MIN_C4_LINE_WORDS = 3
POLICY_PHRASES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")

_SENTENCE_END = re.compile(r"[.!?](?:[\"')\]”’]*)(?=\s|$)|[。！？]")
_EDGE = re.compile(r"^[\W_]+|[\W_]+$")
_PARAGRAPH_BREAK = re.compile(r"\n{2,}")


def signals_of(text: str) -> dict[str, float | int]:
    """The value of every rule for a text, keyed by the columns of the 'signals' schema.

    >>> signals = signals_of("The cat sat.\\nThe cat sat.\\n- and #then...")
    >>> signals["n_words"], round(signals["duplicate_line_ratio"], 2), signals["n_stop_words"]
    (8, 0.33, 2)
    """
    tokens = text.split()
    words = [word for token in tokens if (word := _EDGE.sub("", token))]
    lines = [stripped for line in text.split("\n") if (stripped := line.strip())]
    return (
        _word_signals(text, tokens, words)
        | _line_signals(text, lines, len(words))
        | _repetition_signals(text, words, lines)
        | _c4_signals(text, lines)
    )


def _word_signals(text: str, tokens: Sequence[str], words: Sequence[str]) -> dict[str, float | int]:
    return {
        "n_characters": len(text),
        "n_words": len(words),
        "mean_word_length": _ratio(sum(map(len, words)), len(words)),
        "hash_word_ratio": _ratio(text.count("#"), len(tokens)),
        "ellipsis_word_ratio": _ratio(sum(text.count(ellipsis) for ellipsis in ELLIPSES), len(tokens)),
        "alphabetic_word_ratio": _ratio(sum(any(map(str.isalpha, token)) for token in tokens), len(tokens)),
        "n_stop_words": len(STOP_WORDS.intersection(map(str.lower, words))),
    }


def _line_signals(text: str, lines: Sequence[str], n_words: int) -> dict[str, float | int]:
    n_lines = len(lines)
    return {
        "bullet_line_ratio": _ratio(sum(line.startswith(BULLETS) for line in lines), n_lines),
        "ellipsis_line_ratio": _ratio(sum(line.endswith(ELLIPSES) for line in lines), n_lines),
        "punctuated_line_ratio": _ratio(sum(line.endswith(TERMINAL_PUNCTUATION) for line in lines), n_lines),
        "short_line_ratio": _ratio(sum(len(line) <= MAX_SHORT_LINE for line in lines), n_lines),
        "newline_word_ratio": _ratio(text.count("\n"), n_words),
    }


def _repetition_signals(text: str, words: Sequence[str], lines: Sequence[str]) -> dict[str, float | int]:
    paragraphs = [paragraph for paragraph in _PARAGRAPH_BREAK.split(text) if paragraph.strip()]
    n_characters = len(text)
    n_lines, line_characters = _duplicates(lines)
    n_paragraphs, paragraph_characters = _duplicates(paragraphs)
    signals: dict[str, float | int] = {
        "duplicate_line_ratio": _ratio(n_lines, len(lines)),
        "duplicate_line_character_ratio": _ratio(line_characters, n_characters),
        "duplicate_paragraph_ratio": _ratio(n_paragraphs, len(paragraphs)),
        "duplicate_paragraph_character_ratio": _ratio(paragraph_characters, n_characters),
    }
    for n in TOP_NGRAM_SIZES:
        signals[f"top_{n}gram_character_ratio"] = min(1.0, _ratio(_top_ngram_characters(words, n), n_characters))
    repeats = True
    for n in DUPLICATE_NGRAM_SIZES:  # where no n words repeat, no n + 1 do
        characters = _duplicate_ngram_characters(words, n) if repeats else 0
        repeats = characters > 0
        signals[f"duplicate_{n}gram_character_ratio"] = _ratio(characters, n_characters)
    return signals


def _c4_signals(text: str, lines: Sequence[str]) -> dict[str, float | int]:
    """C4 drops lines and judges what is left; here the lines stay and only the judgement is taken."""
    lowered = [line.lower() for line in lines]
    n_javascript = sum("javascript" in line for line in lowered)
    n_policy = sum(any(phrase in line for phrase in POLICY_PHRASES) for line in lowered)
    good = [line for line, lower in zip(lines, lowered, strict=True) if _is_c4_line(line, lower)]
    return {
        "n_javascript_lines": n_javascript,
        "n_policy_lines": n_policy,
        "n_lorem_ipsum": sum(line.count("lorem ipsum") for line in lowered),
        "n_curly_braces": text.count("{"),
        "n_sentences": sum(len(_SENTENCE_END.findall(line)) for line in good),
    }


def _is_c4_line(line: str, lower: str) -> bool:
    words = line.split()
    return (
        len(words) >= MIN_C4_LINE_WORDS
        and max(map(len, words)) <= MAX_C4_WORD
        and line.endswith(TERMINAL_PUNCTUATION)
        and not line.endswith(ELLIPSES)
        and "javascript" not in lower
        and not any(phrase in lower for phrase in POLICY_PHRASES)
    )


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
    """Characters in all occurrences of the most frequent n-gram (of several the longest), with blanks between words."""
    counts = Counter(zip(*(words[i:] for i in range(n)), strict=False))
    if not counts:
        return 0
    most = max(counts.values())
    return most * max(sum(map(len, gram)) + n - 1 for gram, count in counts.items() if count == most) if most > 1 else 0


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
