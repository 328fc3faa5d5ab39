"""Decide which documents are kept, by the rule in `native/minhash/settle.cpp`.

    members    per source: the documents of components, with what decides about them, by bucket of components
    settled    per bucket: the documents to drop, why and for which, by source

Documents are settled one by one in priority order, each only against those that are kept. Keeping one per component
would be simpler, but a component is a chain: its ends may have nothing in common.

Shingle sets are computed from the texts again: storing them when texts are signed would take 4.5 KB per document of 570
words. A task settles a bucket of components at once. Its sets are in a temporary file that is mapped, so a component of
a million texts takes half a gigabyte of memory.
"""

from __future__ import annotations

import heapq
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.parts.exchange import RangeWriter, abouts, count_ranges, range_of_hash, read_range
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.storage import no_space_is_an_error
from webtext.base.workers.attempt import Failed
from webtext.clean import _minhash
from webtext.clean.dedup import components
from webtext.clean.dedup.arrays import fibonacci_hash, fixed, runs
from webtext.clean.dedup.candidates import bucket_table, min_agreement
from webtext.clean.dedup.copies import COPIES
from webtext.clean.dedup.documents import FACTS, ComparedPart, Work, facts_of, in_priority, row_numbers, sources_of
from webtext.clean.dedup.settings import PERMUTATIONS, SHINGLE_WORDS, DedupSettings
from webtext.clean.dedup.sign import TEXTS_PER_BATCH, signed_rows
from webtext.clean.text.arrays import texts_of

EXACT, NEAR, NEAR_TRAIN = "exact_duplicate", "near_duplicate", "near_duplicate_of_train"
MEMBERS_PER_BUCKET = 1 << 14
BUCKET_LIMIT = 4096
"""Texts that a bucket of a band remembers to compare with, which keeps time linear; further ones are only counted."""
LARGEST_NAMED = 20
DROPPED = pa.schema(
    [("document", pa.uint64()), ("reason", pa.string()), ("duplicate_of", pa.string()), ("similarity", pa.float64())]
)
MEMBERS = pa.schema(
    [
        *FACTS,
        ("root", pa.uint64()),
        ("best", pa.uint64()),  # the document itself, or the one that it is a copy of
        ("near", pa.bool_()),  # whether the component has several distinct texts
        ("signature", pa.binary(PERMUTATIONS)),
        ("shingles", pa.list_(pa.uint64())),  # null for copies, and if the component has no other text
    ]
)


def settle_components(
    work: Work, signatures: list[PartSet], documents: list[PartSet], copies: PartSet, joined: PartSet
) -> tuple[PartSet, PartSet]:
    """Make the sets `members` and `settled`."""
    n_ranges = count_ranges(sum(about["records"] for about in abouts(joined)), MEMBERS_PER_BUCKET)
    names = SetName.of(copies), SetName.of(joined)
    payloads = [(source, *names, work.settings, n_ranges) for source in work.sources]
    members = work.make("members", _members_of_source, payloads, [*signatures, *documents, copies, joined])
    tasks = [(SetName.of(members), work.settings, len(work.sources))] * n_ranges
    return members, work.make("settled", _settle_bucket, tasks, [members])


def _members_of_source(context: PartContext, task: PartTask) -> None:
    number, (source, copies, joined, settings, n_ranges) = task.payload
    with RangeWriter(context.main, MEMBERS, n_ranges) as exchange:
        for rows in _with_shingles(context, source, _members(number, source, copies, joined)):
            exchange.add(range_of_hash(fibonacci_hash(np.asarray(rows["root"])), n_ranges), rows)


