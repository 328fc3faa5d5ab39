"""Find duplicates: exact ones by text digest, near ones by MinHash bands and then exact Jaccard.

    signatures          sign every document                                                        sign.py
    texts, copies       find equal texts                                                           copies.py
    bands, edges        pair texts that share a bucket and have similar sketches                   candidates.py
    components          join pairs and copies into components                                      components.py
    members, settled    compute the shingle sets of joined texts; in priority order, drop a text
                        if and only if its exact Jaccard with one that is kept reaches the threshold   settle.py
    duplicates          the rows to drop of each part; the clusters                                here

Each of these is a part set in dedup's folder, made by part tasks that exchange rows by range
(`base/parts/exchange.py`), so any number of machines can share the work, and every step resumes.

A text is compared only with texts that are kept, so no removal rests on a chain: if A ~ B ~ C, A is unlike C and A has
priority, A and C are kept. If a cluster (texts joined by such edges) has members in both splits, it loses its
validation members, even those joined through a chain, because held-out text must not leak. Documents of an index are
all kept.

The result doesn't depend on the number of workers, on the order in which parts finish, or on how documents are
distributed over parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from webtext.base.config import recipe_settings
from webtext.base.console import Console
from webtext.base.errors import DryRun, InputError
from webtext.base.parts.exchange import abouts, read_range
from webtext.base.parts.partset import PartSet, SetName, remove_set
from webtext.base.parts.recipe import sha256_json
from webtext.base.parts.schemas import SCHEMAS
from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean.dedup.candidates import find_candidates
from webtext.clean.dedup.components import find_components
from webtext.clean.dedup.copies import find_copies
from webtext.clean.dedup.documents import CODE_VERSION, VERSIONS, ComparedPart, Work, row_numbers
from webtext.clean.dedup.index import Index, open_indexes
from webtext.clean.dedup.losses import COMPARED, write_domains
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.settle import DROPPED, largest_of, settle_components
from webtext.clean.dedup.sign import KIND, sign_documents
from webtext.clean.reasons import TOO_MANY_BYTES
from webtext.clean.steps import UNMEASURED, Batch, Cleaning, DocumentsPart, Passing, Step, Verdict, listed

RESULT, DUPLICATES = "duplicates.json", "duplicates"
WORK = "_dedup"
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


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The rows to drop, part by part, in a set of kind `duplicates`. Picklable, because workers open the set."""

    rows: SetName
    threshold: float
    clusters: Clusters


@dataclass
class Dedup(Step):
    """Finds the duplicates among the documents that the steps before it keep, and refuses them."""

    settings: DedupSettings
    found: Any = None  # `Duplicates`, once prepared
    depends: str = ""
    versions = VERSIONS

    def sections(self) -> dict[str, Any]:
        return {"dedup": recipe_settings(self.settings)}

    def prepare(self, cleaning: Cleaning) -> Sequence[Step]:
        documents = cleaning.documents
        cleaning.parents += [index.signatures for index in open_indexes(self.settings, documents.folder)]
        passing = [
            Passing(cleaning.part(place), tuple(filter(None, (step.before_dedup() for step in steps))), part.records)
            for place, (part, steps) in enumerate(zip(documents.parts, cleaning.prepared, strict=True))
        ]
        found = find_duplicates(documents, self.settings, cleaning.out.child(WORK), cleaning.run, chosen=passing)
        return [Dedup(self.settings, found, part.record_digest) for part in found.rows.open().parts]

    def begin(self, part: DocumentsPart, dropped: Any) -> None:
        rows = self.found.rows.open().table(part.place)
        self._rows, self._dropped = rows.rename_columns({"similarity": "value"}), dropped
        # by the first row: a batch in which a later step fails comes again, row by row
        self._compared: dict[int, pa.RecordBatch] = {}

    def judge(self, batch: Batch) -> Sequence[Verdict]:
        verdicts = list(listed(self._rows, batch, threshold=self.found.threshold, stage="dedup"))
        reached, loses = batch.kept.copy(), np.zeros(len(batch.kept), np.bool_)
        for verdict in verdicts:
            reached &= ~verdict.drops | (verdict.reason not in UNMEASURED)
            loses |= verdict.drops
        columns = [batch.documents["domain"].filter(pa.array(reached)), pa.array(loses[reached])]
        self._compared[batch.first] = pa.record_batch(columns, schema=COMPARED)
        return verdicts

    def end(self) -> None:
        write_domains(self._dropped, list(self._compared.values()))


