"""What is odd about a vocabulary, found and put into words: nothing about a file that was read is passed over.

A merge can use a token only after it was made, so merging the bytes of a token alone shows whether any text gives it by
merging. A rank file merges any two tokens whose joined bytes are a token, the smallest id first. That is the same as a
list of merges if and only if every token of two bytes or more is reached from its bytes with smaller ids alone: then
merging inside its bytes takes the same steps in every text, and one pair only ever gives it (`merges_by_rank`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from webtext.tokenizer.patterns import cut, is_native
from webtext.tokenizer.text import readable

if TYPE_CHECKING:
    from webtext.tokenizer.vocabulary import Vocabulary

_ADDS_TOKENS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")


def unmerged(vocabulary: Vocabulary) -> list[int]:
    """Tokens that merging never gives: merging their own bytes ends in other tokens. In order of id."""
    known = [(id_, token) for id_, token in enumerate(vocabulary.tokens) if token]
    native = replace(vocabulary, whole_pieces=False, special_tokens={}).native()
    ends = list(itertools.accumulate(len(token) for _, token in known))
    found = iter(native.encode_pieces(b"".join(token for _, token in known), ends))
    missing = []
    for id_, token in known:
        first = next(found)
        n_bytes = len(vocabulary.tokens[first])
        while n_bytes < len(token):
            n_bytes += len(vocabulary.tokens[next(found)])
        if first != id_:
            missing.append(id_)
    return missing


def unreachable(vocabulary: Vocabulary) -> list[int]:
    """Tokens that no text gives: neither by merging, nor (where whole pieces are taken as they are) as a piece."""
    missing = unmerged(vocabulary)
    if not vocabulary.whole_pieces:
        return missing
    texts = {id_: readable(vocabulary.tokens[id_]) for id_ in missing}
    return [
        id_ for id_, text in texts.items() if next(cut(vocabulary.pattern, text, vocabulary.unicode_version)) != text
    ]


def larger_first(vocabulary: Vocabulary) -> list[int]:
    """Tokens that merging by rank gives, but only by way of larger ids, so that no list in order of ids does."""
    by_rank = replace(vocabulary, merges=None)
    listed = {vocabulary.tokens[left] + vocabulary.tokens[right] for left, right in by_rank.merges_by_rank()}
    stuck = {id_ for id_, token in enumerate(vocabulary.tokens) if len(token) > 1 and token not in listed}
    return sorted(stuck.difference(unmerged(by_rank))) if stuck else []


def unused_ids(vocabulary: Vocabulary) -> list[int]:
    """Ids below the size that name no token."""
    specials = set(vocabulary.special_tokens.values())
    tokens = vocabulary.tokens
    return [id_ for id_ in range(vocabulary.size) if id_ not in specials and not (id_ < len(tokens) and tokens[id_])]


def remarks(vocabulary: Vocabulary) -> list[str]:
    """A sentence for everything odd: what a reader of the file could take for granted and should not."""
    return [
        *_about_ids(vocabulary),
        *about_ranks(vocabulary),
        *_about_other_libraries(vocabulary),
    ]


def _about_ids(vocabulary: Vocabulary) -> Iterator[str]:
    holes = unused_ids(vocabulary)
    if holes:
        yield f"{_count(holes, 'id')} without a token: {_ranges(holes)}"
    missing = unreachable(vocabulary)
    if missing:
        yield f"{_count(missing, 'token')} that no text gives: {_some(vocabulary, missing)}"
    if vocabulary.merges is not None:
        n_twice = len(vocabulary.merges) - len(set(vocabulary.merges))
        if n_twice:
            yield f"merges that stand twice in the list, where the last place counts: {n_twice:,}"


def about_ranks(vocabulary: Vocabulary) -> Iterator[str]:
    """Where libraries that go by a list of merges give other ids than the ranks do."""
    backwards = larger_first(vocabulary) if vocabulary.merges is None else []
    if backwards:
        yield (
            f"{_count(backwards, 'token')} merged by way of larger ids: {_some(vocabulary, backwards)}; libraries that "
            "go by a list of merges give other ids for texts that hold them"
        )


def _about_other_libraries(vocabulary: Vocabulary) -> Iterator[str]:
    """What Hugging Face's libraries do with such a file and we do not, plain text apart."""
    if not is_native(vocabulary.pattern):
        yield (
            "the pattern is a regular expression: Hugging Face's libraries have it read by Oniguruma, we by the `regex` "
            "module, whose classes of rare characters and Unicode version differ"
        )
    extras = vocabulary.extras
    processors = [step for step in _steps(extras.get("post_processor")) if step.get("type") in _ADDS_TOKENS]
    if processors:
        yield f"Hugging Face's libraries put special tokens around a text ({processors[0]['type']}); here encode does not"


def _steps(processor: Any) -> list[dict[str, Any]]:
    found = processor.get("processors", [processor]) if isinstance(processor, dict) else []
    return [step for step in found if isinstance(step, dict)] if isinstance(found, list) else []


def _count(found: Sequence[Any], noun: str) -> str:
    return f"{len(found):,} {noun}{'s' if len(found) > 1 else ''}"


def _some(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    named = ", ".join(f"{id_} {vocabulary.tokens[id_][:30]!r}" for id_ in ids[:3])
    return named + (", …" if len(ids) > 3 else "")


def _ranges(ids: Iterable[int]) -> str:
    """Rising numbers with runs joined.

    >>> _ranges([1, 2, 3, 7])
    '1-3, 7'
    """
    runs: list[list[int]] = []
    for id_ in ids:
        if runs and id_ == runs[-1][1] + 1:
            runs[-1][1] = id_
        else:
            runs.append([id_, id_])
    shown = [f"{first}-{last}" if last > first else str(first) for first, last in runs[:5]]
    return ", ".join(shown) + (", …" if len(runs) > 5 else "")
