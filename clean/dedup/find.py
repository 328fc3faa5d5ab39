"""Find duplicates: exact ones by text digest, near ones by MinHash bands and then exact Jaccard.

    1 sign      each part, in the engine: signature and priority of each document           sign.py
    2 order     documents by priority; distinct texts become nodes                          nodes.py
    3 mark      which nodes meet another one in a band and agree with it by signature       candidates.py
    4 verify    the marked nodes' shingle sets; in priority order, drop a node if and only
                if its exact Jaccard with one that stays reaches the threshold              sets.py, native/settle.cpp

What is kept is settled against what stays alone, so a removal never rests on a chain: A ~ B ~ C with A unlike C keeps
A and C when A has priority. A cluster (joined by such edges) that reaches from validation into train loses its
validation members, chain or not: held-out text must not leak.

Nothing here depends on the number of workers, on the order in which parts finish, or on how documents lie in parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.config import recipe_settings
from webtext.base.digest import DIGEST_ROWS, RecordDigest, file_sha256
from webtext.base.errors import DryRun, InputError
from webtext.base.partset import PartSet
from webtext.base.recipe import sha256_json
from webtext.base.run import Run
from webtext.base.storage import Folder, no_space_is_an_error
from webtext.clean import _minhash
from webtext.clean.dedup.candidates import bucket_table, mark_candidates, min_agreement
from webtext.clean.dedup.nodes import Nodes, gather_signatures, masks_of, order_texts
from webtext.clean.dedup.sets import shingle_sets
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import SignTask, sign_documents

CODE_VERSION = 1
EXACT, NEAR, NEAR_TRAIN = "exact_duplicate", "near_duplicate", "near_duplicate_of_train"
BUCKET_LIMIT = 4096
"""A bucket remembers so many nodes that stay; those beyond are counted (`Clusters.beyond_limit`), not compared there."""
GIANT_CLUSTER = 1000
LARGEST_NAMED = 20
RESULT = "duplicates.json"
VERSIONS = {"unicode": _minhash.UNICODE_VERSION}
"""For the recipes of what is made with dedup."""

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
    """What was found, for the report. A cluster is a document that stays and all that were dropped for it."""

    documents: int
    dropped: dict[str, int]  # by reason
    clusters: int
    sizes: dict[str, int]  # size of a cluster -> how many have it
    largest: list[tuple[str, int]]  # (id of the document that stays, size), largest first
    candidates: int  # distinct texts that met a similar one
    verified: int  # pairs whose exact Jaccard was computed
    beyond_limit: int  # times a full bucket did not remember a text


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The rows to drop, part by part. Picklable: tables are read from the work folder."""

    work: Folder
    digests: tuple[str, ...]
    threshold: float
    clusters: Clusters

    def table(self, part: int) -> pa.Table:
        """Rows of documents part `part` to drop: row (rising), reason, duplicate_of, similarity."""
        with pa.memory_map(str(self.work.local_path(_rows_name(part)))) as source:
            return pa.ipc.open_file(source).read_all()

    def digest(self, part: int) -> str:
        """A digest of `table(part)`'s values."""
        return self.digests[part]


def find_duplicates(
    documents: PartSet,
    settings: DedupSettings,
    work: Folder,
    run: Run,
    *,
    passes: Callable[[int], npt.NDArray[np.bool_]] | None = None,
) -> Duplicates:
    """Find which documents say what another one already says.

    `passes(part)` tells which rows take part (all, when None). `work` is a local folder for scratch files, which a
    later call trusts only where records, rows that pass, settings and code are the same.
    """
    masks = masks_of(passes, [part.records for part in documents.parts])
    key = _result_key(documents, settings, masks)
    known = _known_result(work, key, len(documents.parts))
    if known:
        return known
    if run.dry_run:
        run.console.say(f"clean.dedup: {documents.records:,} documents to compare")
        raise DryRun
    with work.held():
        work.remove_leftovers()
        scratch = work.child("scratch")
        scratch.remove_all()
        with no_space_is_an_error(scratch.url):
            scratch.local_path().mkdir(parents=True)
        sign_documents(
            [
                SignTask(
                    documents=documents,
                    part=part,
                    work=work,
                    shingle_words=settings.shingle_words,
                    permutations=settings.permutations,
                )
                for part in range(len(documents.parts))
            ],
            run,
        )
        try:
            nodes = order_texts(work, len(documents.parts), masks)
            with no_space_is_an_error(scratch.url):
                verdicts = _settle(documents, nodes, settings, work, scratch, run)
        finally:
            scratch.remove_all()
        return _publish(nodes, verdicts, len(documents.parts), settings, work, key, run)


@dataclass(slots=True)
class _Verdicts:
    """For each node: the node that stays in its place (itself, if it does), and their Jaccard."""

    stays: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float64]
    candidates: int = 0
    verified: int = 0
    beyond_limit: int = 0


