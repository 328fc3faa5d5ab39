"""The index: signatures of a corpus, kept so that later builds can be deduplicated against it.

An index is a part set of kind `signatures` whose parent is the corpus; it has the corpus' rows of the signatures that
were made for dedup. The texts of candidates are read from the corpus to compute the exact Jaccard. An index is never
extended; name several instead: `--index OCTOBER --index NOVEMBER`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet, SetName, parents_of
from webtext.base.parts.stage import PartContext, PartTask, make_set
from webtext.base.run import Run
from webtext.base.storage import Folder, write_array
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import KIND, signature_recipe, signatures_name, signed_rows

STAGE = "clean.index"


@dataclass(frozen=True, slots=True)
class Index:
    """An open index and the corpus it was made from."""

    signatures: PartSet
    corpus: PartSet


def open_indexes(settings: DedupSettings, *named: Folder) -> list[Index]:
    """Open the indexes that the settings name, sorted by hash; `named` folders are passed to `parents_of`.

    Raises InputError if an index is damaged, has signatures of another version, or its corpus is missing.
    """
    found = {}
    for url in settings.index:
        signatures = open_signatures(url, STAGE)
        corpus = corpus_of(signatures, *named)
        if corpus is None:
            raise InputError(
                f"the corpus of the index '{url}' was moved or has changed; dedup has to read its texts",
                "put the corpus back, or remove the index and make it again with --keep-index",
            )
        found[signatures.hash] = Index(signatures, corpus)
    return [found[key] for key in sorted(found)]


def open_signatures(url: str, stage: str | None = None) -> PartSet:
    """Open a set of signatures, of one stage or of any; raises InputError if this version makes others."""
    signatures = PartSet.open(url, KIND)
    made = signatures.recipe
    wanted = signature_recipe(stage or made["stage"]).to_json()
    differs = [f"{name} {made[name]!r}, not {wanted[name]!r}" for name in wanted if made[name] != wanted[name]]
    if differs:
        raise InputError(f"the index '{url}' has signatures of {'; '.join(differs)}", "make it again with --keep-index")
    return signatures


def corpus_of(index: PartSet, *named: Folder) -> PartSet | None:
    """Return the corpus of an index, None if it is missing or was replaced; see `parents_of` about `named`."""
    made_of = [parent["hash"] for parent in index.manifest["parents"]]
    return next((parent for parent in parents_of(index, *named) if parent.hash in made_of), None)


def keep_index(corpus: PartSet, signatures: PartSet, url: str, run: Run) -> PartSet:
    """Write the index of a corpus to `url`: its rows of `signatures`, the signatures of the documents it was made from.

    Resumable, and the same for equal corpora.
    """
    tasks = PartTask.for_each(corpus, SetName.of(signatures))
    return make_set(_keep_part, tasks, url, KIND, signature_recipe(STAGE), [corpus], run)


def _keep_part(context: PartContext, task: PartTask) -> None:
    """Copy the rows of one part of the corpus, in a worker."""
    corpus, part, signatures = task.payload
    kept = corpus.open().table(part, ["id"])["id"].combine_chunks()
    n_kept = 0
    with open(context.main.attach(signatures_name(task.index)), "wb") as file:
        for rows, values in signed_rows(signatures.open(), part):
            chosen = pc.is_in(rows["id"], kept.slice(n_kept, rows.num_rows))  # the corpus has the order of documents
            n_kept += chosen.true_count
            write_array(file, values[chosen.to_numpy(zero_copy_only=False)])
            context.main.write_table(pa.Table.from_batches([rows.filter(chosen)]))
    if n_kept != len(kept):
        raise InputError(
            f"'{signatures.url}' does not have a signature for each document of part {part} of '{corpus.url}'",
            "rerun the command that made the corpus",
        )
