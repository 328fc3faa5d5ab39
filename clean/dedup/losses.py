"""The alarm: which domains and sources lost almost all of their documents as duplicates.

    a part of dropped  ──► .exchange: compared and dropped documents by domain, in ranges of domains
    each range         ──► sums over all parts ──► domains above the set share ──► warnings, out/losses.json

A boilerplate that extraction left in, or a page that a whole site redirects to, makes documents equal that aren't. The
documents of a source (a file, or a split of a dataset) are counted in the manifest already.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.exchange import RangeWriter, read_range
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.partwriter import PartWriter
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.attempt import Attempt
from webtext.clean.dedup.settle import EXACT, NEAR, NEAR_TRAIN

LOSSES = "losses.json"
ALARM_RATIO, ALARM_DOCUMENTS = 0.9, 1000  # fewer documents of a domain may well be copies
RANGES = 64  # a constant, so that a part doesn't depend on how many others there are
DOCUMENTS_PER_TASK = 1 << 20
NAMED = 5
COMPARED = pa.schema([("domain", pa.string()), ("dropped", pa.bool_())])
SCHEMA = pa.schema([("domain", pa.string()), ("compared", pa.int64()), ("dropped", pa.int64())])


class Loss(TypedDict):
    """One row of losses.json, about documents."""

    of: Literal["domain", "source"]
    name: str
    compared: Annotated[int, msgspec.Meta(ge=1)]
    dropped: int


def write_domains(part: PartWriter, compared: Sequence[pa.RecordBatch]) -> None:
    """Attach to a part how many of its compared documents dedup dropped, by domain; `compared` have COMPARED."""
    rows = pa.Table.from_batches(compared, COMPARED)
    by_domain = rows.filter(pc.is_valid(rows["domain"])).group_by("domain", use_threads=False)
    counted = by_domain.aggregate([("dropped", "count"), ("dropped", "sum")]).rename_columns(SCHEMA.names)
    ranges = [zlib.crc32(domain.encode()) % RANGES for domain in counted["domain"].to_pylist()]
    with RangeWriter(part, SCHEMA, RANGES) as exchange:
        exchange.add(np.array(ranges, np.uint64), counted)


def warn_of_losses(documents: PartSet, corpus: PartSet, dropped: PartSet, out: str, run: Run) -> None:
    """Warn of each domain and source that lost more than ALARM_RATIO to dedup, and write them to out/losses.json."""
    folder, bounds = Folder(out), (ALARM_RATIO, ALARM_DOCUMENTS)
    about = {"ratio": bounds[0], "documents": bounds[1], "dropped": dropped.hash}
    report = known_losses(folder)
    if any(report.get(name) != value for name, value in about.items()):
        n_tasks = min(RANGES, 1 + documents.records // DOCUMENTS_PER_TASK)
        tasks = [(SetName.of(dropped), range(k, RANGES, n_tasks), bounds) for k in range(n_tasks)]
        found = sum(run.map(_domains, tasks, "clean.dedup: losses", unit="range"), _sources(documents, corpus, bounds))
        report = about | {"losses": sorted(found, key=lambda each: (-each["dropped"], each["name"]))}
        folder.write_object(LOSSES, report)
    losses = report["losses"]
    for each in losses[:NAMED]:
        run.console.warn(
            f"dedup dropped {each['dropped']:,} of the {each['compared']:,} documents of the {each['of']} {each['name']!r}: "
            "look at its clusters (webtext inspect drop)"
        )
    if len(losses) > NAMED:
        more = f"{len(losses) - NAMED:,} more domains and sources lost as much"
        run.console.warn(f"{more}: see '{folder.location(LOSSES)}'")


def known_losses(folder: Folder) -> dict[str, Any]:
    """Return the contents of losses.json in a build's folder; empty without one, or if it is damaged."""
    try:
        found = folder.read_object(LOSSES) if folder.exists(LOSSES) else {}
        msgspec.convert(found.get("losses", []), list[Loss])
        return found
    except (InputError, msgspec.ValidationError):
        return {}


def _sources(documents: PartSet, corpus: PartSet, bounds: tuple[float, int]) -> list[Loss]:
    compared, dropped = Counter[str](), Counter[str]()
    for source, written in zip(documents.parts, corpus.parts, strict=True):
        name = source.sources[0].part if documents.recipe["stage"] == "clean.import" else ""  # "": pages of a crawl
        dropped[name] += (n := sum(written.counts.dropped.get(reason, 0) for reason in (EXACT, NEAR, NEAR_TRAIN)))
        compared[name] += n + written.counts.kept
    return _alarming("source", ((name, compared[name], n) for name, n in dropped.items() if name), bounds)


def _domains(attempt: Attempt, task: tuple[SetName, range, tuple[float, int]]) -> list[Loss]:
    """Sum the counts of some ranges, in a worker."""
    name, ranges, bounds = task
    found: list[Loss] = []
    for number in ranges:
        rows = pa.Table.from_batches(read_range(name.open(), number, SCHEMA), SCHEMA)
        sums = rows.group_by("domain").aggregate([("compared", "sum"), ("dropped", "sum")])
        found += _alarming("domain", zip(*(column.to_pylist() for column in sums.columns), strict=True), bounds)
    return found


def _alarming(
    of: Literal["domain", "source"], counts: Iterable[tuple[Any, ...]], bounds: tuple[float, int]
) -> list[Loss]:
    return [
        {"of": of, "name": name, "compared": compared, "dropped": dropped}
        for name, compared, dropped in counts
        if compared >= bounds[1] and dropped > bounds[0] * compared
    ]
