"""Decide which documents are kept, a batch of components at a time, by the rule in `native/minhash/settle.cpp`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean import _minhash
from webtext.clean.dedup.candidates import bucket_table, components, join_candidates, min_agreement
from webtext.clean.dedup.columns import HELD_OUT, INDEXED, Columns, Numbers
from webtext.clean.dedup.sets import Sets, shingle_sets
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.spill import release

BUCKET_LIMIT = 4096
"""Texts that a bucket remembers to compare with, which keeps time linear; further ones are only counted."""
SHINGLES_AT_A_TIME = 1 << 21
DOCUMENTS_AT_A_TIME = 1 << 14
"""Components are settled in batches up to this many shingles or documents; a larger component is settled alone."""


@dataclass(slots=True)
class Counted:
    """Counts of the work to find near duplicates."""

    candidates: int = 0  # distinct texts that are in a candidate pair or in a large bucket
    verified: int = 0  # pairs whose exact Jaccard was computed
    beyond_limit: int = 0  # times that a full bucket ignored a text
    large_buckets: int = 0  # buckets with too many texts to compare pair by pair
    largest_bucket: int = 0  # texts in the largest bucket
    largest_component: int = 0  # texts in the largest component


def settle_near(columns: Columns, settings: DedupSettings, scratch: Folder, run: Run) -> Counted:
    """Find near duplicates among the distinct texts; writes `columns.kept` and `columns.similarity`."""
    least = min_agreement(settings.threshold, settings.permutations)
    met = join_candidates(columns, settings, least, scratch.local_path("bands"))
    found = components(columns, scratch.local_path("components"))
    sets = shingle_sets(columns, settings.shingle_words, scratch, run)
    counted = Counted(large_buckets=met.large, largest_bucket=met.largest)
    for members, largest in _batches(found, sets):
        counted.candidates += len(members)
        counted.largest_component = max(counted.largest_component, largest)
        _settle(columns, members, sets, settings, least, scratch, counted)
        columns.release()
        release(sets.begins, sets.sizes)
    return counted


def _batches(found: Iterator[Numbers], sets: Sets) -> Iterator[tuple[Numbers, int]]:
    """Yield batches of complete components up to the bounds, and the size of the largest component in each batch."""
    waiting: list[Numbers] = []
    n_documents = n_shingles = 0
    for members in found:
        size = int(sets.sizes[members].sum())
        full = n_documents + len(members) > DOCUMENTS_AT_A_TIME or n_shingles + size > SHINGLES_AT_A_TIME
        if waiting and full:
            yield np.concatenate(waiting), max(map(len, waiting))
            waiting, n_documents, n_shingles = [], 0, 0
        waiting.append(members)
        n_documents, n_shingles = n_documents + len(members), n_shingles + size
    if waiting:
        yield np.concatenate(waiting), max(map(len, waiting))


def _settle(
    columns: Columns,
    members: Numbers,
    sets: Sets,
    settings: DedupSettings,
    least: int,
    scratch: Folder,
    counted: Counted,
) -> None:
    members = columns.in_priority(members, columns.having(members, HELD_OUT))
    by_number = np.argsort(members)  # signatures are read from files, fastest in the order of their documents
    signatures = np.empty((len(members), columns.permutations), np.uint8)
    signatures[by_number] = columns.signatures_of(members[by_number])
    values, begins, ends = sets.gather(members, scratch.local_path("batch"))
    decision, kept, similarity, verified, beyond_limit = _minhash.settle(
        signatures,
        bucket_table(signatures, settings.bands, settings.rows),
        values,
        begins,
        ends,
        columns.having(members, INDEXED).astype(np.uint8),
        n_train=int((~columns.having(members, HELD_OUT)).sum()),
        threshold=settings.threshold,
        min_agreement=least,
        bucket_limit=BUCKET_LIMIT,
    )
    dropped = decision > 0
    columns.kept[members[dropped]] = members[kept[dropped]]
    columns.similarity[members[dropped]] = similarity[dropped]
    counted.verified += verified
    counted.beyond_limit += beyond_limit
