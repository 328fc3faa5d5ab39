"""`webtext tokenizer score`: reads texts with their languages, returns a table and plain values.

An input is a part set (with languages from its column `language`), a file of texts (see `inputs.py`), or LANG=FILE for
a file in one language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from webtext.base.errors import ConfigError, InputError, did_you_mean
from webtext.base.parts.counts import Counts
from webtext.tokenizer.files.inputs import Input, open_input, texts_of
from webtext.tokenizer.measure.measures import ALPHA, SELDOM, Score, score
from webtext.tokenizer.show.visible import shown_bytes
from webtext.tokenizer.text import Text
from webtext.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from webtext.base.run import Run

_LABELLED = re.compile(r"([A-Za-z0-9_-]+)=(.+)", re.DOTALL)
N_EXAMPLES = 5  # of the ids that never occur, listed below the table
_MIN_CELL = 12
_MAX_EXAMPLE = 24


def score_inputs(
    tokenizers: Mapping[str, Tokenizer],
    inputs: Sequence[str],
    run: Run,
    *,
    reference: str | None = None,
    seldom: int = SELDOM,
    text_field: str = "text",
) -> tuple[dict[str, Any], str]:
    """Measure tokenizers (by name) on the inputs; return the results as plain values and as a table.

    The reference language for parity defaults to 'en' if present, else to the first. Raises ConfigError if `reference`
    doesn't occur, and InputError if there is no text.
    """
    sources = [each for given in inputs for each in _opened(given)]
    with run.console.progress(None, "tokenizer score: texts", "texts") as progress:

        def counted() -> Iterator[tuple[str | None, Text]]:
            for language, text in labelled_texts(sources, text_field):
                progress.advance()
                yield language, text

        scores = dict(zip(tokenizers, score(list(tokenizers.values()), counted(), run.threads), strict=True))
    first = next(iter(scores.values()))
    if not first.all.n_bytes:
        raise InputError(f"no text to measure in '{inputs[0]}'", "name a text file or a part set with some text")
    if reference is None:
        reference = "en" if "en" in first.languages else next(iter(first.languages), None)
    elif reference not in first.languages:
        raise ConfigError(
            f"no text is in the reference language '{reference}'",
            did_you_mean(reference, first.languages) if first.languages else "name inputs as LANG=FILE",
        )
    if failed := sum((source.counts for _, source in sources), Counts()).failed:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(failed.items()))
        run.console.warn(f"records without text: {reasons}")
    return _answer(scores, reference, seldom) | {"failed": dict(failed)}, table(scores, reference, seldom)


def labelled_texts(sources: Sequence[tuple[str, Input]], text_field: str = "text") -> Iterator[tuple[str | None, Text]]:
    """Yield every text with its language; None if neither the caller nor the input names one."""
    for language, source in sources:
        if source.set is None:
            for text in texts_of(source, text_field):
                yield language or None, text
            continue
        for part in source.set.parts:
            for batch in source.set.batches(part, columns=["text", "language"]):
                for document in batch.to_pylist():
                    yield language or document["language"], document["text"]


def _opened(given: str) -> list[tuple[str, Input]]:
    labelled = _LABELLED.fullmatch(given)
    language, named = labelled.groups() if labelled else ("", given)
    return [(language, source) for source in open_input(named)]


def table(scores: Mapping[str, Score], reference: str | None = None, seldom: int = SELDOM) -> str:
    """Format the measures as aligned columns, one per tokenizer, with languages below."""
    first = next(iter(scores.values()))
    vocabularies = [found.vocabulary(seldom) for found in scores.values()]
    rows: list[tuple[str, list[str]]] = [
        ("", _short(scores)),
        ("vocabulary", [f"{found.tokenizer.vocab_size:,}" for found in scores.values()]),
        ("tokens", [f"{found.all.n_tokens:,}" for found in scores.values()]),
        ("bytes per token", [_number(found.all.bytes_per_token) for found in scores.values()]),
        ("characters per token", [_number(found.all.characters_per_token) for found in scores.values()]),
        ("tokens per word", [_number(found.all.tokens_per_word) for found in scores.values()]),
        ("words in one token", [_percent(found.all.whole_word_ratio) for found in scores.values()]),
        (f"Rényi efficiency, α {ALPHA}", [_number(found.renyi_efficiency) for found in scores.values()]),
        ("ids that occur", [_percent(found["used_ratio"]) for found in vocabularies]),
        ("ids that never occur", [f"{len(found['never']):,}" for found in vocabularies]),
        (f"ids seen 1-{seldom - 1} times", [f"{len(found['seldom']):,}" for found in vocabularies]),
    ]
    total = first.all
    lines = [
        f"{total.n_bytes:,} bytes, {total.n_characters:,} characters, {total.n_words:,} words (split at white space)",
        *_aligned(rows),
    ]
    lines += [
        f"{name}: {_examples(found, vocabulary)}"
        for name, found, vocabulary in zip(_short(scores), scores.values(), vocabularies, strict=True)
    ]
    if reference is not None:
        lines += ["", f"tokens per character (per byte), '{reference}' = 1", *_aligned(_parity_rows(scores, reference))]
    return "\n".join(lines)


def _short(paths: Iterable[str]) -> list[str]:
    """Return the last component of each path, or the complete paths if two end the same."""
    whole = list(paths)
    last = [path.rstrip("/").rpartition("/")[2] for path in whole]
    return last if len(set(last)) == len(last) else whole


def _parity_rows(scores: Mapping[str, Score], reference: str) -> list[tuple[str, list[str]]]:
    parities = [found.parity(reference) for found in scores.values()]
    rows = [("", _short(scores))]
    for language in sorted(parities[0]):
        cells = [
            f"{_number(p[language]['per_character'], 2)} ({_number(p[language]['per_byte'], 2)})" for p in parities
        ]
        rows.append((language, cells))
    return rows


def _examples(found: Score, vocabulary: Mapping[str, Any]) -> str:
    """List the longest tokens that never occur: the vocabulary's largest waste."""
    bytes_of = found.tokenizer.decode_bytes
    never = sorted(vocabulary["never"], key=lambda id_: (-len(bytes_of([id_])), id_))[:N_EXAMPLES]
    if not never:
        return "every id occurs"
    return "longest that never occur: " + ", ".join(f"{id_} '{_cut(shown_bytes(bytes_of([id_])))}'" for id_ in never)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_EXAMPLE else text[:_MAX_EXAMPLE] + "…"


def _answer(scores: Mapping[str, Score], reference: str | None, seldom: int) -> dict[str, Any]:
    total = next(iter(scores.values())).all
    texts = {name: getattr(total, name) for name in ("n_bytes", "n_characters", "n_words")}
    tokenizers = []
    for name, found in scores.items():
        tokenizers.append(
            {
                "tokenizer": name,
                "hash": found.tokenizer.hash,
                "vocab_size": found.tokenizer.vocab_size,
                **found.all.to_json(),
                "renyi_efficiency": found.renyi_efficiency,
                "vocabulary": found.vocabulary(seldom),
                "languages": {language: totals.to_json() for language, totals in sorted(found.languages.items())},
                "parity": found.parity(reference) if reference is not None else {},
            }
        )
    return {**texts, "alpha": ALPHA, "seldom": seldom, "reference": reference, "tokenizers": tokenizers}


def _aligned(rows: Sequence[tuple[str, list[str]]]) -> list[str]:
    label = max(len(name) for name, _ in rows)
    widths = [max(_MIN_CELL, *map(len, column)) for column in zip(*(cells for _, cells in rows), strict=True)]
    return [
        f"{name:<{label}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for name, cells in rows
    ]


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or value != value else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.1%}"
