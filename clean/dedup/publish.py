"""The result of dedup: the rows to drop of each part, and the clusters for the report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from webtext.base.console import Console
from webtext.base.parts.exchange import abouts, read_range
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.schemas import SCHEMAS
from webtext.base.parts.stage import PartContext, PartTask
from webtext.clean.dedup.documents import Work, rows_of
from webtext.clean.dedup.settle import DROPPED, largest_of
from webtext.clean.reasons import TOO_MANY_BYTES

DUPLICATES = "duplicates"
GIANT_CLUSTER = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """Summary for the report. A cluster is a document that is kept and all documents that were dropped for it."""

    documents: int  # compared documents, without those of indexes
    dropped: dict[str, int]  # by reason
    of_index: int  # documents dropped for a document of an index
    clusters: int
    sizes: dict[str, int]  # cluster size -> number of clusters
    largest: list[tuple[str, int]]  # (id of the document that is kept, size), largest first
    counted: dict[str, int]
    """Counts of the work: `candidates`, distinct texts that are in a candidate pair or in a large bucket; `verified`,
    pairs whose exact Jaccard was computed; `beyond_limit`, times that a full bucket ignored a text; `large_buckets`, with
    too many texts to compare pair by pair; texts in the `largest_bucket` and in the `largest_component`."""

    def warn(self, console: Console) -> None:
        """Warn about a giant cluster."""
        if self.largest and self.largest[0][1] >= GIANT_CLUSTER:
            name, size = self.largest[0]
            console.warn(f"one cluster of near-duplicates has {size:,} of {self.documents:,} documents: {name}")


def publish_rows(work: Work, texts: PartSet, members: PartSet, settled: PartSet) -> PartSet:
    """Make the set `duplicates`: the rows to drop, and those that could not be compared, for each documents part."""
    names = SetName.of(texts), SetName.of(members), SetName.of(settled)
    payloads = [(number, *names) for number in range(work.n_indexed, len(work.sources))]
    return work.make(DUPLICATES, _rows_of_part, payloads, [texts, members, settled], kind=DUPLICATES)


def _rows_of_part(context: PartContext, task: PartTask) -> None:
    _, (number, texts, members, settled) = task.payload
    dropped = pa.Table.from_batches(read_range(settled.open(), number, DROPPED), DROPPED)
    rows = pa.table([rows_of(np.asarray(dropped["document"])), *dropped.columns[1:]], schema=SCHEMAS[DUPLICATES])
    failed = pa.concat_tables(opened.table(number) for opened in (texts.open(), members.open()))
    failed = failed.filter(failed["reason"].to_numpy() != TOO_MANY_BYTES)
    failed = pa.table([*failed.columns, [""] * failed.num_rows, [np.nan] * failed.num_rows], schema=SCHEMAS[DUPLICATES])
    context.main.write_table(pa.concat_tables([rows, failed]).sort_by("row"))


def clusters_of(work: Work, texts: PartSet, members: PartSet, edges: PartSet, settled: PartSet) -> Clusters:
    """Collect what the parts' entries state about the documents compared, the work and the clusters."""
    found = abouts(settled)
    dropped, sizes = (
        sum((Counter[str](each[name]) for each in found), Counter[str]()) for name in ("dropped", "sizes")
    )
    compared = sum(about["passed"] for about in abouts(texts)[work.n_indexed :])
    counted = {name: sum(each[name] for each in found) for name in ("candidates", "verified", "beyond_limit")}
    counted["large_buckets"] = sum(each["large_buckets"] for each in abouts(edges))
    counted["largest_bucket"] = max(each["largest_bucket"] for each in abouts(edges))
    counted["largest_component"] = max(each["largest_component"] for each in found)
    return Clusters(
        documents=compared - sum(part.records for part in members.parts[work.n_indexed :]),
        dropped=dict(sorted(dropped.items())),
        of_index=sum(each["of_index"] for each in found),
        clusters=sum(sizes.values()),
        sizes=dict(sorted(sizes.items(), key=lambda each: int(each[0]))),
        largest=largest_of((name, size) for each in found for name, size in each["largest"]),
        counted=counted,
    )
