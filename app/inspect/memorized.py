"""What a model's texts repeat of its training set (Radford et al. 2019, section 8.2 and figure 5; section 4 and table 6).

The share of a text's 8-grams that occur in the training documents is asked of a kept filter, and compared with that of
held-out texts. The filter has a few n-grams that don't occur: the share that is expected of these is subtracted. Then
the documents themselves are searched for the longest stretch of words of each generated text, word by word.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from webtext.app.chain import Layout
from webtext.app.inspect.held_out import Sample, held_out_texts, of_split
from webtext.app.inspect.lookup import find_rows
from webtext.base.errors import InputError
from webtext.base.inputs.identity import TRAIN
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.journal import Failed, Journal
from webtext.clean import _minhash, _ngrams
from webtext.clean.decontaminate.comparison import REPORT, Mask
from webtext.clean.decontaminate.kept_filter import FilterHeader, ask_filter, query_filter, write_filter
from webtext.clean.text.arrays import texts_of

WORDS = 8
FILTER = "corpus.filter"
BATCH_ROWS = 256
FACTS = ["id", "url", "karma", "warc_file", "warc_offset", "posts"]


class Match(NamedTuple):
    """The longest stretch of a generated text that training documents contain, in words as n-grams are made of them.

    `id` is the first such document, and `documents` counts those that share as many words with the text.
    """

    text: int
    stretch: tuple[str, ...]
    id: str
    documents: int


def find_memorized(
    build: str, samples: Sequence[Sample], against: Sequence[str], n: int, run: Run, kept: str | None = None
) -> dict[str, Any]:
    """Return what the samples share with the training documents of a build's corpus, and the `n` longest matches.

    `kept` is the corpus's filter on this machine, by default beside the corpus; it is made if it is missing. Held-out
    texts are the samples' references or, without any, as many validation documents. Evaluation sets are the files
    `against`, or those of overlap.json.
    """
    corpus, folder = PartSet.open(Layout(build).corpus, "corpus"), Folder(build)
    place = kept or folder.location(FILTER)
    if kept is None or not Path(kept).exists():
        write_filter(corpus, WORDS, place, run)
    header, has = ask_filter(place)
    if (header.documents, header.words) != (corpus.hash, WORDS):
        remedy = f"name a new file, and the filter of {WORDS}-grams will be made"
        raise InputError(f"'{place}' is not the filter of '{corpus.folder.url}'", remedy)
    texts, references = [each.text for each in samples], [each.reference for each in samples if each.reference]
    tasks = [(SetName.of(corpus), part, texts) for part in range(len(corpus.parts))]
    best: dict[int, Match] = {}
    failed: Counter[str] = Counter()
    for of_part, failures in run.map(_search_part, tasks, "inspect memorized: search") if n else ():
        _keep_longest(best, of_part)
        failed.update(failures)
    matches = heapq.nsmallest(n, best.values(), key=lambda match: (-len(match.stretch), match.text))
    sets = query_filter(place, against)["sets"] if against else []
    return {
        "filter": asdict(header) | {"false_positives": header.false_positives},
        "generated": _overlap(texts, header, has),
        "held_out": _overlap(references or held_out_texts(corpus, len(samples)), header, has),
        "matches": _described(matches, samples, corpus),
        "failed": dict(failed),
        "sets": sets or (folder.read_object(REPORT)["sets"] if folder.exists(REPORT) else []),
    }


def _overlap(texts: Sequence[str], header: FilterHeader, has: Callable[[_ngrams.Table], Mask]) -> dict[str, Any]:
    """Return the share of all texts' n-grams that the filter has, and of each text's, ascending, without expected errors.

    A text that is too short for an n-gram has no share. Without any n-gram, all shares are None.
    """
    table = _ngrams.Table(header.words)
    numbers = [table.add(_utf8(text)) for text in texts]
    has_ngram, wrong = has(table), header.false_positives
    found = [has_ngram[each] for each in numbers if len(each)]
    shares = sorted(max(0.0, (float(each.mean()) - wrong) / (1 - wrong)) for each in found)
    return {
        "texts": len(texts),
        "too_short": len(texts) - len(found),
        "ngrams": sum(map(len, found)),
        "share": max(0.0, (float(np.concatenate(found).mean()) - wrong) / (1 - wrong)) if found else None,
        "median": statistics.median(shares) if found else None,
        "without": shares.count(0) / len(shares) if found else None,
        "shares": shares,
    }


def _search_part(journal: Journal, task: tuple[SetName, int, Sequence[str]]) -> tuple[list[Match], dict[str, int]]:
    """Search a part's training documents, in a worker: each that has an n-gram of a text is compared word by word."""
    documents, part, texts = task
    words, table = [_key(text).split() for text in texts], _ngrams.Table(WORDS)
    places: dict[int, list[tuple[int, int]]] = defaultdict(list)  # n-gram -> texts with it, and where in each
    for number, text in enumerate(texts):
        for start, ngram in enumerate(table.add(_utf8(text)).tolist()):
            places[ngram].append((number, start))
    best: dict[int, Match] = {}
    failed: Counter[str] = Counter()

    def search(batch: pa.RecordBatch) -> list[Match]:
        found, rows = [], of_split(batch, TRAIN)
        numbers, ends = table.find(*texts_of(rows["text"]))
        for row in np.flatnonzero(np.diff(ends)).tolist():
            ngrams = set(numbers[ends[row] : ends[row + 1]].tolist())
            begins = sorted(place for ngram in ngrams for place in places[ngram])
            document, identifier = f" {_key(rows['text'][row].as_py())} ", rows["id"][row].as_py()
            for text, starts in itertools.groupby(begins, key=lambda place: place[0]):
                least = len(best[text].stretch) if text in best else 1
                stretch = longest_stretch(words[text], (start for _, start in starts), document, least)
                found += [Match(text, stretch, identifier, 1)] if stretch else []
        return found

    batches = documents.open().batches(part, ["id", "text", "split"], BATCH_ROWS)
    for _, matches in journal.apply_to_batches(search, batches):
        if isinstance(matches, Failed):
            failed[matches.reason] += 1
        else:
            _keep_longest(best, matches)
    return list(best.values()), failed


