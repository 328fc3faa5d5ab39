"""The alarm: which domains and sources lost almost all of their documents as duplicates.

    a part of dropped  ──► .exchange: compared and dropped documents by domain, in ranges of domains
    each range         ──► sums over all parts ──► domains above the set share ──► warnings, out/losses.json

A boilerplate that extraction left in, or a page that a whole site redirects to, makes documents equal that aren't. The
documents of a source (a file, or a split of a dataset) are counted in the manifest already.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.exchange import RangeWriter, read_range
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.partwriter import PartWriter
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.journal import Journal
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.settle import EXACT, NEAR, NEAR_TRAIN

LOSSES = "losses.json"
RANGES = 64  # a constant, so that a part doesn't depend on how many others there are
DOCUMENTS_PER_TASK = 1 << 20
NAMED = 5
SCHEMA = pa.schema([("domain", pa.string()), ("compared", pa.int64()), ("dropped", pa.int64())])


def write_domains(part: PartWriter, compared: Sequence[pa.Table]) -> None:
    """Attach to a part how many of its compared documents dedup dropped, by domain; `compared`: domain, dropped."""
    rows = pa.concat_tables(
        [pa.table({"domain": pa.nulls(0, pa.string()), "dropped": pa.nulls(0, pa.bool_())}), *compared]
    )
    by_domain = rows.filter(pc.is_valid(rows["domain"])).group_by("domain", use_threads=False)
    counted = by_domain.aggregate([("dropped", "count"), ("dropped", "sum")]).rename_columns(SCHEMA.names)
    ranges = [zlib.crc32(domain.encode()) % RANGES for domain in counted["domain"].to_pylist()]
    with RangeWriter(part, SCHEMA, RANGES) as exchange:
        exchange.add(np.array(ranges, np.uint64), counted)


def warn_of_losses(
    documents: PartSet, corpus: PartSet, dropped: PartSet, out: str, settings: DedupSettings, run: Run
) -> None:
    """Warn of each domain and source that lost more than the set share to dedup, and write them to out/losses.json."""
    folder = Folder(out)
    bounds = {"alarm_ratio": settings.alarm_ratio, "alarm_documents": settings.alarm_documents}
    about = bounds | {"dropped": dropped.hash}
    report = known_losses(folder)
    if any(report.get(name) != value for name, value in about.items()):
        found = _losses_of_sources(documents, corpus, **bounds)
        n_tasks = min(RANGES, 1 + documents.records // DOCUMENTS_PER_TASK)
        tasks = [(SetName.of(dropped), range(k, RANGES, n_tasks), bounds) for k in range(n_tasks)]
        for some in run.map(_losses_of_domains, tasks, "clean.dedup: losses", unit="range"):
            found += some
        found.sort(key=lambda each: (-each["dropped"], each["name"]))
        report = about | {"losses": found}
        folder.write_object(LOSSES, report)
    losses = report["losses"]
    for each in losses[:NAMED]:
        run.console.warn(
            f"dedup dropped {each['dropped']:,} of the {each['compared']:,} documents of the {each['of']} {each['name']!r}: "
            "look at its clusters (webtext inspect drop)"
        )
    if len(losses) > NAMED:
        run.console.warn(
            f"{len(losses) - NAMED:,} more domains and sources lost as much: see '{folder.location(LOSSES)}'"
        )


def known_losses(folder: Folder) -> dict[str, Any]:
    """Return the contents of losses.json in a build's folder; empty without one, or if it is damaged."""
    try:
        return folder.read_object(LOSSES) if folder.exists(LOSSES) else {}
    except InputError:
        return {}


def _losses_of_sources(documents: PartSet, corpus: PartSet, **bounds: Any) -> list[dict[str, Any]]:
    if documents.recipe["stage"] != "clean.import":
        return []  # a part of a crawl is not a source
    compared, dropped = Counter[str](), Counter[str]()
    for source, written in zip(documents.parts, corpus.parts, strict=True):
        name = source.sources[0].part
        dropped[name] += (n := sum(written.counts.dropped.get(reason, 0) for reason in (EXACT, NEAR, NEAR_TRAIN)))
        compared[name] += n + written.counts.kept
    return [
        {"of": "source", "name": name, "compared": compared[name], "dropped": n}
        for name, n in dropped.items()
        if _is_alarming(compared[name], n, **bounds)
    ]


def _losses_of_domains(journal: Journal, task: tuple[SetName, range, dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum the ranges' counts, in a worker."""
    name, ranges, bounds = task
    found = []
    for number in ranges:
        rows = pa.Table.from_batches(read_range(name.open(), number, SCHEMA), SCHEMA)
        sums = rows.group_by("domain").aggregate([("compared", "sum"), ("dropped", "sum")]).rename_columns(SCHEMA.names)
        for domain, compared, dropped in zip(*(column.to_pylist() for column in sums.columns), strict=True):
            if _is_alarming(compared, dropped, **bounds):
                found.append({"of": "domain", "name": domain, "compared": compared, "dropped": dropped})
    return found


def _is_alarming(compared: int, dropped: int, *, alarm_ratio: float, alarm_documents: int) -> bool:
    return compared >= alarm_documents and dropped > alarm_ratio * compared
