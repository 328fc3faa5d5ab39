"""Find rows of a part set by key: for each part the key column first, then only the rows that match.

Memory is one part's key column plus the rows found, however large the set is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.parts.partset import MANIFEST, PartSet
from webtext.base.storage import Folder

START_CHARACTERS = 200


def open_if_there(url: str, kind: str) -> PartSet | None:
    """Open the sealed set at `url`; None when there isn't one yet."""
    return PartSet.open(url, kind) if Folder(url).exists(MANIFEST) else None


def find_rows(
    opened: PartSet | None,
    key: str,
    wanted: Collection[str],
    columns: Sequence[str] | None = None,
    *,
    whole_text: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the rows whose column `key` (a string or a list of strings) contains one of `wanted`, in the order of the set.

    A column `text` is cut to its start and named `text_start`, unless `whole_text`. None as the set yields nothing.
    """
    if opened is None or not wanted:
        return
    values = pa.array(sorted(wanted), pa.string())
    for index in range(len(opened.parts)):
        hits = _hits(opened.table(index, [key]).column(key), values)
        if not len(hits):
            continue
        start = 0
        for batch in opened.batches(index, columns):
            first, last = np.searchsorted(hits, [start, start + len(batch)])
            if first < last:
                rows = batch.take(pa.array(hits[first:last] - start)).to_pylist()
                yield from rows if whole_text else map(_shortened, rows)
            start += len(batch)


def _hits(column: pa.ChunkedArray, values: pa.Array) -> np.ndarray:
    """Return the numbers of the rows whose column contains a value, in order."""
    if pa.types.is_list(column.type):
        array = column.combine_chunks()
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        rows = pc.list_parent_indices(array).to_numpy()
        return np.unique(rows[pc.is_in(pc.list_flatten(array), values).to_numpy(zero_copy_only=False)])
    return np.flatnonzero(pc.is_in(column, values).to_numpy())


def _shortened(row: dict[str, Any]) -> dict[str, Any]:
    if "text" in row:
        text = row.pop("text")
        row |= {"text_start": text[:START_CHARACTERS], "characters": len(text)}
    return row
