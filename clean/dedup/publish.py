"""Write the result of dedup: the rows to drop of each part, and the clusters for the report."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.parts.digest import DIGEST_ROWS, RecordDigest
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean.dedup.columns import HELD_OUT, INDEXED, PASSED, Columns, Numbers
from webtext.clean.dedup.settle import Counted
from webtext.clean.dedup.spill import blocks, mapped, release

EXACT, NEAR, NEAR_TRAIN = "exact_duplicate", "near_duplicate", "near_duplicate_of_train"
GIANT_CLUSTER = 1000
LARGEST_NAMED = 20

ROWS = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("duplicate_of", pa.string(), nullable=False),
        pa.field("similarity", pa.float64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """Summary for the report. A cluster is a document that is kept and all documents that were dropped for it."""

    documents: int  # compared documents, without those of indexes
    dropped: dict[str, int]  # by reason
    of_index: int  # documents dropped for a document of an index
    clusters: int
    sizes: dict[str, int]  # cluster size -> number of clusters
    largest: list[tuple[str, int]]  # (id of the document that is kept, size), largest first
    counted: dict[str, int]  # see Counted


def rows_name(part: int) -> str:
    """Return the name of the file with a part's rows to drop."""
    return f"part-{part:05d}.duplicates"


def publish_rows(
    columns: Columns, counted: Counted, work: Folder, scratch: Folder, run: Run
) -> tuple[list[str], Clusters]:
    """Write the rows to drop of each documents part; return their digests and the clusters."""
    sizes = mapped(scratch.local_path("cluster_sizes"), np.uint32, len(columns))
    dropped: Counter[str] = Counter()
    digests: list[str] = []
    n_documents = of_index = 0
    for number, source in enumerate(columns.sources):
        if source.indexed:
            continue
        start, stop = int(columns.starts[number]), int(columns.starts[number + 1])
        table, kept = _rows(columns, start, stop)
        dropped.update(table["reason"].to_pylist())
        table = _with_failed(table, columns, start, stop)
        with work.scratch(rows_name(source.part)) as path, pa.ipc.new_file(str(path), ROWS) as writer:
            writer.write_table(table)
        digests.append(_digest(table))
        np.add.at(sizes, kept, np.uint32(1))
        n_documents += int((columns.flags[start:stop] & PASSED != 0).sum())
        of_index += int(columns.having(kept, INDEXED).sum())
        columns.release()
        release(sizes)
    clusters = _clusters(columns, sizes)
    named = Clusters(
        documents=n_documents,
        dropped=dict(sorted(dropped.items())),
        of_index=of_index,
        clusters=sum(clusters[0].values()),
        sizes={str(size): n for size, n in sorted(clusters[0].items())},
        largest=clusters[1],
        counted=asdict(counted),
    )
    if named.largest and named.largest[0][1] >= GIANT_CLUSTER:
        name, size = named.largest[0]
        run.console.warn(f"one cluster of near-duplicates has {size:,} of {n_documents:,} documents: {name}")
    return digests, named


def _rows(columns: Columns, start: int, stop: int) -> tuple[pa.Table, Numbers]:
    """Return the rows of a part to drop, and the document that is kept in place of each."""
    documents = np.arange(start, stop, dtype=np.uint32)
    best = columns.best[start:stop]
    kept = columns.kept[best]
    dropped = (kept != documents) & columns.having(documents, PASSED)
    documents, best, kept = documents[dropped], best[dropped], kept[dropped]
    leaks = columns.having(documents, HELD_OUT) & ~columns.having(kept, HELD_OUT)
    table = pa.table(
        {
            "row": documents.astype(np.int64) - start,
            "reason": np.where(leaks, NEAR_TRAIN, np.where(best == kept, EXACT, NEAR)),
            "duplicate_of": columns.ids_of(kept),
            "similarity": columns.similarity[best],
        },
        schema=ROWS,
    )
    return table.combine_chunks(), kept


def _with_failed(table: pa.Table, columns: Columns, start: int, stop: int) -> pa.Table:
    """Add the rows that could not be compared, with their failure as the reason."""
    failed = [(each - start, why, "", np.nan) for each, why in columns.failed.items() if start <= each < stop]
    if not failed:
        return table
    more = pa.Table.from_arrays([pa.array(column) for column in zip(*failed, strict=True)], schema=ROWS)
    return pa.concat_tables([table, more]).sort_by("row").combine_chunks()


def _clusters(columns: Columns, sizes: npt.NDArray[np.uint32]) -> tuple[Counter[int], list[tuple[str, int]]]:
    """Return the histogram of cluster sizes and the largest clusters; `sizes[d]` documents were dropped for d."""
    histogram: Counter[int] = Counter()
    largest: list[tuple[str, int]] = []
    for places in blocks(0, len(sizes)):
        kept = (np.flatnonzero(sizes[places]) + places.start).astype(np.uint32)
        found = sizes[kept] + 1
        histogram.update(found.tolist())
        foremost = kept[found >= np.sort(found)[-LARGEST_NAMED:].min(initial=0)][: 1 << 12]
        largest += zip(columns.ids_of(foremost), (sizes[foremost] + 1).tolist(), strict=True)
        largest = sorted(largest, key=lambda cluster: (-cluster[1], cluster[0]))[:LARGEST_NAMED]
    return histogram, largest


def _digest(table: pa.Table) -> str:
    digest = RecordDigest()
    for start in range(0, table.num_rows, DIGEST_ROWS):
        digest.update(table.slice(start, DIGEST_ROWS))
    return digest.hexdigest()
