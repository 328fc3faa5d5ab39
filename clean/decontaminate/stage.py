"""documents to corpus: the verb that only compares documents with evaluation sets and applies no other rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from webtext.base.errors import ConfigError
from webtext.base.parts.partset import SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.workers.journal import Failed
from webtext.clean.decontaminate.holding import VERSIONS, Evaluation, holding, write_report
from webtext.clean.decontaminate.settings import DecontaminationSettings
from webtext.clean.pipeline import CleanResult, read_documents
from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.text_size import max_text_bytes, without_too_long

CODE_VERSION = 3  # 3: too_many_bytes; words of scripts without spaces
BATCH_ROWS = 256


@dataclass(frozen=True, slots=True)
class DecontaminateTask:
    """One part of documents, and the evaluation sets to compare it with."""

    documents: SetName
    part: int
    evaluation: Evaluation


def decontaminate_documents(
    inputs: Sequence[str], out: str, settings: DecontaminationSettings, run: Run
) -> CleanResult:
    """Compare documents with evaluation sets; write out/corpus, out/dropped and out/overlap.json."""
    evaluation = Evaluation.of(settings)
    if evaluation is None:
        raise ConfigError("no evaluation set given", "name one or more: --against FILE")
    documents = read_documents(inputs, out, run)
    name = SetName.of(documents)
    written = run_parts(
        _decontaminate_part,
        [
            PartTask(
                index=part.index,
                sources=(documents.source(i),),
                payload=DecontaminateTask(name, i, evaluation),
            )
            for i, part in enumerate(documents.parts)
        ],
        recipe=Recipe(
            stage="clean.decontaminate", code_version=CODE_VERSION, settings=evaluation.about(), versions=VERSIONS
        ),
        outputs={"corpus": (f"{out}/corpus", "corpus"), "dropped": (f"{out}/dropped", "dropped")},
        parents=[documents],
        run=run,
        label="clean.decontaminate",
    )
    overlap = write_report(written["dropped"], evaluation, out)
    return CleanResult(documents, None, written["corpus"], written["dropped"], overlap=overlap)


def _decontaminate_part(context: PartContext, task: PartTask) -> None:
    """Write one part of the corpus and of dropped, in a worker."""
    work: DecontaminateTask = task.payload
    corpus, dropped = context.output("corpus"), context.output("dropped")
    with holding(work.evaluation, dropped) as held:
        documents = work.documents.open()
        limit = max_text_bytes(documents)

        def judge(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Table, pa.Table]:
            short, too_long = without_too_long(batch, limit)
            return *held.judge(short), too_long

        for _, judged in context.apply_to_batches(judge, documents.batches(work.part, batch_size=BATCH_ROWS)):
            if isinstance(judged, Failed):
                continue  # counted already
            kept, gone, too_long = judged
            if too_long.num_rows:
                corpus.counts.drop(TOO_MANY_BYTES, too_long.num_rows)
                dropped.write_table(too_long)
            corpus.counts.keep(kept.num_rows)
            held.count(corpus.counts, gone)
            corpus.write_table(pa.Table.from_batches([kept]))
            dropped.write_table(gone)