def find_duplicates(
    documents: PartSet, settings: DedupSettings, work: Folder, run: Run, *, chosen: Sequence[Passing] | None = None
) -> Duplicates:
    """Find the documents that are exact or near duplicates of another document.

    `chosen` has the mask of the rows to compare for each part (None: all rows). `work` is the folder of dedup's part
    sets. A later call reuses them only if records, masks, settings, indexes and code are the same. When the result is
    complete, all are removed but the signatures and the result itself.
    """
    indexes = open_indexes(settings, documents.folder)
    key = _result_key(documents, settings, chosen, indexes)
    if known := _known_result(work, key):
        return known
    if run.dry_run:
        run.console.say(f"clean.dedup: {documents.records:,} documents to compare")
        raise DryRun
    with work.held(shared=run.parts is not None):
        signatures = sign_documents(documents, work.location(KIND), run)
        compared = [(index.signatures, index.corpus) for index in indexes] + [(signatures, documents)]
        sources = [
            ComparedPart(
                SetName.of(signed), SetName.of(texts), part, texts.parts[part].records, signed is not signatures, mask
            )
            for signed, texts in compared
            for part, mask in enumerate(
                chosen if chosen is not None and signed is signatures else [None] * len(texts.parts)
            )
        ]
        made = Work(work, sources, settings, run)
        found = _find(made, compared)
        result = {"key": key, "rows": found.rows.hash, "threshold": found.threshold, "clusters": asdict(found.clusters)}
        work.write_object(RESULT, result | {"sha256": sha256_json(result)})
        for name in made.scratch if run.parts is None else ():  # other runs may be reading them
            remove_set(work.child(name))
    found.clusters.warn(run.console)
    return found


def _find(work: Work, compared: Sequence[tuple[PartSet, PartSet]]) -> Duplicates:
    signatures, documents = map(list, zip(*compared, strict=True))
    texts, copies = find_copies(work, signatures)
    edges = find_candidates(work, signatures, texts, copies)
    joined = find_components(work, edges, copies)
    members, settled = settle_components(work, signatures, documents, copies, joined)
    names = SetName.of(texts), SetName.of(members), SetName.of(settled)
    payloads = [(number, *names) for number in range(work.n_indexed, len(work.sources))]
    rows = work.make(DUPLICATES, _rows_of_part, payloads, [texts, members, settled], kind=DUPLICATES)
    clusters = _clusters_of(work, texts, members, edges, settled)
    return Duplicates(SetName.of(rows), work.settings.threshold, clusters)


def _result_key(
    documents: PartSet, settings: DedupSettings, chosen: Sequence[Passing] | None, indexes: Sequence[Index]
) -> str:
    return sha256_json(
        {
            "code_version": CODE_VERSION,
            "settings": recipe_settings(settings),
            "unicode": VERSIONS,
            "records": [part.record_digest for part in documents.parts],
            "indexes": [index.signatures.hash for index in indexes],
            "chosen": None if chosen is None else [each.digest for each in chosen],
        }
    )


def _known_result(work: Folder, key: str) -> Duplicates | None:
    """Return the result of an earlier call with the same key, if its files are complete and have their digests."""
    if not work.exists(RESULT):
        return None
    try:
        result = work.read_object(RESULT)
        if result["key"] != key or result.pop("sha256") != sha256_json(result):
            return None
        rows = PartSet.open(work.location(DUPLICATES), DUPLICATES)
        rows.verify()
        clusters = result["clusters"] | {"largest": [tuple(pair) for pair in result["clusters"]["largest"]]}
        known = Duplicates(SetName.of(rows), result["threshold"], Clusters(**clusters))
    except (ValueError, KeyError, TypeError, InputError):
        return None
    return known if rows.hash == result["rows"] else None


def _rows_of_part(context: PartContext, task: PartTask) -> None:
    """Write for a documents part the rows to drop and the rows that could not be compared."""
    _, (number, texts, members, settled) = task.payload
    dropped = pa.Table.from_batches(read_range(settled.open(), number, DROPPED), DROPPED)
    rows = pa.table([row_numbers(np.asarray(dropped["document"])), *dropped.columns[1:]], schema=SCHEMAS[DUPLICATES])
    failed = pa.concat_tables(opened.table(number) for opened in (texts.open(), members.open()))
    failed = failed.filter(failed["reason"].to_numpy() != TOO_MANY_BYTES)
    failed = pa.table([*failed.columns, [""] * failed.num_rows, [np.nan] * failed.num_rows], schema=SCHEMAS[DUPLICATES])
    context.main.write_table(pa.concat_tables([rows, failed]).sort_by("row"))


def _clusters_of(work: Work, texts: PartSet, members: PartSet, edges: PartSet, settled: PartSet) -> Clusters:
    """Add up the statements of the parts' entries about compared documents, work and clusters."""
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
