"""Removals: documents dropped before any rule, because their votes were retracted or the publisher was asked to.

votes      part sets of kind `removals`, one row for each link that lost posts. A
           document is dropped if all links that led to it lost all their posts; an imported document has no links, so
           its URL is looked up as one. Dedup doesn't see the dropped document: a duplicate with votes replaces it.
requests   a text file of URLs, domains and ids (`requests.py`). A document is dropped if a line names it or one of
           the links that led to it, together with its entire cluster (`clusters.py`). Nothing replaces it.
earlier    the set `dropped` of another build: a text removed there on request doesn't return here under another URL.
links      the links set of a build: `pages/` keeps the pages of links that it no longer contains; their documents are
           dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.console import Console
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import ENTRIES, MANIFEST, PartSet, SetName
from webtext.base.parts.partwriter import Parent
from webtext.base.parts.recipe import sha256_json
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.web.urls import canonical_url
from webtext.base.workers.journal import Journal
from webtext.clean.removal.requests import Line, Requests
from webtext.clean.settings import RemovalSettings
from webtext.clean.text.arrays import Keys, link_keys

STAGE = "remove"
REMOVED_BY_USER = "removed_by_user"
REMOVED_ON_REQUEST = "removed_on_request"
MIRROR_OF_REMOVED = "mirror_of_removed"
LINK_NOT_COLLECTED = "link_not_collected"

COLUMNS = ("id", "link_ids", "url")
BATCH_ROWS = 65_536
DOCUMENTS_A_GROUP = 4_000_000  # a task for each group of parts reads the removed and collected links once
MIN_GROUPS = 8
UNMATCHED_SHOWN = 10

Mask = npt.NDArray[np.bool_]
DECISIONS = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("duplicate_of", pa.string()),
        pa.field("request", pa.string()),
    ]
)


class Request(NamedTuple):
    """Why a document is removed on request. A document that no line names is a mirror of `mirror_of`."""

    line: Line
    mirror_of: str | None = None
    similarity: float | None = None


@dataclass(slots=True)
class Removed:
    """The rows of a documents set to remove, part by part; memory grows only with their number."""

    withdrawn: list[npt.NDArray[np.int64]]  # rows without a vote left, rising
    requested: list[dict[int, Request]]  # row -> why
    unlinked: list[npt.NDArray[np.int64]]  # rows none of whose links is still collected, rising
    parents: list[Parent] = field(default_factory=list)  # the lists that named documents
    lines: int = 0  # in the lists of requests
    earlier: tuple[SetName, ...] = ()  # sets `dropped` of other builds
    unmatched: list[Line] = field(default_factory=list)  # lines that name no document

    @classmethod
    def nothing(cls, n_parts: int) -> Removed:
        """Return the result without any removal."""
        withdrawn, unlinked = ([np.empty(0, np.int64) for _ in range(n_parts)] for _ in range(2))
        return cls(withdrawn, [{} for _ in range(n_parts)], unlinked)

    def to_json(self) -> dict[str, Any]:
        """Return the results of the lists of requests as plain JSON values."""
        named = sum(why.mirror_of is None for rows in self.requested for why in rows.values())
        return {
            "lines": self.lines,
            "unmatched": [asdict(line) for line in self.unmatched],
            REMOVED_ON_REQUEST: named,
            MIRROR_OF_REMOVED: sum(map(len, self.requested)) - named,
        }

    def warn(self, console: Console) -> None:
        """Warn about lines that name no document."""
        if self.unmatched:
            shown = [f"\n  {line}" for line in self.unmatched[:UNMATCHED_SHOWN]]
            more = len(self.unmatched) - len(shown)
            shown += [f"\n  and {more:,} more (all of them with --json)"] * bool(more)
            n = f"{len(self.unmatched):,} of {self.lines:,} lines of removal lists"
            console.warn(f"{n} name no document here:{''.join(shown)}")

    def keeps_votes(self, part: int, n_rows: int) -> Mask:
        """Return a mask of the rows that still have votes: dedup may compare only these."""
        mask = np.ones(n_rows, bool)
        mask[self.withdrawn[part]] = mask[self.unlinked[part]] = False
        return mask

    def table(self, part: int, threshold: float | None) -> pa.Table:
        """Return one part's rows to remove, with the schema DECISIONS; `threshold` is dedup's similarity threshold."""
        requested = self.requested[part]
        rows = [
            {
                "row": row,
                "reason": REMOVED_ON_REQUEST if why.mirror_of is None else MIRROR_OF_REMOVED,
                "value": why.similarity,
                "threshold": None if why.mirror_of is None else threshold,
                "duplicate_of": why.mirror_of,
                "request": why.line.written,
            }
            for row, why in sorted(requested.items())
        ]
        voteless = dict.fromkeys(self.unlinked[part].tolist(), LINK_NOT_COLLECTED)
        voteless |= dict.fromkeys(self.withdrawn[part].tolist(), REMOVED_BY_USER)
        rows += [{"row": row, "reason": voteless[row]} for row in sorted(voteless.keys() - requested.keys())]
        return pa.Table.from_pylist(rows, schema=DECISIONS)


@dataclass(frozen=True, slots=True)
class Removals:
    """The removal lists given to a run."""

    sets: tuple[SetName, ...] = ()
    requests: Requests | None = None
    earlier: tuple[SetName, ...] = ()
    links: SetName | None = None

    @classmethod
    def of(cls, settings: RemovalSettings, links: PartSet | None = None) -> Removals:
        """Open the lists of the settings, sorted. Raises InputError for a list that cannot be read."""
        folders = [PartSet.open(each, ("removals", "dropped")) for each in settings.remove if _is_folder(each)]
        sets = sorted({SetName.of(each) for each in folders}, key=lambda each: each.hash)
        files = [each for each in settings.remove if not _is_folder(each)]
        return cls(
            sets=tuple(each for each in sets if each.kind == "removals"),
            requests=Requests.read(files) if files else None,
            earlier=tuple(each for each in sets if each.kind == "dropped"),
            links=SetName.of(links) if links is not None else None,
        )

    def find(self, documents: PartSet, run: Run) -> Removed:
        """Find the documents that the lists name. A list or line that names none changes nothing and isn't a parent."""
        n_parts = len(documents.parts)
        removed = Removed.nothing(n_parts)
        removed.earlier = self.earlier
        if not self.sets and self.requests is None and self.links is None:
            return removed
        n_groups = min(n_parts, max(MIN_GROUPS, -(-documents.records // DOCUMENTS_A_GROUP)))
        groups = [(self, SetName.of(documents), range(number, n_parts, n_groups)) for number in range(n_groups)]
        matched: set[Line] = set()
        for found in run.map(_search, groups, "clean.removals", unit="group"):
            for part, (withdrawn, unlinked, requested) in found.items():
                removed.withdrawn[part], removed.unlinked[part] = _rows_of(withdrawn), _rows_of(unlinked)
                removed.requested[part] = {row: Request(lines[0]) for row, lines in requested.items()}
                matched.update(line for lines in requested.values() for line in lines)
        for rows, names in ((removed.withdrawn, self.sets), (removed.unlinked, (self.links,))):
            removed.parents += [name.open() for name in names if name and any(map(len, rows))]
        if self.requests is not None:
            removed.lines = len(self.requests.lines)
            removed.unmatched = [line for line in self.requests.lines if line not in matched]
            if matched:
                removed.parents.append(self.requests.parent(matched))
        return removed

    def requested(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Sequence[Line]]]:
        """Yield the rows of the batch that lines name, with these lines."""
        if self.requests is not None:
            columns = (batch[name].to_pylist() for name in COLUMNS)
            for row, about in enumerate(zip(*columns, strict=True)):
                if lines := self.requests.lines_for(*about):
                    yield row, lines


_Bits = npt.NDArray[np.uint8]


def _rows_of(bits: _Bits) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.unpackbits(bits))


def _search(
    journal: Journal, task: tuple[Removals, SetName, Sequence[int]]
) -> dict[int, tuple[_Bits, _Bits, dict[int, Sequence[Line]]]]:
    """Return part -> masks of the rows that are withdrawn and unlinked, and the lines that name a row; in a worker."""
    removals, name, parts = task
    documents = name.open()
    known = _collected(removals.links, documents, parts) if removals.links is not None else None
    found = {}
    for part in parts:
        journal.idle()  # progress
        withdrawn, unlinked = np.zeros((2, documents.parts[part].records), bool)
        first, requested = 0, dict[int, Sequence[Line]]()
        for batch in documents.batches(part, COLUMNS, BATCH_ROWS):
            rows = slice(first, first + batch.num_rows)
            if removals.sets:
                withdrawn[rows] = _withdrawn(batch, removals.sets)
            if known is not None:
                unlinked[rows] = _unlinked(batch, known)
            requested |= {first + row: lines for row, lines in removals.requested(batch)}
            first = rows.stop
        found[part] = np.packbits(withdrawn), np.packbits(unlinked), requested
    return found


def digest_of(decisions: pa.Table) -> str:
    """Return a digest of a part's removed rows for its key; empty if there are none, so the part isn't rewritten."""
    return sha256_json(decisions.to_pylist()) if decisions.num_rows else ""


def _is_folder(location: str) -> bool:
    """Return whether the location is a part set, or a folder that should be one."""
    folder = Folder(location)
    return folder.exists(MANIFEST) or folder.exists(ENTRIES) or (folder.is_local and folder.local_path().is_dir())


def _withdrawn(documents: pa.RecordBatch, sets: tuple[SetName, ...]) -> Mask:
    """Return a mask of the documents that have no votes left."""
    links, urls = documents["link_ids"], documents["url"]
    gone = pc.is_in(pc.list_flatten(links), value_set=_removed_links(sets)).to_numpy(zero_copy_only=False)
    mask = _all_gone(documents, gone)
    for row in np.flatnonzero(pc.equal(pc.list_value_length(links), 0)).tolist():
        url = urls[row].as_py()
        canonical = canonical_url(url) if url else None
        mask[row] = canonical is not None and link_id(canonical) in _removed_ids(sets)
    return np.asarray(mask, bool)


def _unlinked(documents: pa.RecordBatch, known: Keys) -> Mask:
    """Return a mask of the documents that have links, none of which is in `known`."""
    keys = link_keys(pc.list_flatten(documents["link_ids"]))
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return _all_gone(documents, known[places] != keys)


def _collected(links: SetName, documents: PartSet, parts: Sequence[int]) -> Keys:
    """Return the sorted keys of these documents' links that are in the set, and a 0 so that the array is never empty.

    Memory depends on the documents, not on the number of links.
    """
    batches = (batch for part in parts for batch in documents.batches(part, ["link_ids"], BATCH_ROWS))
    wanted = np.unique(
        np.concatenate([np.zeros(1, np.uint64), *(link_keys(pc.list_flatten(each["link_ids"])) for each in batches)])
    )
    there = wanted == 0
    opened = links.open()
    for part in opened.parts:
        keys = link_keys(opened.table(part, ["link_id"])["link_id"])
        places = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
        there[places[wanted[places] == keys]] = True
    return np.asarray(wanted[there])


def _all_gone(documents: pa.RecordBatch, gone: Mask) -> Mask:
    """Return a mask of the documents that have links, all of them in `gone`, a mask over the links of all documents."""
    lengths = pc.list_value_length(documents["link_ids"]).to_numpy(zero_copy_only=False)
    n_gone = np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights=gone, minlength=len(lengths))
    return np.asarray((lengths > 0) & (n_gone == lengths))


@functools.lru_cache(maxsize=2)
def _removed_links(sets: tuple[SetName, ...]) -> pa.Array:
    """Return the ids of the links without a post left; 36 bytes of memory each."""
    opened = [name.open() for name in sets]
    tables = [each.table(part, ["link_id", "posts_left"]) for each in opened for part in each.parts]
    found = [table.filter(pc.equal(table["posts_left"], 0))["link_id"] for table in tables]
    return pa.chunked_array(found, pa.string()).combine_chunks()


@functools.lru_cache(maxsize=2)
def _removed_ids(sets: tuple[SetName, ...]) -> frozenset[str]:
    """Return the ids of `_removed_links` as a set, for documents without links."""
    return frozenset(_removed_links(sets).to_pylist())
