"""documents to corpus: which documents repeat an evaluation example, and how much of each evaluation set they hold.

Only the evaluation sets' n-grams are in memory (some 45 bytes each); documents stream past them.
So, unlike the Bloom filter of the corpus' 8-grams that GPT-2's authors asked, the table has no false positives, and it
does not grow with the corpus. Beside each part of `dropped`:

    part-00000.shared.jsonl   each document that shares a longer n-gram: id, url, n-grams shared by set, first example
    part-00000.overlap        bits: n-grams found in the documents, in those that stay, longer ones in the documents
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.config import recipe_settings
from webtext.base.partset import PartSet
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import DECISION
from webtext.base.stage import PartContext, PartTask, run_parts
from webtext.base.storage import Folder
from webtext.clean import _ngrams
from webtext.clean.decontaminate.evaluation import EvaluationSet, Examples, evaluation_sets, examples_of
from webtext.clean.decontaminate.overlap import overlap_rows, shared_examples
from webtext.clean.decontaminate.settings import DecontaminationSettings
from webtext.clean.dedup.sign import texts_of
from webtext.clean.inputs import SetName
from webtext.clean.pipeline import CleanResult, named, read_documents

CODE_VERSION = 1
STAGE = "decontaminate"
SHARES_NGRAM = "shares_evaluation_ngram"
REPORT = "overlap.json"
BATCH_ROWS = 256
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decontamination:
    """What a run wrote, and what it tells of the evaluation sets (as in `overlap.json`)."""

    result: CleanResult
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DecontaminateTask:
    """One part of documents and what it is held against."""

    documents: SetName
    part: int
    sets: tuple[EvaluationSet, ...]
    settings: DecontaminationSettings


@dataclass(frozen=True, slots=True)
class Found:
    """Which n-grams of the evaluation sets occur: in documents, in those that stay; longer ones in documents."""

    in_documents: Mask
    in_corpus: Mask
    shared: Mask

    @classmethod
    def nothing(cls, overlap: Examples, shared: Examples) -> Found:
        """Masks of no document."""
        n = len(overlap.table)
        return cls(np.zeros(n, bool), np.zeros(n, bool), np.zeros(len(shared.table), bool))

    def write(self, path: Path) -> None:
        """As bits, one mask after the other, each to its last whole byte."""
        path.write_bytes(b"".join(np.packbits(mask).tobytes() for mask in self._masks()))

    def add(self, data: bytes) -> None:
        """Add what `write` wrote for other documents."""
        for mask in self._masks():
            n_bytes = (len(mask) + 7) // 8
            mask |= np.unpackbits(np.frombuffer(data[:n_bytes], np.uint8), count=len(mask)).astype(bool)
            data = data[n_bytes:]

    def _masks(self) -> tuple[Mask, Mask, Mask]:
        return self.in_documents, self.in_corpus, self.shared


def decontaminate_documents(
    inputs: Sequence[str], out: str, settings: DecontaminationSettings, run: Run
) -> Decontamination:
    """Hold documents against evaluation sets: writes out/corpus, out/dropped and out/overlap.json."""
    sets = evaluation_sets(settings.against)
    documents = read_documents(inputs, out, run)
    name = SetName.of(documents)
    written = run_parts(
        _decontaminate_part,
        [
            PartTask(
                index=part.index,
                sources=(documents.source(i),),
                payload=DecontaminateTask(name, i, sets, settings),
            )
            for i, part in enumerate(documents.parts)
        ],
        recipe=Recipe(
            stage="clean.decontaminate",
            code_version=CODE_VERSION,
            settings=recipe_settings(settings) | {"against": [each.about() for each in sets]},
            versions={"unicode": _ngrams.UNICODE_VERSION},
        ),
        outputs={"corpus": (f"{out}/corpus", "corpus"), "dropped": (f"{out}/dropped", "dropped")},
        parents=[documents],
        run=run,
        label="clean.decontaminate",
    )
    report = _report(written["dropped"], sets, settings)
    _publish(Folder(out), report)
    return Decontamination(CleanResult(documents, None, written["corpus"], written["dropped"]), report)


def _decontaminate_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    work: DecontaminateTask = task.payload
    documents = work.documents.open()
    overlap = examples_of(work.sets, work.settings.overlap_words)
    shared = examples_of(work.sets, work.settings.shared_words)
    corpus, dropped = context.output("corpus"), context.output("dropped")
    found = Found.nothing(overlap, shared)
    with open(dropped.attach(f"part-{task.index:05d}.shared.jsonl"), "w", encoding="utf-8") as listed:
        for batch in documents.batches(work.part, batch_size=BATCH_ROWS):
            texts, offsets = texts_of(batch["text"])
            numbers, ends = overlap.table.find(texts, offsets)
            longer, longer_ends = shared.table.find(texts, offsets)
            n_shared = np.diff(longer_ends)
            goes = (n_shared >= work.settings.min_shared) & work.settings.drop
            found.in_documents[numbers] = True
            found.in_corpus[numbers[np.repeat(~goes, np.diff(ends))]] = True
            found.shared[longer] = True
            for row in np.flatnonzero(n_shared):
                mine = longer[longer_ends[row] : longer_ends[row + 1]]
                counts = shared.held_by[:, mine].sum(axis=1).tolist()
                by_set = {name: n for name, n in zip(shared.names, counts, strict=True) if n}
                about = {"id": batch["id"][row].as_py(), "url": batch["url"][row].as_py()}
                line = about | {"shared": by_set, "example": shared.place_of(mine[0])}
                listed.write(json.dumps(line, ensure_ascii=False) + "\n")
            kept = batch.filter(pa.array(~goes))
            corpus.counts.keep(kept.num_rows)
            corpus.write_table(pa.Table.from_batches([kept]))
            if goes.any():
                corpus.counts.drop(SHARES_NGRAM, int(goes.sum()))
            gone = [_why(n_shared[row], work.settings) | named(batch, row) for row in np.flatnonzero(goes).tolist()]
            dropped.write_table(pa.Table.from_pylist(gone, schema=DECISION))
    found.write(dropped.attach(f"part-{task.index:05d}.overlap"))


def _why(n_shared: int, settings: DecontaminationSettings) -> dict[str, Any]:
    return {
        "stage": STAGE,
        "reason": SHARES_NGRAM,
        "value": float(n_shared),
        "threshold": float(settings.min_shared),
    }


def _report(dropped: PartSet, sets: tuple[EvaluationSet, ...], settings: DecontaminationSettings) -> dict[str, Any]:
    """Gathers what the parts found."""
    overlap, shared = examples_of(sets, settings.overlap_words), examples_of(sets, settings.shared_words)
    found = Found.nothing(overlap, shared)
    documents: Counter[str] = Counter()
    for part in dropped.parts:
        found.add(dropped.folder.read_bytes(dropped.attachment(part, ".overlap")))
        with dropped.folder.open(dropped.attachment(part, ".shared.jsonl")) as lines:
            for line in lines:
                documents.update(json.loads(line)["shared"].keys())
    rows = overlap_rows(overlap, found.in_documents, found.in_corpus)
    n_shared = shared_examples(shared, found.shared)
    for each, row, examples in zip(sets, rows, n_shared, strict=True):
        row |= each.about() | {"shared_examples": examples, "documents": documents[each.name]}
    return recipe_settings(settings) | {"sets": rows}


def _publish(folder: Folder, report: Mapping[str, Any]) -> None:
    """Write the report where it is not there already: the same command again changes nothing."""
    data = (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode()
    if not (folder.exists(REPORT) and folder.read_bytes(REPORT) == data):
        folder.write_bytes(REPORT, data)