def longest_stretch(words: Sequence[str], starts: Iterable[int], document: str, least: int) -> tuple[str, ...]:
    """Return the longest run of at least `least` words that begins at one of `starts` and that the document contains.

    `document` has a blank before and after each word. Empty if there is no such run. Each comparison finds a longer run
    or is the last one of its start.
    """
    found, n = -1, least - 1
    for start in starts:
        while start + n < len(words) and f" {' '.join(words[start : start + n + 1])} " in document:
            found, n = start, n + 1
    return tuple(words[found : found + n]) if found >= 0 else ()


def _keep_longest(best: dict[int, Match], matches: Iterable[Match]) -> None:
    for match in matches:
        known = best.get(match.text)
        if known is None or len(match.stretch) > len(known.stretch):
            best[match.text] = match
        elif len(match.stretch) == len(known.stretch):
            best[match.text] = known._replace(documents=known.documents + match.documents)


def _described(matches: Sequence[Match], samples: Sequence[Sample], corpus: PartSet) -> list[dict[str, Any]]:
    """Return each match with its passage of the text, its place in the document, and the document's page and votes."""
    found = find_rows(corpus, "id", {match.id for match in matches}, [*FACTS, "text"], whole_text=True)
    rows, described = {row["id"]: row for row in found}, []
    for match in matches:
        row, sample = rows[match.id], samples[match.text]
        start, end = place_of(match.stretch, sample.text)
        about = {"sample": match.text, "prompt": sample.prompt, "passage": sample.text[start:end]}
        about |= {"words": len(match.stretch), "characters": end - start, "documents": match.documents}
        about |= {"place": place_of(match.stretch, row["text"])[0]} | {name: row[name] for name in FACTS}
        described.append(about)
    return described


def place_of(stretch: Sequence[str], text: str) -> tuple[int, int]:
    """Return where a run of words first begins and ends in the text that contains it, in characters.

    >>> place_of(["to", "be"], "«Not TO  BE?»")
    (5, 11)
    """
    words = " ".join(stretch)
    before = f" {_key(text)} ".index(f" {words} ")

    def reach(n: int) -> int:
        """Return after how many characters of the text its key has n."""
        return bisect.bisect_left(range(len(text)), n, key=lambda end: len(_key(text[:end])))

    return reach(before + 1) - 1, reach(before + len(words))


def _key(text: str) -> str:
    return _minhash.key(_utf8(text)).decode()


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")
