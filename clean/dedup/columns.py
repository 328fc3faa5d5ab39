"""Columns of facts about every document, in memory-mapped files, so that memory doesn't grow with their number.

Documents are numbered in the order of the sources: parts of indexes first, then parts of the documents set. Priority is
one total order: highest karma, earliest date, smallest id; unknown karma and dates come last. Documents of an index
outrank all others; they have no karma or date.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.identifiers import ID_HEX_DIGITS
from webtext.base.parts.partset import PartSet
from webtext.base.storage import write_array
from webtext.clean.dedup import spill
from webtext.clean.dedup.sign import VALUE_BYTES
from webtext.clean.dedup.spill import Array, Spill, blocks, grouped, mapped, range_of_hash, release
from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.text.arrays import texts_of

Numbers = npt.NDArray[np.uint32]
Bits = npt.NDArray[np.uint8]  # one per row, packed

PASSED, HELD_OUT, HAS_WORDS, INDEXED, CANDIDATE = 1, 2, 4, 8, 16
MAX_DOCUMENTS = 1 << 32
SIGNATURES_AT_A_TIME = 1 << 15
DIGEST_BYTES = ID_HEX_DIGITS // 2
DIGESTS = np.dtype([("digest", f"S{DIGEST_BYTES}"), ("document", "<u4")])
_LAST = np.iinfo(np.int64).max
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A part of an index, or of the documents to compare."""

    documents: PartSet  # the set that contains the texts
    signatures: PartSet
    part: int
    path: Path  # of the part's signatures
    passed: Bits | None = None  # which rows to compare; None: all
    indexed: bool = False

    @classmethod
    def of(
        cls, documents: PartSet, signatures: PartSet, part: int, passed: Bits | None = None, *, indexed: bool = False
    ) -> Source:
        path = signatures.folder.local_path(signatures.attachment(part, ".signatures"))
        return cls(documents=documents, signatures=signatures, part=part, path=path, passed=passed, indexed=indexed)

    @property
    def n_rows(self) -> int:
        return self.signatures.parts[self.part].records


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One value per document of all sources. Later steps write the second group."""

    sources: Sequence[Source]
    starts: npt.NDArray[np.int64]  # the first document of each source, then the number of documents
    permutations: int
    ids: Path  # all ids, concatenated
    id_ends: npt.NDArray[np.uint64]
    karma: npt.NDArray[np.int64]  # bitwise complement, so that the highest karma sorts first
    date: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]

    best: Numbers  # the document with the highest priority among those with the same text
    kept: Numbers  # if this document is a best one: the document kept in its place, or itself
    similarity: npt.NDArray[np.float64]  # exact Jaccard with that document
    parents: Numbers  # union-find forest over best documents, joined by candidate pairs
    failed: dict[int, str] = field(default_factory=dict)  # documents that could not be compared, and why

    def __len__(self) -> int:
        return int(self.starts[-1])

    def release(self) -> None:
        """Release the memory of the mapped pages; called after every few thousand documents."""
        release(self.id_ends, self.karma, self.date, self.flags, self.best, self.kept, self.similarity, self.parents)

    def fail(self, document: int, reason: str) -> None:
        """Exclude a document from the comparison; it is listed in `failed` unless its text is too long."""
        if self.flags[document] & PASSED:
            self.flags[document] &= ~np.uint8(PASSED)
            if reason != TOO_MANY_BYTES:
                self.failed[document] = reason

    def having(self, documents: Numbers, flag: int) -> npt.NDArray[np.bool_]:
        """Return which of the documents have the flag, bool [n]."""
        return np.asarray(self.flags[documents] & flag, np.bool_)

    def ids_of(self, documents: Numbers) -> list[str]:
        """Return the ids of the documents, in their order."""
        ends = self.id_ends[documents].astype(np.int64)
        begins = np.where(documents > 0, self.id_ends[documents.astype(np.int64) - 1], 0).astype(np.int64)
        with open(self.ids, "rb") as file:
            spans = zip(begins.tolist(), ends.tolist(), strict=True)
            return [os.pread(file.fileno(), end - begin, begin).decode() for begin, end in spans]

    def in_priority(self, documents: Numbers, groups: Array) -> Numbers:
        """Sort the documents by group, then indexed before others, then train before validation, then by priority."""
        table = pa.table(
            {
                "group": groups,
                "indexed": ~self.having(documents, INDEXED),
                "in_validation": self.having(documents, HELD_OUT),
                "karma": self.karma[documents],
                "date": self.date[documents],
                "id": self.ids_of(documents),
            }
        )
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
        ordered: Numbers = documents[order.to_numpy()]
        return ordered

    def signatures_of(self, documents: Numbers) -> npt.NDArray[np.uint8]:
        """Return the lowest byte of each signature value, uint8 [n, permutations]; fastest if `documents` ascend."""
        found = np.empty((len(documents), self.permutations), np.uint8)
        source_of = np.searchsorted(self.starts, documents, side="right") - 1
        for number, places in grouped(source_of):
            width = self.permutations * VALUE_BYTES
            rows = documents[places].astype(np.int64) - self.starts[number]
            with open(self.sources[number].path, "rb", buffering=0) as file:
                read = b"".join(os.pread(file.fileno(), width, row * width) for row in rows.tolist())
            found[places] = np.frombuffer(read, np.uint8).reshape(len(places), -1)[:, ::VALUE_BYTES]
        return found

    def signature_blocks(self) -> Iterator[tuple[Numbers, npt.NDArray[np.uint8]]]:
        """Yield all document numbers and their signatures, SIGNATURES_AT_A_TIME at a time."""
        for number, source in enumerate(self.sources):
            width = self.permutations * VALUE_BYTES
            with open(source.path, "rb", buffering=0) as file:
                for rows in blocks(0, source.n_rows, SIGNATURES_AT_A_TIME):
                    read = np.fromfile(file, np.uint8, (rows.stop - rows.start) * width)
                    numbers = np.arange(rows.start, rows.stop) + self.starts[number]
                    yield numbers.astype(np.uint32), read.reshape(-1, width)[:, ::VALUE_BYTES]
            self.release()


def read_columns(sources: Sequence[Source], permutations: int, folder: Path) -> Columns:
    """Read the facts about the documents of all sources into files in `folder`, and find exact copies."""
    starts = np.concatenate([[0], np.cumsum([source.n_rows for source in sources])]).astype(np.int64)
    size = int(starts[-1])
    if size >= MAX_DOCUMENTS:
        raise InputError(
            f"{size:,} documents are too many for one run of dedup, which takes at most {MAX_DOCUMENTS - 1:,}",
            "deduplicate one half with --keep-index, then the other half with --index",
        )

    def column(name: str, dtype: npt.DTypeLike) -> Array:
        return mapped(folder / name, dtype, size)

    columns = Columns(
        sources=sources,
        starts=starts,
        permutations=permutations,
        ids=folder / "ids",
        id_ends=column("id_ends", np.uint64),
        karma=column("karma", np.int64),
        date=column("date", np.int64),
        flags=column("flags", np.uint8),
        best=column("best", np.uint32),
        kept=column("kept", np.uint32),
        similarity=column("similarity", np.float64),
        parents=column("parents", np.uint32),
    )
    for places in blocks(0, size):
        numbers = np.arange(places.start, places.stop, dtype=np.uint32)
        columns.best[places] = columns.kept[places] = columns.parents[places] = numbers
        columns.similarity[places] = 1.0
        columns.release()
    digests = Spill(folder / "digests", size, DIGESTS)
    with open(columns.ids, "wb") as ids:
        n_bytes = 0
        for number, source in enumerate(sources):
            start = int(starts[number])
            for batch in source.signatures.batches(source.part):
                places = slice(start, start + batch.num_rows)
                text, offsets = texts_of(batch["id"])
                write_array(ids, text[offsets[0] : offsets[-1]])
                columns.id_ends[places] = n_bytes + (offsets[1:] - offsets[0])
                n_bytes += int(offsets[-1] - offsets[0])
                columns.flags[places] = _flags(batch, source, start - int(starts[number]))
                for row in _failed_rows(batch):
                    columns.fail(start + row, batch["failed"][row].as_py())
                for name, values in (("karma", columns.karma), ("date", columns.date)):
                    values[places] = 0 if source.indexed else _ascending(batch, name)
                _spill_digests(digests, batch, start, columns.flags[places], source.signatures.folder.url)
                start += batch.num_rows
            columns.release()
    _find_copies(columns, digests)
    return columns


def _flags(batch: pa.RecordBatch, source: Source, first_row: int) -> npt.NDArray[np.uint8]:
    def flag(values: Array, bit: int) -> Array:
        return np.where(values, np.uint8(bit), np.uint8(0))

    rows = np.arange(first_row, first_row + batch.num_rows)
    passed = np.ones(len(rows), bool) if source.passed is None else source.passed[rows >> 3] >> (7 - (rows & 7)) & 1
    held_out = pc.equal(batch["split"], "validation").to_numpy(zero_copy_only=False)
    has_words = batch["has_words"].to_numpy(zero_copy_only=False)
    indexed = np.uint8(INDEXED if source.indexed else 0)
    return np.asarray(flag(passed, PASSED) | flag(held_out, HELD_OUT) | flag(has_words, HAS_WORDS) | indexed, np.uint8)


def _failed_rows(batch: pa.RecordBatch) -> list[int]:
    return np.flatnonzero(batch["failed"].is_valid().to_numpy(zero_copy_only=False)).tolist()


def _ascending(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    """Return sort keys, smallest first: dates, or complements of karma; unknown values get the largest key."""
    known = batch[name].is_valid().to_numpy(zero_copy_only=False)
    values = batch[name].fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(known, ~values if name == "karma" else values, _LAST)


def _spill_digests(digests: Spill, batch: pa.RecordBatch, start: int, flags: npt.NDArray[np.uint8], place: str) -> None:
    passed = np.flatnonzero(flags & PASSED)
    digest = _digest_bytes(batch["text_digest"], place)[passed]
    records = np.empty(len(passed), DIGESTS)
    records["digest"], records["document"] = digest.view(f"S{DIGEST_BYTES}").ravel(), start + passed
    digests.add(range_of_hash(digest[:, :8].copy().view("<u8").ravel(), digests.n_files), records)


def _digest_bytes(column: pa.Array, place: str) -> npt.NDArray[np.uint8]:
    """Convert hex text digests to bytes [n, DIGEST_BYTES]; raises InputError with `place` if one isn't a digest."""
    digits, offsets = texts_of(column)
    digits = digits[offsets[0] : offsets[-1]]
    if (np.diff(offsets) != ID_HEX_DIGITS).any() or not np.isin(digits, _HEX_DIGITS).all():
        raise InputError(
            f"a text_digest in '{place}' is not {ID_HEX_DIGITS} hex digits",
            "make the documents again with this version of webtext",
        )
    nibbles = (digits & 0x0F) + np.where(digits >= ord("a"), 9, 0).astype(np.uint8)
    return np.ascontiguousarray(nibbles[0::2] << 4 | nibbles[1::2]).reshape(-1, DIGEST_BYTES)


