"""Find the signed documents near some texts: by bands of their signatures, then by the shingle sets of their texts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.parts.partset import PartSet
from webtext.clean import _minhash
from webtext.clean.dedup.candidates import band_keys, min_agreement
from webtext.clean.dedup.sign import TEXTS_PER_BATCH
from webtext.clean.text.arrays import texts_of

PAIRS_AT_A_TIME = 1 << 16

Integers = npt.NDArray[np.int64]
Low = npt.NDArray[np.uint8]
Set = npt.NDArray[np.uint64]


class Bands:
    """The signatures of some texts (their lowest bytes), indexed by band."""

    def __init__(self, signatures: Low, chosen: npt.NDArray[np.bool_], threshold: float, bands: int, rows: int) -> None:
        """Index the `chosen` texts; those without words have no near documents."""
        self._signatures, self._rows = signatures, rows
        self._least = min_agreement(threshold, signatures.shape[1])
        numbers = np.flatnonzero(chosen)
        self._bands = []
        for band in range(bands):
            keys = band_keys(signatures[numbers], band, rows)
            order = np.argsort(keys, kind="stable")
            self._bands.append((keys[order], numbers[order]))

    def near(self, rows: Integers, signatures: Low) -> tuple[Integers, Integers]:
        """Return pairs (row, text) that share a bucket and agree by signature, by row, the most similar text first."""
        n = len(self._signatures)
        found = [np.empty((0, 2), np.int64)]
        for band, (keys, which) in enumerate(self._bands):
            mine = band_keys(signatures[rows], band, self._rows)
            for met, place in _meetings(keys, mine):
                row, text = rows[met], which[place]
                agreements = (self._signatures[text] == signatures[row]).sum(axis=1)
                found.append(np.stack([row * n + text, -agreements], axis=1)[agreements >= self._least])
        pairs = np.unique(np.concatenate(found), axis=0)
        row, text = np.divmod(pairs[:, 0], max(n, 1))
        order = np.lexsort((text, pairs[:, 1], row))
        return row[order], text[order]


def sets_of_rows(documents: PartSet, part: int, rows: Integers, shingle_words: int) -> Iterator[tuple[int, Set]]:
    """Yield the row and the shingle set of each of a part's rows (ascending); reads their texts."""
    for chosen, texts in texts_of_rows(documents, part, rows):
        values, offsets = _minhash.shingle_sets(*texts_of(texts), shingle_words)
        yield from zip(chosen.tolist(), np.split(values, offsets[1:-1]), strict=True)


def texts_of_rows(documents: PartSet, part: int, rows: Integers) -> Iterator[tuple[Integers, pa.Array]]:
    """Yield the texts of a part's rows (ascending), of some rows at a time."""
    start = 0
    for batch in documents.batches(part, ["text"], TEXTS_PER_BATCH) if len(rows) else ():
        chosen = rows[slice(*np.searchsorted(rows, [start, start + len(batch)]))]
        if len(chosen):
            yield chosen, batch.column("text").take(pa.array(chosen - start))
        start += len(batch)
        if start > rows[-1]:
            return


def _meetings(keys: npt.NDArray[np.uint64], mine: npt.NDArray[np.uint64]) -> Iterator[tuple[Integers, Integers]]:
    """Yield arrays of pairs (i, j) with mine[i] == keys[j], about PAIRS_AT_A_TIME each; `keys` are sorted."""
    first, last = np.searchsorted(keys, mine, "left"), np.searchsorted(keys, mine, "right")
    sizes = last - first
    hits = np.flatnonzero(sizes)
    blocks = np.cumsum(sizes[hits]) // PAIRS_AT_A_TIME
    for some in np.split(hits, np.flatnonzero(np.diff(blocks)) + 1):
        ends = np.cumsum(sizes[some])
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes[some], sizes[some])
        yield np.repeat(some, sizes[some]), np.repeat(first[some], sizes[some]) + within
