"""The index: signatures of a corpus, kept so that later builds can be deduplicated against it.

    part-00000.parquet      id, text_digest, split, has_words: a row for each row of the corpus's part
    part-00000.signatures   the signatures, row after row: one byte per permutation, or four (datasketch's)

An index is a part set of kind `signatures` whose parent is the corpus. The texts of candidates are read from the corpus
to compute the exact Jaccard. An index is never extended; name several instead: `--index OCTOBER --index NOVEMBER`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from webtext.base.errors import InputError
from webtext.base.parts.lineage import parents_of
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder, write_array
from webtext.base.workers.journal import Failed
from webtext.clean.dedup.columns import Source
from webtext.clean.dedup.settings import DATASKETCH, DedupSettings
from webtext.clean.dedup.sign import (
    CODE_VERSION,
    FACTS_PER_BATCH,
    about_signatures,
    digest_bytes,
    in_validation,
    sign_batch,
)

KIND = "signatures"
STAGE = "clean.index"
_COLUMNS = ("id", "text", "text_digest", "split")


@dataclass(frozen=True, slots=True)
class Index:
    """An open index and the corpus it was made from."""

    signatures: PartSet
    corpus: PartSet

    def sources(self) -> Iterator[Source]:
        """Yield the parts of the index as sources for dedup."""
        for part, about in enumerate(self.signatures.parts):
            yield Source(
                documents=self.corpus,
                part=part,
                n_rows=about.records,
                facts=functools.partial(self.facts, part),
                signatures=signature_file(self.signatures, part),
                value_bytes=value_bytes(self.signatures),
                indexed=True,
            )

    def facts(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield id, digest, in_validation and has_words of a part's documents."""
        for batch in self.signatures.batches(part, batch_size=FACTS_PER_BATCH):
            place = f"part {part} of '{self.signatures.folder.url}'"
            columns = {"id": batch["id"], "digest": digest_bytes(batch["text_digest"], place)}
            columns |= {"in_validation": in_validation(batch["split"]), "has_words": batch["has_words"]}
            yield pa.RecordBatch.from_pydict(columns)


def signature_file(signatures: PartSet, part: int) -> Path:
    """Return the path of a part's signatures, after verifying the file."""
    return signatures.folder.local_path(signatures.attachment(part, ".signatures"))


def value_bytes(signatures: PartSet) -> int:
    """Return the number of bytes per signature value."""
    return 4 if signatures.recipe["settings"]["signatures"] == DATASKETCH else 1


def open_indexes(settings: DedupSettings, *named: Folder) -> list[Index]:
    """Open the indexes that the settings name, sorted by hash; `named` folders are passed to `parents_of`.

    Raises InputError if an index is damaged, has other signatures, or its corpus is missing.
    """
    found = {index.signatures.hash: index for index in (open_index(url, *named) for url in settings.index)}
    for index in found.values():
        made, wanted = index.signatures.recipe["settings"], about_signatures(settings)
        differs = [
            f"{name} {made.get(name)!r}, not {value!r}" for name, value in wanted.items() if made.get(name) != value
        ]
        if differs:
            raise InputError(
                f"the index '{index.signatures.folder.url}' has {'; '.join(differs)}",
                "use the settings that it was made with, or make it again with --keep-index",
            )
    return [found[key] for key in sorted(found)]


def open_index(url: str, *named: Folder) -> Index:
    """Open the index at `url` and its corpus; raises InputError if either is missing, damaged or was replaced."""
    signatures = PartSet.open(url, KIND)
    made_of = {parent["hash"] for parent in signatures.manifest["parents"]}
    for corpus in parents_of(signatures, *named):
        if corpus.hash in made_of:
            _check_rows(signatures, corpus)
            return Index(signatures, corpus)
    raise InputError(
        f"the corpus of the index '{url}' was moved or has changed; dedup has to read its texts",
        "put the corpus back, or remove the index and make it again with --keep-index",
    )


def _check_rows(signatures: PartSet, corpus: PartSet) -> None:
    """Raise InputError unless each part has as many rows and signatures as the corpus's part."""
    width = int(signatures.recipe["settings"]["permutations"]) * value_bytes(signatures)
    of_corpus = [part.records for part in corpus.parts]
    of_index = [part.records for part in signatures.parts]
    files = [[file for file in part.attachments if file.name.endswith(".signatures")] for part in signatures.parts]
    n_bytes = [sum(file.bytes for file in each) for each in files]
    if of_index != of_corpus or n_bytes != [records * width for records in of_corpus]:
        raise InputError(
            f"the index '{signatures.folder.url}' does not have a signature for each document of its corpus",
            "remove it and make it again with --keep-index",
        )


def keep_index(corpus: PartSet, url: str, settings: DedupSettings, run: Run) -> PartSet:
    """Write the index of a corpus to `url`; resumable, and the same for equal corpora."""
    Folder(url).local_path()  # signatures are read at random offsets, so they must be on a local disk
    return run_parts(
        _write_part,
        [
            PartTask(index=part.index, sources=(corpus.source(part),), payload=(SetName.of(corpus), number, settings))
            for number, part in enumerate(corpus.parts)
        ],
        recipe=Recipe(stage=STAGE, code_version=CODE_VERSION, settings=about_signatures(settings)),
        outputs={KIND: (url, KIND)},
        parents=[corpus],
        run=run,
        label=STAGE,
    )[KIND]


def _write_part(context: PartContext, task: PartTask) -> None:
    """Write one part of the index, in a worker."""
    name, part, settings = task.payload
    corpus: PartSet = name.open()
    output = context.main
    with open(output.attach(f"part-{task.index:05d}.signatures"), "wb") as file:
        batches = corpus.batches(part, _COLUMNS, FACTS_PER_BATCH // 8)
        for batch, signed in context.apply_to_batches(lambda batch: sign_batch(batch["text"], settings), batches):
            if isinstance(signed, Failed):  # counted already; its row is that of a text without words
                width = settings.permutations * (4 if settings.signatures == DATASKETCH else 1)
                signatures, has_words = np.zeros((1, width), np.uint8), np.zeros(1, np.bool_)
            else:
                signatures, has_words = signed
                output.counts.keep(batch.num_rows)
            write_array(file, signatures)
            columns = {name: batch[name] for name in ("id", "text_digest", "split")}
            output.write_table(pa.table(columns | {"has_words": has_words}))