def _find_copies(columns: Columns, digests: Spill) -> None:
    """Set `best` of all documents with equal texts to the first of them, in the order of `in_priority`.

    A range may contain any number of equal texts, so it is read twice, a block at a time.
    """
    for records in digests.files():
        firsts = np.empty(0, DIGESTS)
        for places in blocks(0, len(records), spill.RECORDS_PER_FILE):
            firsts = _firsts(columns, np.concatenate([firsts, records[places]]))
        for places in blocks(0, len(records), spill.RECORDS_PER_FILE):
            some = records[places]
            columns.best[some["document"]] = firsts["document"][np.searchsorted(firsts["digest"], some["digest"])]
        columns.release()


def _firsts(columns: Columns, records: Array) -> Array:
    """Return one record per digest, ascending: the record of its first document in priority."""
    digests, group, size = np.unique(records["digest"], return_inverse=True, return_counts=True)
    firsts = np.empty(len(digests), DIGESTS)
    firsts["digest"], firsts["document"][group] = digests, records["document"]
    repeated = size[group] > 1
    if repeated.any():
        ordered = columns.in_priority(records["document"][repeated], group[repeated])
        groups, first = np.unique(np.sort(group[repeated]), return_index=True)
        firsts["document"][groups] = ordered[first]
    return firsts


def packed_masks(
    passes: Callable[[int], npt.NDArray[np.bool_]] | None, records: Sequence[int]
) -> list[Bits] | list[None]:
    """Return the rows of each part that pass, packed to bits; None for each part if `passes` is None."""
    if passes is None:
        return [None] * len(records)
    packed = []
    for part, expected in enumerate(records):
        mask = np.asarray(passes(part), np.bool_)
        if mask.shape != (expected,):
            raise InputError(
                f"the mask of passing rows of part {part} has shape {mask.shape}, but the part has {expected} rows",
                "make the signals again: they must match the documents row for row",
            )
        packed.append(np.packbits(mask))
    return packed
