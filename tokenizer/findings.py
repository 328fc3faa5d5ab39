"""Oddities of a vocabulary that a user should know about: how they are found, and a sentence for each.

A merge can use a token only after it was created, so merging the bytes of a token on its own shows whether any text
produces it by merging. A rank file merges any two tokens whose joined bytes are a token, the smallest id first. This is
equivalent to a list of merges if and only if every token of two or more bytes can be built from its bytes using only
smaller ids. Then merging its bytes takes the same steps in every text, and only one pair ever produces it
(`merges_by_rank`).
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from webtext.tokenizer.patterns.named import cut, is_native
from webtext.tokenizer.text import readable

if TYPE_CHECKING:
    from webtext.tokenizer.vocabulary import Vocabulary

_ADDS_TOKENS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")


def unmerged(vocabulary: Vocabulary) -> list[int]:
    """Return the ids that merging never produces, in ascending order: their own bytes merge to other tokens."""
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
    """Return the ids that no text produces: neither by merging, nor as a complete piece with `whole_pieces`."""
    missing = unmerged(vocabulary)
    if not vocabulary.whole_pieces:
        return missing
    texts = {id_: readable(vocabulary.tokens[id_]) for id_ in missing}
    return [
        id_ for id_, text in texts.items() if next(cut(vocabulary.pattern, text, vocabulary.unicode_version)) != text
    ]


def larger_first(vocabulary: Vocabulary) -> list[int]:
    """Return the ids that merging by rank produces, but only via larger ids, so no list in order of ids does."""
    by_rank = replace(vocabulary, merges=None)
    listed = {vocabulary.tokens[left] + vocabulary.tokens[right] for left, right in by_rank.merges_by_rank()}
    stuck = {id_ for id_, token in enumerate(vocabulary.tokens) if len(token) > 1 and token not in listed}
    return sorted(stuck.difference(unmerged(by_rank))) if stuck else []


def unused_ids(vocabulary: Vocabulary) -> list[int]:
    """Return the ids below the vocabulary's size that have no token."""
    specials = set(vocabulary.special_tokens.values())
    tokens = vocabulary.tokens
    return [id_ for id_ in range(vocabulary.size) if id_ not in specials and not (id_ < len(tokens) and tokens[id_])]


def remarks(vocabulary: Vocabulary) -> list[str]:
    """Return a sentence for each oddity: false assumptions that a user of the file might make."""
    return [*_about_ids(vocabulary), *about_ranks(vocabulary), *_about_other_libraries(vocabulary)]


def _about_ids(vocabulary: Vocabulary) -> Iterator[str]:
    holes = unused_ids(vocabulary)
    if holes:
        yield f"{_count(holes, 'id')} without a token: {_ranges(holes)}"
    missing = unreachable(vocabulary)
    if missing:
        yield f"{_count(missing, 'token')} that no text produces: {_some(vocabulary, missing)}"
    if vocabulary.merges is not None:
        n_twice = len(vocabulary.merges) - len(set(vocabulary.merges))
        if n_twice:
            yield f"merges that occur twice in the list, where the last position counts: {n_twice:,}"


def about_ranks(vocabulary: Vocabulary) -> Iterator[str]:
    """Yield a sentence if libraries that use a list of merges return different ids than the ranks do."""
    backwards = larger_first(vocabulary) if vocabulary.merges is None else []
    if backwards:
        yield (
            f"{_count(backwards, 'token')} merged via larger ids: {_some(vocabulary, backwards)}; libraries that "
            "use a list of merges return different ids for texts that contain them"
        )


def _about_other_libraries(vocabulary: Vocabulary) -> Iterator[str]:
    """Yield a sentence for each way in which Hugging Face's libraries treat the file differently."""
    if not is_native(vocabulary.pattern):
        yield (
            "the pattern is a regular expression: Hugging Face's libraries use Oniguruma, webtext uses the `regex` "
            "module, whose classes of rare characters and Unicode version differ"
        )
    if vocabulary.normalizer:
        version = unicodedata.unidata_version
        yield f"texts are normalized to NFC of Unicode {version}; in Hugging Face's libraries, of other versions"
    extras = vocabulary.extras
    processors = [step for step in _steps(extras.get("post_processor")) if step.get("type") in _ADDS_TOKENS]
    if processors:
        yield f"Hugging Face's libraries add special tokens to a text ({processors[0]['type']}); encode here doesn't"


def _steps(processor: Any) -> list[dict[str, Any]]:
    found = processor.get("processors", [processor]) if isinstance(processor, dict) else []
    return [step for step in found if isinstance(step, dict)] if isinstance(found, list) else []


def _count(found: Sequence[Any], noun: str) -> str:
    return f"{len(found):,} {noun}{'s' if len(found) > 1 else ''}"


def _some(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    named = ", ".join(f"{id_} {vocabulary.tokens[id_][:30]!r}" for id_ in ids[:3])
    return named + (", …" if len(ids) > 3 else "")


def _ranges(ids: Iterable[int]) -> str:
    """Format ascending numbers with consecutive ones as ranges.

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
