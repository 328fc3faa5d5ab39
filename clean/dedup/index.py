"""An index: signatures of a corpus that later builds are compared with, so that it need not be deduplicated again.

    part-00000.parquet      id, text_digest, split, has_words: a row for each row of the corpus's part
    part-00000.signatures   the signatures, row after row: one byte a permutation, or four (datasketch's)

It is a part set of kind `signatures` whose parent is the corpus: texts that may be near are read there, for the exact
Jaccard. Adding to an index is naming another beside it: `--index OCTOBER --index NOVEMBER`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from webtext.base.errors import InputError
from webtext.base.journal import Failed
from webtext.base.lineage import parents_of
from webtext.base.partset import PartSet, SetName
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.stage import PartContext, PartTask, run_parts
from webtext.base.storage import Folder, write_array
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
    """An index that is open, and the corpus it was made of."""

    signatures: PartSet
    corpus: PartSet

    def sources(self) -> Iterator[Source]:
        """Its parts, as dedup takes them."""
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
        """Id, digest, in_validation and has_words of a part's documents."""
        for batch in self.signatures.batches(part, batch_size=FACTS_PER_BATCH):
            place = f"part {part} of '{self.signatures.folder.url}'"
            columns = {"id": batch["id"], "digest": digest_bytes(batch["text_digest"], place)}
            columns |= {"in_validation": in_validation(batch["split"]), "has_words": batch["has_words"]}
            yield pa.RecordBatch.from_pydict(columns)


def signature_file(signatures: PartSet, part: int) -> Path:
    """The verified file of a part's signatures."""
    return signatures.folder.local_path(signatures.attachment(part, ".signatures"))


def value_bytes(signatures: PartSet) -> int:
    """Bytes of one value of its signatures."""
    return 4 if signatures.recipe["settings"]["signatures"] == DATASKETCH else 1


def open_indexes(settings: DedupSettings, *named: Folder) -> list[Index]:
    """The indexes that the settings name, in an order that is theirs; `named` folders as for `parents_of`.

    InputError when one is damaged, was made with other signatures, or its corpus is not there any more.
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
                "give the settings it was made with, or make it again with --keep-index",
            )
    return [found[key] for key in sorted(found)]


def open_index(url: str, *named: Folder) -> Index:
    """Open the index at `url` and its corpus; InputError when either is missing, damaged or was replaced."""
    signatures = PartSet.open(url, KIND)
    made_of = {parent["hash"] for parent in signatures.manifest["parents"]}
    for corpus in parents_of(signatures, *named):
        if corpus.hash in made_of:
            _check_rows(signatures, corpus)
            return Index(signatures, corpus)
    raise InputError(
        f"the corpus that the index '{url}' was made of is not where it was, or is another now: its texts are needed",
        "put it back, or remove the index and make it again with --keep-index",
    )


def _check_rows(signatures: PartSet, corpus: PartSet) -> None:
    """Each part has the rows of the corpus's part, and a signature for each."""
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
    """Write the index of a corpus to `url`: resumable, and equal for equal corpora."""
    Folder(url).local_path()  # signatures are read at random places, so they lie on a disk
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
    """Runs in a worker."""
    name, part, settings = task.payload
    corpus: PartSet = name.open()
    output = context.main
    with open(output.attach(f"part-{task.index:05d}.signatures"), "wb") as file:
        batches = corpus.batches(part, _COLUMNS, FACTS_PER_BATCH // 8)
        for batch, signed in context.apply_to_batches(lambda batch: sign_batch(batch["text"], settings), batches):
            if isinstance(signed, Failed):  # counted already: it stands there as a text without words
                width = settings.permutations * (4 if settings.signatures == DATASKETCH else 1)
                signatures, has_words = np.zeros((1, width), np.uint8), np.zeros(1, np.bool_)
            else:
                signatures, has_words = signed
                output.counts.keep(batch.num_rows)
            write_array(file, signatures)
            columns = {name: batch[name] for name in ("id", "text_digest", "split")}
            output.write_table(pa.table(columns | {"has_words": has_words}))
