"""Sentences of running text, by punctuation: the paper takes a model's first one or three and does not say how."""

from __future__ import annotations

import re

_END = re.compile(r"[.!?][\"'”’»)\]]{0,3}\s{1,50}(?=[^a-z\s])|\n\s*")  # bounded, so that no text takes long
_ABBREVIATION = re.compile(r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Jr|Sen|Gen|Gov|Rep|Prof|No|vs)\.\s+\Z")


def sentences(text: str) -> list[str]:
    """Return the sentences, which together are the text: each has the blanks after it.

    >>> sentences("Mr. A. Cat sat. He slept.")
    ['Mr. A. Cat sat. ', 'He slept.']
    """
    ends = [
        match.end()
        for match in _END.finditer(text)
        if not _ABBREVIATION.search(text, max(0, match.start() - 5), match.end())
    ]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if text[start:end]]


def first_sentences(text: str, n: int) -> str:
    """Return the first n sentences, one per line."""
    return "\n".join(sentence.strip() for sentence in sentences(text.strip())[:n])