def _settle(
    documents: PartSet, nodes: Nodes, settings: DedupSettings, work: Folder, scratch: Folder, run: Run
) -> _Verdicts:
    verdicts = _Verdicts(np.arange(len(nodes)), np.ones(len(nodes)))
    least = min_agreement(settings.threshold, settings.permutations)
    signatures = gather_signatures(work, nodes, settings.permutations, scratch.local_path("signatures"))
    eligible = np.flatnonzero(nodes.has_words)
    candidates = np.flatnonzero(mark_candidates(signatures, eligible, settings.bands, settings.rows, least))
    if not len(candidates):
        return verdicts
    sets = shingle_sets(documents, nodes, candidates, settings.shingle_words, scratch, run)
    fate, stays, similarity, verified, beyond_limit = _minhash.settle(
        signatures[candidates],
        bucket_table(signatures, candidates, settings.bands, settings.rows),
        sets.values,
        sets.begins,
        sets.ends,
        n_train=int((candidates < nodes.n_train).sum()),
        threshold=settings.threshold,
        min_agreement=least,
        bucket_limit=BUCKET_LIMIT,
    )
    dropped = candidates[fate > 0]
    verdicts.stays[dropped] = candidates[stays[fate > 0]]
    verdicts.similarity[dropped] = similarity[fate > 0]
    verdicts.candidates, verdicts.verified, verdicts.beyond_limit = len(candidates), verified, beyond_limit
    return verdicts


def _publish(
    nodes: Nodes, verdicts: _Verdicts, n_parts: int, settings: DedupSettings, work: Folder, key: str, run: Run
) -> Duplicates:
    """Write each part's rows, then the result that makes them count."""
    stays = nodes.best[verdicts.stays[nodes.node_of]]  # of documents
    dropped = np.flatnonzero(stays != np.arange(nodes.n_documents))
    leaks = nodes.in_validation[dropped] & ~nodes.in_validation[stays[dropped]]
    copies = nodes.node_of[dropped] == nodes.node_of[stays[dropped]]
    reasons = np.where(leaks, NEAR_TRAIN, np.where(copies, EXACT, NEAR))
    digests = []
    for part in range(n_parts):
        of_part = nodes.parts[dropped] == part
        table = pa.table(
            {
                "row": nodes.rows[dropped[of_part]],
                "reason": reasons[of_part],
                "duplicate_of": nodes.ids.take(pa.array(stays[dropped[of_part]])),
                "similarity": verdicts.similarity[nodes.node_of[dropped[of_part]]],
            },
            schema=ROWS,
        ).combine_chunks()
        with work.scratch(_rows_name(part)) as path, pa.ipc.new_file(str(path), ROWS) as writer:
            writer.write_table(table)
        digests.append(_digest(table))
    clusters = _clusters(nodes, stays, dropped, reasons, verdicts)
    files = [_file_digest(work, part) for part in range(n_parts)]
    result = {
        "key": key,
        "digests": digests,
        "files": files,
        "threshold": settings.threshold,
        "clusters": asdict(clusters),
    }
    work.write_bytes(RESULT, (json.dumps(result, indent=1, sort_keys=True) + "\n").encode())
    if clusters.largest and clusters.largest[0][1] >= GIANT_CLUSTER:
        name, size = clusters.largest[0]
        run.console.warn(f"one cluster of near-duplicates holds {size:,} of {clusters.documents:,} documents: {name}")
    return Duplicates(work, tuple(digests), settings.threshold, clusters)


def _clusters(
    nodes: Nodes, stays: npt.NDArray[np.int64], dropped: npt.NDArray[np.int64], reasons: Any, verdicts: _Verdicts
) -> Clusters:
    kept, sizes = np.unique(stays[dropped], return_counts=True)
    sizes = sizes + 1
    names = nodes.ids.take(pa.array(kept)).to_pylist()
    largest = sorted(zip(names, sizes.tolist(), strict=True), key=lambda cluster: (-cluster[1], cluster[0]))
    return Clusters(
        documents=nodes.n_documents,
        dropped={str(reason): int(n) for reason, n in zip(*np.unique(reasons, return_counts=True), strict=True)},
        clusters=len(kept),
        sizes={str(size): int(n) for size, n in zip(*np.unique(sizes, return_counts=True), strict=True)},
        largest=largest[:LARGEST_NAMED],
        candidates=verdicts.candidates,
        verified=verdicts.verified,
        beyond_limit=verdicts.beyond_limit,
    )


def _result_key(documents: PartSet, settings: DedupSettings, masks: list[npt.NDArray[np.bool_]] | None) -> str:
    return sha256_json(
        {
            "code_version": CODE_VERSION,
            "settings": recipe_settings(settings),
            "unicode": _minhash.UNICODE_VERSION,
            "records": [part.record_digest for part in documents.parts],
            "passes": None
            if masks is None
            else [hashlib.sha256(np.packbits(mask).tobytes()).hexdigest() for mask in masks],
        }
    )


def _known_result(work: Folder, key: str, n_parts: int) -> Duplicates | None:
    """The result of an earlier call with the same key, if all its files are still there with their digests."""
    if not work.exists(RESULT):
        return None
    try:
        result = json.loads(work.read_bytes(RESULT))
        if result["key"] != key:
            return None
        clusters = Clusters(
            **(result["clusters"] | {"largest": [tuple(pair) for pair in result["clusters"]["largest"]]})
        )
        known = Duplicates(work, tuple(result["digests"]), result["threshold"], clusters)
        intact = result["files"] == [_file_digest(work, part) for part in range(n_parts)]  # before anything parses them
    except (ValueError, KeyError, TypeError, InputError, RecursionError):
        return None
    return known if intact else None


def _file_digest(work: Folder, part: int) -> str:
    with work.open(_rows_name(part)) as file:
        return file_sha256(file)


def _rows_name(part: int) -> str:
    return f"part-{part:05d}.duplicates"


def _digest(table: pa.Table) -> str:
    digest = RecordDigest()
    for start in range(0, table.num_rows, DIGEST_ROWS):
        digest.update(table.slice(start, DIGEST_ROWS))
    return digest.hexdigest()
