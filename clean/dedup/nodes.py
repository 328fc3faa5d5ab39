"""Documents in priority order, and the distinct texts among them: the nodes that near-duplicate search works on.

Priority is one total order: highest karma, earliest date, smallest id; unknown karma and date come last. A text that
any train document has is of train. Nodes are ordered as `settle` wants them: train first, each split by priority.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.clean.dedup.sign import DIGEST_BYTES, fixed_bytes, read_facts, read_signatures, signed_schema

Integers = npt.NDArray[np.int64]
_NONE: Integers = np.empty(0, np.int64)
_NO_FACTS = signed_schema(1).empty_table().drop_columns(["signature"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The documents that passed, and their distinct texts. A document is its number in the order of parts and rows."""

    ids: pa.ChunkedArray  # of documents
    parts: Integers  # of documents: where each lies
    rows: Integers
    in_validation: npt.NDArray[np.bool_]  # of documents
    node_of: Integers  # of documents: the text each has
    best: Integers  # of nodes: the document that stays if its text does
    n_train: int  # nodes of train, which come first
    has_words: npt.NDArray[np.bool_]  # of nodes

    @property
    def n_documents(self) -> int:
        """Documents that passed."""
        return len(self.parts)

    def __len__(self) -> int:
        return len(self.best)


def order_texts(work: Folder, n_parts: int, masks: Sequence[npt.NDArray[np.bool_]] | None) -> Nodes:
    """Read what pass 1 found out and put the documents that `masks` let pass, and their texts, in order."""
    tables, parts, rows = [_NO_FACTS], [_NONE], [_NONE]
    for part in range(n_parts):
        facts = read_facts(work, part)
        passed = np.flatnonzero(masks[part]) if masks is not None else np.arange(facts.num_rows)
        tables.append(facts if masks is None else facts.take(pa.array(passed)))
        parts.append(np.full(len(passed), part, np.int64))
        rows.append(passed.astype(np.int64))
    facts = pa.concat_tables(tables)
    in_validation = facts["in_validation"].to_numpy()
    order = _priority_order(facts)
    order = np.concatenate([order[~in_validation[order]], order[in_validation[order]]])

    texts = fixed_bytes(facts["digest"]).view(f"V{DIGEST_BYTES}").ravel()
    _, first_place, text_number = np.unique(texts[order], return_index=True, return_inverse=True)
    by_priority = np.argsort(first_place, kind="stable")
    node_of_text = np.empty_like(by_priority)
    node_of_text[by_priority] = np.arange(len(by_priority))
    node_of = np.empty(len(order), np.int64)
    node_of[order] = node_of_text[text_number]
    best = order[first_place[by_priority]]
    return Nodes(
        ids=facts["id"],
        parts=np.concatenate(parts),
        rows=np.concatenate(rows),
        in_validation=in_validation,
        node_of=node_of,
        best=best,
        n_train=int((~in_validation[best]).sum()),
        has_words=facts["has_words"].to_numpy()[best],
    )


def gather_signatures(work: Folder, nodes: Nodes, permutations: int, path: Path) -> npt.NDArray[np.uint8]:
    """The nodes' signatures in their order, in a memory-mapped file at `path`."""
    if not len(nodes):
        return np.empty((0, permutations), np.uint8)
    with open(path, "wb") as file:
        if hasattr(os, "posix_fallocate"):  # a full disk must show here: in mapped memory it would end the process
            os.posix_fallocate(file.fileno(), 0, len(nodes) * permutations)
        else:
            file.truncate(len(nodes) * permutations)
    gathered = np.memmap(path, np.uint8, "r+", shape=(len(nodes), permutations))
    for part, chosen in by_part(nodes, np.arange(len(nodes))):
        gathered[chosen] = read_signatures(work, part)[nodes.rows[nodes.best[chosen]]]
    return gathered


def by_part(nodes: Nodes, chosen: Integers) -> list[tuple[int, Integers]]:
    """The chosen nodes by the part of their best document, in row order within each part."""
    documents = nodes.best[chosen]
    order = np.lexsort((nodes.rows[documents], nodes.parts[documents]))
    parts, starts = np.unique(nodes.parts[documents][order], return_index=True)
    return list(zip(parts.tolist(), np.split(chosen[order], starts[1:]), strict=True))


def masks_of(
    passes: Callable[[int], npt.NDArray[np.bool_]] | None, records: Sequence[int]
) -> list[npt.NDArray[np.bool_]] | None:
    """The rows of each part that pass; None when all do."""
    if passes is None:
        return None
    masks = [np.asarray(passes(part), np.bool_) for part in range(len(records))]
    for part, (mask, expected) in enumerate(zip(masks, records, strict=True)):
        if mask.shape != (expected,):
            raise InputError(
                f"the rows that pass of part {part} have shape {mask.shape}, the part has {expected} rows",
                "make the signals again: they must match the documents row for row",
            )
    return masks


def _priority_order(facts: pa.Table) -> Integers:
    # Nulls sort to the end, whatever the direction.
    keys = [("karma", "descending"), ("date", "ascending"), ("id", "ascending")]
    return np.asarray(pc.sort_indices(facts, sort_keys=keys).to_numpy()).astype(np.int64)
