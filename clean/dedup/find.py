"""Find duplicates: exact ones by text digest, near ones by MinHash bands and then exact Jaccard.

    1 sign      write the signatures and facts of all documents, a part set                 sign.py
    2 order     write the facts about all documents to mapped files; find equal texts       columns.py
    3 join      join texts that share a bucket and have similar signatures                  candidates.py
    4 verify    compute the shingle sets of joined texts; in priority order, drop a text
                if and only if its exact Jaccard with one that is kept reaches the threshold  sets.py, settle.py
    5 publish   write the rows to drop of each part, and the clusters                       publish.py

A text is compared only with texts that are kept, so no removal rests on a chain: if A ~ B ~ C, A is unlike C and A has
priority, A and C are kept. If a cluster (texts joined by such edges) has members in both splits, it loses its
validation members, even those joined through a chain, because held-out text must not leak. Documents of an index are
all kept.

The result doesn't depend on the number of workers, on the order in which parts finish, or on how documents are
distributed over parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.config import recipe_settings
from webtext.base.errors import DryRun, InputError
from webtext.base.parts.digest import file_sha256
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import sha256_json
from webtext.base.run import Run
from webtext.base.storage import Folder, no_space_is_an_error
from webtext.clean import _minhash
from webtext.clean.dedup.columns import Bits, Source, packed_masks, read_columns
from webtext.clean.dedup.index import Index, open_indexes
from webtext.clean.dedup.publish import Clusters, publish_rows, rows_name
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.settle import settle_near
from webtext.clean.dedup.sign import KIND, sign_documents

CODE_VERSION = 3
RESULT = "duplicates.json"
VERSIONS = {"unicode": _minhash.UNICODE_VERSION}
"""Versions for the recipes of sets that are made with dedup."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The rows to drop, part by part. Picklable, because tables are read from the work folder."""

    work: Folder
    digests: tuple[str, ...]
    threshold: float
    clusters: Clusters

    def table(self, part: int) -> pa.Table:
        """Return the rows to drop from documents part `part`: row (ascending), reason, duplicate_of, similarity."""
        with pa.memory_map(str(self.work.local_path(rows_name(part)))) as source:
            return pa.ipc.open_file(source).read_all()

    def digest(self, part: int) -> str:
        """Return a digest of the values of `table(part)`."""
        return self.digests[part]


def find_duplicates(
    documents: PartSet,
    settings: DedupSettings,
    work: Folder,
    run: Run,
    *,
    passes: Callable[[int], npt.NDArray[np.bool_]] | None = None,
) -> Duplicates:
    """Find the documents that are exact or near duplicates of another document.

    `passes(part)` returns which rows to compare (None: all). `work` is a local folder for scratch files. A later call
    reuses them only if records, passing rows, settings, indexes and code are the same.
    """
    masks = packed_masks(passes, [part.records for part in documents.parts])
    indexes = open_indexes(settings, documents.folder)
    key = _result_key(documents, settings, masks, indexes)
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
        signatures = sign_documents(documents, work.location(KIND), settings, run)
        sources = [
            Source.of(index.corpus, index.signatures, part, indexed=True)
            for index in indexes
            for part in range(len(index.signatures.parts))
        ]
        sources += [Source.of(documents, signatures, part, mask) for part, mask in enumerate(masks)]
        try:
            with no_space_is_an_error(scratch.url):
                columns = read_columns(sources, settings.permutations, scratch.local_path())
                counted = settle_near(columns, settings, scratch, run)
                digests, clusters = publish_rows(columns, counted, work, scratch, run)
        finally:
            scratch.remove_all()
        result: dict[str, Any] = {
            "key": key,
            "digests": digests,
            "files": [_file_digest(work, part) for part in range(len(documents.parts))],
            "threshold": settings.threshold,
            "clusters": asdict(clusters),
        }
        result["sha256"] = sha256_json(result)
        work.write_object(RESULT, result)
        return Duplicates(work, tuple(digests), settings.threshold, clusters)


def _result_key(
    documents: PartSet, settings: DedupSettings, masks: Sequence[Bits | None], indexes: Sequence[Index]
) -> str:
    return sha256_json(
        {
            "code_version": CODE_VERSION,
            "settings": recipe_settings(settings),
            "unicode": _minhash.UNICODE_VERSION,
            "records": [part.record_digest for part in documents.parts],
            "indexes": [index.signatures.hash for index in indexes],
            "passes": [None if mask is None else hashlib.sha256(mask.tobytes()).hexdigest() for mask in masks],
        }
    )


def _known_result(work: Folder, key: str, n_parts: int) -> Duplicates | None:
    """Return the result of an earlier call with the same key, if all its files exist and have their digests."""
    if not work.exists(RESULT):
        return None
    try:
        result = json.loads(work.read_bytes(RESULT))
        if result["key"] != key or result.pop("sha256") != sha256_json(result):
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
    with work.open(rows_name(part)) as file:
        return file_sha256(file)
