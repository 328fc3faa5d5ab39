"""Find duplicates: exact ones by text digest, near ones by MinHash bands and then exact Jaccard.

    signatures          sign every document                                                        sign.py
    texts, copies       find equal texts                                                           copies.py
    bands, edges        pair texts that share a bucket and have similar sketches                   candidates.py
    components          join pairs and copies into components                                      components.py
    members, settled    compute the shingle sets of joined texts; in priority order, drop a text
                        if and only if its exact Jaccard with one that is kept reaches the threshold   settle.py
    duplicates          the rows to drop of each part; the clusters                                publish.py

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

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from webtext.base.config import recipe_settings
from webtext.base.errors import DryRun, InputError
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import sha256_json
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean.dedup.candidates import find_candidates
from webtext.clean.dedup.components import find_components
from webtext.clean.dedup.copies import find_copies
from webtext.clean.dedup.documents import CODE_VERSION, VERSIONS, Chosen, Source, Work
from webtext.clean.dedup.index import Index, open_indexes
from webtext.clean.dedup.publish import DUPLICATES, Clusters, clusters_of, publish_rows
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.settle import settle_components
from webtext.clean.dedup.sign import KIND, sign_documents

RESULT = "duplicates.json"


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The rows to drop, part by part, in a set of kind `duplicates`. Picklable, because workers open the set."""

    rows: SetName
    threshold: float
    clusters: Clusters

    def table(self, part: int) -> pa.Table:
        """Return the rows to drop from documents part `part`: row (ascending), reason, duplicate_of, similarity."""
        return self.rows.open().table(part)

    def digest(self, part: int) -> str:
        """Return a digest of the values of `table(part)`."""
        return self.rows.open().parts[part].record_digest


def find_duplicates(
    documents: PartSet,
    settings: DedupSettings,
    work: Folder,
    run: Run,
    *,
    chosen: Sequence[Chosen] | None = None,
) -> Duplicates:
    """Find the documents that are exact or near duplicates of another document.

    `chosen` has the mask of the rows to compare for each part (None: all rows). `work` is the folder of dedup's part
    sets. A later call reuses them only if records, masks, settings, indexes and code are the same. When the result is
    complete, all are removed but the signatures and the result itself.
    """
    indexes = open_indexes(settings, documents.folder)
    key = _result_key(documents, settings, chosen, indexes)
    known = _known_result(work, key)
    if known:
        return known
    if run.dry_run:
        run.console.say(f"clean.dedup: {documents.records:,} documents to compare")
        raise DryRun
    with work.held(shared=run.parts is not None):
        signatures = sign_documents(documents, work.location(KIND), run)
        compared = [(index.signatures, index.corpus) for index in indexes] + [(signatures, documents)]
        sources = [
            Source(
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
            work.child(name).remove_all()
    found.clusters.warn(run.console)
    return found


def _find(work: Work, compared: Sequence[tuple[PartSet, PartSet]]) -> Duplicates:
    signatures, documents = map(list, zip(*compared, strict=True))
    texts, copies = find_copies(work, signatures)
    edges = find_candidates(work, signatures, texts, copies)
    joined = find_components(work, edges, copies)
    members, settled = settle_components(work, signatures, documents, copies, joined)
    rows = publish_rows(work, texts, members, settled)
    clusters = clusters_of(work, texts, members, edges, settled)
    return Duplicates(SetName.of(rows), work.settings.threshold, clusters)


def _result_key(
    documents: PartSet, settings: DedupSettings, chosen: Sequence[Chosen] | None, indexes: Sequence[Index]
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