def _members(number: int, source: ComparedPart, copies: SetName, joined: SetName) -> pa.Table:
    """Return the source's documents in components, by row, without shingles: about 300 bytes each."""
    found = pa.Table.from_batches(read_range(joined.open(), number, components.MEMBERS), components.MEMBERS)
    rows, first = np.unique(row_numbers(np.asarray(found["document"])), return_index=True)
    found = found.take(first)
    best = np.asarray(found["document"]).copy()
    for some in read_range(copies.open(), number, COPIES):
        best[np.searchsorted(rows, row_numbers(np.asarray(some["document"])))] = np.asarray(some["best"])
    members, start = [MEMBERS.empty_table()], 0
    for signed, values in signed_rows(source.signatures.open(), source.part) if len(rows) else ():
        here = slice(*np.searchsorted(rows, [start, start + signed.num_rows]))
        some = rows[here] - start
        facts = facts_of(number, source, signed, start, some)
        facts |= {"root": found["root"][here], "best": best[here], "near": found["near"][here]}
        facts["signature"] = fixed(values[some].astype(np.uint8))
        facts["shingles"] = pa.nulls(len(some), MEMBERS.field("shingles").type)
        members.append(pa.table(facts, schema=MEMBERS))
        start += signed.num_rows
    return pa.concat_tables(members)


def _with_shingles(context: PartContext, source: ComparedPart, members: pa.Table) -> Iterator[pa.Table]:
    """Yield the members, with the shingles of those that are compared with others; failed ones have none."""
    document = np.asarray(members["document"])
    compared = np.asarray(members["near"]) & (np.asarray(members["best"]) == document)
    yield members.filter(~compared)
    members = members.filter(compared)
    rows, ids, done = row_numbers(document[compared]), members["id"].combine_chunks(), 0
    batches = (
        pa.record_batch([ids.slice(np.searchsorted(rows, some[0]), len(some)), texts], ["id", "text"])
        for some, texts in _texts_of_rows(source.documents.open(), source.part, rows)
    )
    for batch, made in context.apply_to_batches(
        lambda batch: _minhash.shingle_sets(*texts_of(batch["text"]), SHINGLE_WORDS), batches
    ):
        if isinstance(made, Failed):
            context.main.write([{"row": int(rows[done]), "reason": made.reason}])
            made = np.empty(0, np.uint64), np.zeros(2, np.int64)
        values, offsets = made
        some = members.slice(done, batch.num_rows)
        shingles = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))
        yield some.set_column(some.num_columns - 1, "shingles", shingles)
        done += batch.num_rows


def _texts_of_rows(
    documents: PartSet, part: int, rows: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], pa.Array]]:
    """Yield the texts of a part's rows (ascending), of some rows at a time."""
    start = 0
    for batch in documents.batches(part, ["text"], TEXTS_PER_BATCH) if len(rows) else ():
        chosen = rows[slice(*np.searchsorted(rows, [start, start + len(batch)]))]
        if len(chosen):
            yield chosen, batch.column("text").take(pa.array(chosen - start))
        start += len(batch)
        if start > rows[-1]:
            return


def _settle_bucket(context: PartContext, task: PartTask) -> None:
    """Settle the components of a bucket. Memory: 500 bytes per text, and the mapped file with their shingles."""
    number, (name, settings, n_sources) = task.payload
    folder = context.main.folder
    with (
        RangeWriter(context.main, DROPPED, n_sources) as exchange,
        tempfile.TemporaryFile(dir=folder.local_path() if folder.is_local else None) as file,
    ):
        members = _read(name.open(), number, file)
        is_best = np.asarray(members["best"]) == np.asarray(members["document"])
        bests = members.filter(is_best).sort_by("document")
        kept, similarity, exchange.about = _settle(bests, file, settings)
        dropped, kept_for = _dropped(members, bests, kept, similarity)
        exchange.add(sources_of(np.asarray(dropped["document"])), dropped)
        exchange.about |= _clusters(dropped, bests, kept_for)


def _read(opened: PartSet, number: int, file: IO[bytes]) -> pa.Table:
    """Return the members of a bucket, with the place of their shingles in the file, to which they are written."""
    facts = pa.schema(list(MEMBERS)[:-1])
    pieces, sizes = [], [np.empty(0, np.int64)]
    for rows in read_range(opened, number, MEMBERS):
        with no_space_is_an_error(opened.folder.url):
            file.write(np.asarray(rows["shingles"].flatten()).data)
        sizes.append(rows["shingles"].value_lengths().fill_null(0).to_numpy())
        # a copy, so that the shingles' memory is released
        pieces.append(rows.select(facts.names).take(np.arange(rows.num_rows)))
    size = np.concatenate(sizes).astype(np.int64)
    members = pa.Table.from_batches(pieces, facts).append_column("begin", pa.array(np.cumsum(size) - size))
    return members.append_column("end", pa.array(np.cumsum(size)))


