"""Compare documents with evaluation sets, batch by batch: find copies of examples, and measure the overlap of n-grams.

Only the evaluation sets' n-grams are in memory (about 45 bytes each); the documents are streamed. GPT-2's authors did
the reverse, with a Bloom filter of the corpus' 8-grams. Our table has no false positives and doesn't grow with the
corpus. The report is Table 6 of Radford et al. (2019), overall and by example. Two files are written next to each part
of `dropped`:

    part-00000.shared.jsonl   each document that shares a longer n-gram: id, url, n-grams shared by set, first example
    part-00000.overlap        bit masks: n-grams in documents, n-grams in kept documents, longer n-grams in documents
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.config import recipe_settings
from webtext.base.errors import ConfigError
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.attempt import Attempt
from webtext.clean import _ngrams
from webtext.clean.decontaminate.evaluation import EvaluationSet, Examples, evaluation_sets, examples_of
from webtext.clean.settings import DecontaminationSettings
from webtext.clean.steps import Batch, DocumentsPart, Step, Verdict
from webtext.clean.text.arrays import texts_of

STAGE = "decontaminate"
SHARES_NGRAM = "shares_evaluation_ngram"
REPORT = "overlap.json"
OVERLAP_WORDS = 8  # Radford et al. (2019), section 4
SHARED_WORDS = 13  # Brown et al. (2020), appendix C: longer n-grams mark a copy of an example
WORDS = {"overlap_words": OVERLAP_WORDS, "shared_words": SHARED_WORDS}
VERSIONS = {"unicode": _ngrams.UNICODE_VERSION}
Mask = npt.NDArray[np.bool_]


@dataclass
class Evaluation(Step):
    """The step that compares documents with evaluation sets, and refuses those that repeat an example if it has to."""

    sets: tuple[EvaluationSet, ...]
    settings: DecontaminationSettings
    versions = VERSIONS

    @classmethod
    def of(cls, settings: DecontaminationSettings) -> Evaluation | None:
        """Open the sets that the settings name; None if there are none. Raises ConfigError for `drop` without sets."""
        if settings.drop and not settings.against:
            raise ConfigError("--drop is given without an evaluation set", "name one or more: --against FILE")
        return cls(evaluation_sets(settings.against), settings) if settings.against else None

    def sections(self) -> dict[str, Any]:
        return {STAGE: recipe_settings(self.settings) | {"against": [each.about() for each in self.sets]}}

    def begin(self, part: DocumentsPart, dropped: Any) -> None:
        self._overlap, self._shared = self.ngrams()
        self._found = Found.nothing(self._overlap, self._shared)
        self._list = open(dropped.attach(f"part-{dropped.index:05d}.shared.jsonl"), "w", encoding="utf-8")  # noqa: SIM115
        self._masks = dropped.attach(f"part-{dropped.index:05d}.overlap")

    def judge(self, batch: Batch) -> Iterator[Verdict]:
        kept = np.flatnonzero(batch.kept)
        documents = batch.documents.take(pa.array(kept))
        texts, offsets = texts_of(documents["text"])
        numbers, ends = self._overlap.table.find(texts, offsets)
        longer, longer_ends = self._shared.table.find(texts, offsets)
        n_shared = np.diff(longer_ends)
        drops = (n_shared > 0) & self.settings.drop
        self._found.in_documents[numbers] = True
        self._found.in_corpus[numbers[np.repeat(~drops, np.diff(ends))]] = True
        self._found.shared[longer] = True
        for row in np.flatnonzero(n_shared).tolist():
            self._note(documents, row, longer[longer_ends[row] : longer_ends[row + 1]])
        refused, n_of_all = np.zeros(len(batch.kept), np.bool_), np.zeros(len(batch.kept))
        refused[kept], n_of_all[kept] = drops, n_shared
        yield Verdict(SHARES_NGRAM, refused, n_of_all, 1.0, STAGE, comes_last=True)

    def _note(self, documents: pa.RecordBatch, row: int, numbers: npt.NDArray[np.int64]) -> None:
        counts = self._shared.in_sets[:, numbers].sum(axis=1).tolist()
        by_set = {name: n for name, n in zip(self._shared.names, counts, strict=True) if n}
        line = {name: documents[name][row].as_py() for name in ("id", "url")}
        line |= {"shared": by_set, "example": self._shared.place_of(numbers[0])}
        self._list.write(json.dumps(line, ensure_ascii=False) + "\n")

    def end(self) -> None:
        self._list.close()
        self._found.write(self._masks)

    def ngrams(self) -> tuple[Examples, Examples]:
        """Return the n-grams whose overlap is reported, and the longer ones that mark a copy; cached."""
        return examples_of(self.sets, OVERLAP_WORDS), examples_of(self.sets, SHARED_WORDS)


@dataclass(frozen=True, slots=True)
class Found:
    """Masks of the evaluation sets' n-grams: found in documents, in kept documents, and longer ones in documents."""

    in_documents: Mask
    in_corpus: Mask
    shared: Mask

    @classmethod
    def nothing(cls, overlap: Examples, shared: Examples) -> Found:
        """Return empty masks."""
        n = len(overlap.table)
        return cls(np.zeros(n, bool), np.zeros(n, bool), np.zeros(len(shared.table), bool))

    def write(self, path: Path) -> None:
        """Write the masks one after another as bits, each padded to a full byte."""
        path.write_bytes(b"".join(np.packbits(mask).tobytes() for mask in self._masks()))

    def add(self, data: bytes) -> None:
        """Merge the masks of other documents, as written by `write`."""
        for mask in self._masks():
            n_bytes = (len(mask) + 7) // 8
            mask |= np.unpackbits(np.frombuffer(data[:n_bytes], np.uint8), count=len(mask)).astype(bool)
            data = data[n_bytes:]

    def _masks(self) -> tuple[Mask, Mask, Mask]:
        return self.in_documents, self.in_corpus, self.shared


