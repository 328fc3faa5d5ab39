"""Look texts up in indexes: has their corpus this text, or nearly this one?

    texts of files ──► blocks, signed ──► parts of an index, in workers: equal digests, near signatures
                                               └──► exact Jaccard with the texts of the nearest, read from the corpus

Each block of texts reads the index once. If the corpus is missing or has changed since, similarities are estimates: the
share of equal signature values, whose standard deviation is at most 0.05 for 128 permutations.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.inputs.files import DOCUMENT_SUFFIXES, DOCUMENTS, TEXT, Refused, find_inputs
from webtext.base.inputs.records import records
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.run import Run
from webtext.base.workers.journal import Journal
from webtext.clean import _minhash
from webtext.clean.dedup.index import corpus_of, open_signatures
from webtext.clean.dedup.matching import Bands, sets_of_rows
from webtext.clean.dedup.reference import jaccard
from webtext.clean.dedup.settings import recall
from webtext.clean.dedup.sign import Values, permutations_of, sign_batch, signed_rows
from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.text.arrays import texts_of
from webtext.clean.text.clean_text import MAX_TEXT_BYTES, clean_text, is_longer

FIELD = "text"
EXACT, NEAR, NOTHING = "exact", "near", "nothing"
TEXTS_AT_A_TIME, CHARACTERS_AT_A_TIME = 4096, 8 << 20
MAX_TASKS = 256
CANDIDATES = 4
"""Documents of an index whose texts are compared with a text: those with the most similar signatures."""
MAX_PAIRS = 4096
"""Pairs of a text in one part of an index; a text near more documents is not compared with further ones of the part."""
FOUND_RATIO = 0.9999


@dataclass(frozen=True, slots=True)
class Answer:
    """What the indexes have of a text; `answer` is EXACT, NEAR, NOTHING, or why the text was not compared."""

    text: str  # its file and, of several records, its number; the id of a document
    answer: str
    document: str | None = None  # the most similar one, in the corpus of `index`
    index: str | None = None
    similarity: float | None = None
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of a block, as tasks need them."""

    digests: list[str]
    values: Values
    chosen: npt.NDArray[np.bool_]  # those with words
    threshold: float

    def bands(self, chosen: npt.NDArray[np.bool_]) -> Bands:
        """Index the texts by the longest bands that find a document at the threshold with probability FOUND_RATIO."""
        count = self.values.shape[1]
        rows = next((r for r in range(count, 1, -1) if recall(self.threshold, count // r, r) >= FOUND_RATIO), 1)
        return Bands(self.values.astype(np.uint8), chosen & self.chosen, self.threshold, count // rows, rows)


_Candidate = tuple[int, str, int, int]
"""Minus the number of equal signature values, or minus one more for an equal text; id, part, row."""


def look_up(names: Sequence[str], indexes: Sequence[str], threshold: float, run: Run) -> Iterator[Answer]:
    """Yield an answer for each text of the named files or documents sets, in their order.

    A record's text is its field `text`. Texts that a corpus would not contain, because they are empty or too long, are
    not compared. Of equally similar documents, that of the first index counts, then the one with the smallest id.
    """
    opened = [(signatures, corpus_of(signatures)) for signatures in map(open_signatures, indexes)]
    for block in _blocks(read_texts(names)):
        texts = {number: text for number, (_, text) in enumerate(block) if isinstance(text, str)}
        answers = [Answer(place, text.reason if isinstance(text, Refused) else NOTHING) for place, text in block]
        for signatures, corpus in opened if texts else ():
            for i, found in _find(texts, signatures, corpus, threshold, run):
                if _rank(found) > _rank(answers[i]):
                    answers[i] = replace(found, text=answers[i].text)
        yield from answers


def _rank(answer: Answer) -> tuple[bool, float]:
    return answer.answer == EXACT, answer.similarity or 0.0


def read_texts(names: Sequence[str]) -> Iterator[tuple[str, str | Refused]]:
    """Yield the place and the text, as documents store it, of each record; or why it can't be in a corpus."""
    sets, files = find_inputs(names, DOCUMENTS, DOCUMENT_SUFFIXES, may_be_empty=True)
    for file in files:
        for number, record in enumerate(records(file, (FIELD,), FIELD), start=1):
            place = file.location if file.kind == TEXT else f"{file.location}:{number}"
            yield place, record if isinstance(record, Refused) else _stored(record[FIELD])
    for opened in sets:
        for part in range(len(opened.parts)):
            for batch in opened.batches(part, ["id", FIELD]):
                for row in batch.to_pylist():
                    yield row["id"], _stored(row[FIELD])


def _stored(text: str) -> str | Refused:
    if is_longer(text, MAX_TEXT_BYTES):
        return Refused(TOO_MANY_BYTES, "")
    text = clean_text(text)
    return text if text.strip() else Refused("empty_text", "")


def _blocks(texts: Iterable[tuple[str, str | Refused]]) -> Iterator[list[tuple[str, str | Refused]]]:
    block: list[tuple[str, str | Refused]] = []
    n_characters = 0
    for place, text in texts:
        block.append((place, text))
        n_characters += len(text) if isinstance(text, str) else 0
        if len(block) == TEXTS_AT_A_TIME or n_characters >= CHARACTERS_AT_A_TIME:
            yield block
            block, n_characters = [], 0
    if block:
        yield block


def _find(
    texts: Mapping[int, str], signatures: PartSet, corpus: PartSet | None, threshold: float, run: Run
) -> Iterator[tuple[int, Answer]]:
    """Yield the numbers of the texts that one index has, with an answer for each of their nearest documents."""
    about, url = signatures.recipe["settings"], signatures.folder.url
    numbers, count, width = list(texts), permutations_of(signatures), about["shingle_words"]
    values, has_words = sign_batch(pa.array(texts.values(), pa.large_string()), width, count)
    block = _Texts([text_digest(text) for text in texts.values()], values, has_words, threshold)
    by_part: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for i, candidates in _nearest(block, signatures, run).items():
        for minus_equal, name, part, row in candidates:
            if -minus_equal > count:
                yield numbers[i], Answer("", EXACT, name, url, 1.0)
                break
            if corpus is not None:
                by_part[part].append((row, i, name))
            elif -minus_equal >= threshold * count:
                yield numbers[i], Answer("", NEAR, name, url, -minus_equal / count, estimated=True)
    tasks = []
    for part, pairs in sorted(by_part.items()):
        needed = {i: texts[numbers[i]] for _, i, _ in pairs}
        tasks.append((corpus and SetName.of(corpus), part, pairs, needed, width))
    verified = itertools.chain(*run.map(_verify, tasks, "clean.lookup: verify"))
    for i, similarity, name in sorted(verified, key=lambda each: each[2]):
        if similarity >= threshold:
            yield numbers[i], Answer("", NEAR, name, url, similarity)


def _nearest(block: _Texts, signatures: PartSet, run: Run) -> dict[int, list[_Candidate]]:
    """Return the nearest documents of each text, the most similar by signature first."""
    n_tasks = min(len(signatures.parts), MAX_TASKS)
    tasks = [(SetName.of(signatures), range(k, len(signatures.parts), n_tasks), block) for k in range(n_tasks)]
    nearest: dict[int, list[_Candidate]] = defaultdict(list)
    for some in run.map(_scan, tasks, "clean.lookup: scan", unit="task"):
        for i, candidates in some.items():
            nearest[i] = sorted(nearest[i] + candidates)[:CANDIDATES]
    return nearest


def _scan(journal: Journal, task: tuple[SetName, range, _Texts]) -> dict[int, list[_Candidate]]:
    """Return the nearest documents in some parts for each text that has any, in a worker."""
    name, parts, block = task
    signatures, digests, count = name.open(), pa.array(block.digests), block.values.shape[1]
    by_digest: dict[str, list[int]] = defaultdict(list)
    for i, digest in enumerate(block.digests):
        by_digest[digest].append(i)
    nearest: dict[int, list[_Candidate]] = defaultdict(list)
    for part in parts:
        first, n_pairs, bands = 0, np.zeros(len(digests), np.int64), block.bands(block.chosen)
        for rows, values in signed_rows(signatures, part, ["id", "text_digest"]):
            pairs = []  # row, text, number of equal values
            for row in np.flatnonzero(pc.is_in(rows["text_digest"], digests)).tolist():
                pairs += [(row, i, count + 1) for i in by_digest[rows["text_digest"][row].as_py()]]
            met, which = bands.near(np.arange(len(rows)), values.astype(np.uint8))
            n_equal = (values[met] == block.values[which]).sum(axis=1)
            pairs += zip(met.tolist(), which.tolist(), n_equal.tolist(), strict=True)
            for row, i, equal in pairs:
                nearest[i].append((-equal, rows["id"][row].as_py(), part, first + row))
            for i in {i for _, i, _ in pairs}:
                nearest[i] = sorted(nearest[i])[:CANDIDATES]
            n_pairs += np.bincount(which, minlength=len(n_pairs))
            if n_pairs.max(initial=0) > MAX_PAIRS:
                bands = block.bands(n_pairs <= MAX_PAIRS)
            first += len(rows)
    return dict(nearest)


def _verify(journal: Journal, task: Any) -> list[tuple[int, float, str]]:
    """Return the exact Jaccard of pairs of a text and a row of a part of the corpus, in a worker."""
    corpus, part, pairs, texts, width = task
    values, offsets = _minhash.shingle_sets(*texts_of(pa.array(texts.values(), pa.large_string())), width)
    sets = dict(zip(texts, np.split(values, offsets[1:-1]), strict=True))
    theirs = dict(sets_of_rows(corpus.open(), part, np.unique([row for row, _, _ in pairs]), width))
    return [(i, jaccard(sets[i], theirs[row]), name) for row, i, name in pairs]