def _settle(
    bests: pa.Table, file: IO[bytes], settings: DedupSettings
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], dict[str, Any]]:
    """Return for each distinct text which of `bests` is kept in its place (itself if it is kept), their exact Jaccard,
    and counts of the work."""
    kept, similarity = np.arange(bests.num_rows), np.ones(bests.num_rows)
    near = np.flatnonzero(np.asarray(bests["near"]))
    nodes = bests.take(near).append_column("place", pa.array(near))
    nodes = in_priority(nodes, "in_validation")
    place, held_out = np.asarray(nodes["place"]), np.asarray(nodes["in_validation"])
    _, sizes = runs(np.sort(np.asarray(nodes["root"])))
    counted = {
        "candidates": len(near),
        "verified": 0,
        "beyond_limit": 0,
        "largest_component": int(sizes.max(initial=0)),
    }
    if len(near):
        signatures = np.frombuffer(nodes["signature"].combine_chunks().buffers()[1], np.uint8).reshape(len(near), -1)
        file.flush()
        decision, first, jaccard, counted["verified"], counted["beyond_limit"] = _minhash.settle(
            signatures,
            bucket_table(signatures, settings.bands, settings.rows),
            np.memmap(file, np.uint64, "r") if file.tell() else np.empty(0, np.uint64),
            np.asarray(nodes["begin"]),
            np.asarray(nodes["end"]),
            np.asarray(nodes["indexed"]).astype(np.uint8),
            n_train=int((~held_out).sum()),
            threshold=settings.threshold,
            min_agreement=min_agreement(settings.threshold),
            bucket_limit=BUCKET_LIMIT,
        )
        lost = decision > 0
        kept[place[lost]], similarity[place[lost]] = place[first[lost]], jaccard[lost]
    return kept, similarity, counted


def _dropped(
    members: pa.Table, bests: pa.Table, kept: npt.NDArray[np.int64], similarity: npt.NDArray[np.float64]
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Return the documents to drop, and for each which of `bests` is kept in its place."""
    document = np.asarray(members["document"])
    best = np.searchsorted(np.asarray(bests["document"]), np.asarray(members["best"]))
    kept_for = kept[best]
    leaks = np.asarray(members["in_validation"]) & ~np.asarray(bests["in_validation"])[kept_for]
    rows = pa.table(
        {
            "document": document,
            "reason": np.where(leaks, NEAR_TRAIN, np.where(best == kept_for, EXACT, NEAR)),
            "duplicate_of": bests["id"].take(kept_for),
            "similarity": similarity[best],
        },
        schema=DROPPED,
    )
    lost = (np.asarray(bests["document"])[kept_for] != document) & ~np.asarray(members["indexed"])
    return rows.filter(lost), kept_for[lost]


def _clusters(dropped: pa.Table, bests: pa.Table, kept_for: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return counts of the dropped documents and of clusters, each a kept document with those dropped for it."""
    n_dropped = np.bincount(kept_for, minlength=bests.num_rows)
    kept = np.flatnonzero(n_dropped)
    found = zip(bests["id"].take(kept).to_pylist(), (n_dropped[kept] + 1).tolist(), strict=True)
    return {
        "dropped": dict(Counter(dropped["reason"].to_pylist())),
        "of_index": int(np.asarray(bests["indexed"])[kept_for].sum()),
        "sizes": dict(Counter(str(size) for size in (n_dropped[kept] + 1).tolist())),
        "largest": largest_of(found),
    }


def largest_of(clusters: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the largest clusters, each (id of the kept document, size), largest first."""
    return heapq.nsmallest(LARGEST_NAMED, clusters, key=lambda cluster: (-cluster[1], cluster[0]))