def write_overlap(dropped: PartSet, evaluation: Evaluation, out: str, run: Run) -> dict[str, Any]:
    """Merge the findings of all parts, write them to out/overlap.json (unless it is up to date) and return them."""
    (rows,) = run.map(_rows, [(SetName.of(dropped), evaluation)], "clean.decontaminate: report", unit="report")
    report = WORDS | recipe_settings(evaluation.settings) | {"sets": rows}
    Folder(out).write_bytes(REPORT, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    return report


def _rows(attempt: Attempt, task: tuple[SetName, Evaluation]) -> list[dict[str, Any]]:
    """Return the rows of the report; in a worker, because the n-grams take much memory."""
    dropped, evaluation = task[0].open(), task[1]
    overlap, shared = evaluation.ngrams()
    found = Found.nothing(overlap, shared)
    documents: Counter[str] = Counter()
    for part in dropped.parts:
        attempt.idle()  # progress
        found.add(dropped.folder.read_bytes(dropped.attachment(part, ".overlap")))
        with dropped.folder.open(dropped.attachment(part, ".shared.jsonl")) as lines:
            for line in lines:
                documents.update(json.loads(line)["shared"].keys())
    rows = overlap_rows(overlap, found.in_documents, found.in_corpus)
    n_shared = shared_examples(shared, found.shared)
    for each, row, examples in zip(evaluation.sets, rows, n_shared, strict=True):
        row |= each.about() | {"shared_examples": examples, "documents": documents[each.name]}
    return rows


def overlap_rows(
    overlap: Examples, in_documents: npt.NDArray[np.bool_], in_corpus: npt.NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """Return for each set the share of its n-grams that occur in the documents, and in the kept documents.

    `in_documents` and `in_corpus` are masks over the distinct n-grams. An n-gram that occurs several times in a set is
    counted each time, as in the paper. `mean_example_ratio` is the mean over the examples that have an n-gram. A ratio
    is None if there are no n-grams.
    """
    sizes = np.diff(overlap.ends)
    rows = []
    for number, name in enumerate(overlap.names):
        mine = overlap.set_of == number
        row: dict[str, Any] = {
            "name": name,
            "examples": int(mine.sum()),
            "too_short": int((mine & (sizes == 0)).sum()),
            "ngrams": int(sizes[mine].sum()),
        }
        for prefix, mask in (("", in_documents), ("corpus_", in_corpus)):
            found = _by_example(overlap, mask)
            some = mine & (sizes > 0)
            row |= {
                f"{prefix}overlap_ratio": float(found[some].sum() / sizes[some].sum()) if some.any() else None,
                f"{prefix}mean_example_ratio": float((found[some] / sizes[some]).mean()) if some.any() else None,
            }
        rows.append(row)
    return rows


def shared_examples(shared: Examples, in_documents: npt.NDArray[np.bool_]) -> list[int]:
    """Return for each set how many of its examples share an n-gram with the documents."""
    found = _by_example(shared, in_documents) > 0
    return [int((found & (shared.set_of == number)).sum()) for number in range(len(shared.names))]


def overlap_table(report: Mapping[str, Any]) -> str:
    """Format the report as an aligned table, with percentages as in the paper."""
    n, longer = report["overlap_words"], report["shared_words"]
    head = ["evaluation set", "examples", f"{n}-grams", "in documents", "mean", "in corpus", "mean"]
    return aligned([[*head, f"examples sharing {longer}", "documents"], *map(_cells, report["sets"])])


def _cells(row: Mapping[str, Any]) -> list[str]:
    ratios = ("overlap_ratio", "mean_example_ratio", "corpus_overlap_ratio", "corpus_mean_example_ratio")
    counts = [f"{row[name]:,}" for name in ("examples", "ngrams", "shared_examples", "documents")]
    return [row["name"], *counts[:2], *(percent(row[name]) for name in ratios), *counts[2:]]


def percent(ratio: float | None) -> str:
    """Return a ratio as the tables show it."""
    return "-" if ratio is None else f"{ratio:.2%}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return the lines as a table: the first column flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *cells[1:]]) for line, cells in zip(lines, padded, strict=True)
    )


def _by_example(examples: Examples, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return how many n-grams of each example are in the mask."""
    before = np.concatenate([[0], np.cumsum(mask[examples.numbers], dtype=np.int64)])
    return np.asarray(np.diff(before[examples.ends]))
