"""The words and n-grams of a text: the readable twin of `clean/native/words/`.

`clean/dedup/key.py` has the rule of each character, `clean/text/unspaced.py` the weights of letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webtext.clean.dedup.key import Kind, fold, kind_of
from webtext.clean.text.unspaced import SCRIPTS, WORD, script_of


def dedup_key(text: str) -> str:
    """Return the words of `text`, joined by single spaces; empty if it has none.

    >>> dedup_key("  The “CAFÉ”,\\n\\nre\\u00adopened: Ⅳ") == "the cafe\\u0301 reopened iv"
    True
    >>> dedup_key("猫が好き GPT2です")
    '猫 か\u3099 好 き gpt2 て\u3099 す'
    """
    folded: list[str] = []
    previous = Kind.BREAK
    for character in text:
        for unit in fold(character):
            kind = kind_of(unit)
            if kind is Kind.MARK:
                if previous is not Kind.BREAK:
                    folded.append(unit)
                continue
            if Kind.SINGLE in (kind, previous):
                folded.append(" ")
            folded.append(unit)
            previous = kind
    return " ".join("".join(folded).split())


def ngrams_of(text: str, n: int) -> list[str]:
    """Return the n-grams of the text's words, in text order, each joined by single spaces.

    >>> ngrams_of("To be, or NOT to be?", 4), ngrams_of("日本語とGPT2", 2)
    (['to be or not', 'be or not to', 'or not to be'], ['日 本 語 と', '本 語 と gpt2', '語 と gpt2'])
    """
    words = dedup_key(text).split()
    return [" ".join(words[start:end]) for start, end in ngrams([weight_of(word) for word in words], n)]


def weight_of(unit: str) -> int:
    """Return the weight of a unit, by its first character; a word of any other script weighs WORD.

    >>> weight_of("word"), weight_of("語"), weight_of("กี่")
    (1000, 588, 323)
    """
    script = script_of(unit[0])
    return WORD if script is None else SCRIPTS[script].weight


def ngrams(weights: Sequence[int], n: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each n-gram: from each unit, the fewest units that weigh n words or more.

    >>> list(ngrams([1000, 1000, 1000], 2)), list(ngrams([588, 588, 588, 588, 1000], 2))
    ([(0, 2), (1, 3)], [(0, 4), (1, 5), (2, 5)])
    """
    end = total = 0
    for start in range(len(weights)):
        while end < len(weights) and total < n * WORD:
            total += weights[end]
            end += 1
        if total < n * WORD:
            return
        yield start, end
        total -= weights[start]
