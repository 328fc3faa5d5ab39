"""Documents dropped before any rule: a list names them, or their links are no longer collected.

requests   text files of URLs, domains and ids. A document is dropped if a line names it or one of the links that led to it.
           Dedup compares it all the same, so its duplicates stay dropped and nothing replaces it.
links      the links set of a build: `pages/` keeps the pages of links that it no longer contains. Their documents are
           dropped, and dedup doesn't see them.

A list has one URL, domain or document id per line, in plain UTF-8 text:

    # letter of 3 May
    https://example.org/a-page      # the page, by http or https, and every document that a link to it led to
    example.net                     # the domain and its subdomains
    0f115db062b7c0dd030b16878c99dea5
    id:urn:uuid:1c0f                # the id of an imported document, in any form

A comment is a line that starts with `#`, or the text after a blank and `#`. Any other line is an error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.console import Console
from webtext.base.errors import InputError
from webtext.base.parts.digest import Keys, link_keys
from webtext.base.parts.identifiers import ID_HEX_DIGITS, link_id
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import sha256_json
from webtext.base.parts.stage import Parent
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.web.urls import SCHEMES, canonical_url, host_of
from webtext.base.workers.attempt import Attempt
from webtext.clean.settings import RemovalSettings
from webtext.clean.steps import Batch, Cleaning, Step, Verdict, listed

STAGE = "remove"
REMOVED_ON_REQUEST = "removed_on_request"
LINK_NOT_COLLECTED = "link_not_collected"

COLUMNS = ("id", "link_ids", "url")
BATCH_ROWS = 65_536
DOCUMENTS_A_GROUP = 4_000_000  # a task for each group of parts reads the collected links once
MIN_GROUPS = 8
UNMATCHED_SHOWN = 10
DECISIONS = pa.schema([("row", pa.int64()), ("reason", pa.string()), ("request", pa.string())])

_COMMENT = re.compile(r"(?:^|\s)#.*")
_ID = re.compile(rf"id:\s*(.+)|([0-9a-f]{{{ID_HEX_DIGITS}}})")
_HOST = re.compile(r"[^\s./\\@?:*\[\]][^\s/\\@?:*\[\]]*\.[^\s/\\@?:*\[\]]+|\[[0-9A-Fa-f:.]+\]")
_MAX_SHOWN = 80


@dataclass(slots=True)
class Removed:
    """The rows of a documents set to remove, part by part; memory grows only with their number."""

    requested: list[dict[int, Request]]  # row -> the line that names it
    unlinked: list[npt.NDArray[np.int64]]  # rows none of whose links is still collected, rising
    parents: list[Parent] = field(default_factory=list)  # the lists that named documents
    lines: int = 0  # in the lists of requests
    unmatched: list[Request] = field(default_factory=list)  # lines that name no document

    def to_json(self) -> dict[str, Any]:
        """Return the results of the lists of requests as plain JSON values."""
        unmatched = [asdict(line) for line in self.unmatched]
        return {"lines": self.lines, "unmatched": unmatched, REMOVED_ON_REQUEST: sum(map(len, self.requested))}

    def warn(self, console: Console) -> None:
        """Warn about lines that name no document."""
        if self.unmatched:
            shown = [f"\n  {line}" for line in self.unmatched[:UNMATCHED_SHOWN]]
            more = len(self.unmatched) - len(shown)
            shown += [f"\n  and {more:,} more (all of them with --json)"] * bool(more)
            n = f"{len(self.unmatched):,} of {self.lines:,} lines of removal lists"
            console.warn(f"{n} name no document here:{''.join(shown)}")

    def rows(self, part: int) -> RemovedRows:
        """Return one part's rows to remove."""
        requested = self.requested[part]
        rows: list[dict[str, Any]] = [
            {"row": row, "reason": REMOVED_ON_REQUEST, "request": line.written}
            for row, line in sorted(requested.items())
        ]
        unlinked = (row for row in self.unlinked[part].tolist() if row not in requested)
        rows += [{"row": row, "reason": LINK_NOT_COLLECTED} for row in unlinked]
        return RemovedRows(pa.Table.from_pylist(rows, schema=DECISIONS), self.unlinked[part])


@dataclass
class RemovedRows(Step):
    """`Removals`, prepared for a part."""

    rows: pa.Table  # DECISIONS
    unlinked: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        # empty without rows, so that the part isn't rewritten
        self.depends = sha256_json(self.rows.to_pylist()) if self.rows.num_rows else ""

    def before_dedup(self) -> Step:
        """Return the step without requests, which dedup ignores."""
        rows = [{"row": row, "reason": LINK_NOT_COLLECTED} for row in self.unlinked.tolist()]
        return RemovedRows(pa.Table.from_pylist(rows, DECISIONS), self.unlinked)

    def judge(self, batch: Batch) -> Iterator[Verdict]:
        for verdict in listed(self.rows, batch):
            yield replace(verdict, stage="votes" if verdict.reason == LINK_NOT_COLLECTED else STAGE)


@dataclass
class Removals(Step):
    """The step that applies removal lists."""

    requests: Requests | None = None
    links: SetName | None = None

    @classmethod
    def of(cls, settings: RemovalSettings, links: PartSet | None = None) -> Removals:
        """Read the lists of the settings. Raises InputError for a list that cannot be read."""
        requests = Requests.read(settings.remove) if settings.remove else None
        return cls(requests, SetName.of(links) if links is not None else None)

    def prepare(self, cleaning: Cleaning) -> Sequence[Step]:
        removed = cleaning.removed = self.find(cleaning.documents, cleaning.run)
        removed.warn(cleaning.run.console)
        cleaning.parents += removed.parents
        return [removed.rows(part) for part in range(len(cleaning.documents.parts))]

    def find(self, documents: PartSet, run: Run) -> Removed:
        """Find the documents that the lists name. A list or line that names none changes nothing and isn't a parent."""
        n_parts = len(documents.parts)
        removed = Removed([{} for _ in range(n_parts)], [np.empty(0, np.int64) for _ in range(n_parts)])
        if self.requests is None and self.links is None:
            return removed
        n_groups = min(n_parts, max(MIN_GROUPS, -(-documents.records // DOCUMENTS_A_GROUP)))
        groups = [(self, SetName.of(documents), range(number, n_parts, n_groups)) for number in range(n_groups)]
        matched: set[Request] = set()
        for found in run.map(_search, groups, "clean.removals", unit="group"):
            for part, (unlinked, requested) in found.items():
                removed.unlinked[part] = np.flatnonzero(np.unpackbits(unlinked))
                removed.requested[part] = {row: lines[0] for row, lines in requested.items()}
                matched.update(line for lines in requested.values() for line in lines)
        if self.links is not None and any(map(len, removed.unlinked)):
            removed.parents.append(self.links.open())
        if self.requests is not None:
            removed.lines = len(self.requests.lines)
            removed.unmatched = [line for line in self.requests.lines if line not in matched]
            if matched:
                removed.parents.append(self.requests.parent(matched))
        return removed

    def requested(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Sequence[Request]]]:
        """Yield the rows of the batch that lines name, with these lines."""
        if self.requests is not None:
            columns = (batch[name].to_pylist() for name in COLUMNS)
            for row, about in enumerate(zip(*columns, strict=True)):
                if lines := self.requests.lines_for(*about):
                    yield row, lines


def _search(
    attempt: Attempt, task: tuple[Removals, SetName, Sequence[int]]
) -> dict[int, tuple[npt.NDArray[np.uint8], dict[int, Sequence[Request]]]]:
    """Return part -> a mask of the rows that are unlinked, as bits, and the lines that name a row; in a worker."""
    removals, name, parts = task
    documents = name.open()
    known = collected_links(removals.links, documents, parts) if removals.links is not None else None
    found = {}
    for part in parts:
        attempt.idle()  # progress
        unlinked = np.zeros(documents.parts[part].records, bool)
        first, requested = 0, dict[int, Sequence[Request]]()
        for batch in documents.batches(part, COLUMNS, BATCH_ROWS):
            if known is not None:
                unlinked[first : first + batch.num_rows] = _unlinked(batch, known)
            requested |= {first + row: lines for row, lines in removals.requested(batch)}
            first += batch.num_rows
        found[part] = np.packbits(unlinked), requested
    return found


def _unlinked(documents: pa.RecordBatch, known: Keys) -> npt.NDArray[np.bool_]:
    """Return a mask of the documents that have links, none of which is in `known`."""
    keys = link_keys(pc.list_flatten(documents["link_ids"]))
    gone = known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] != keys
    lengths = pc.list_value_length(documents["link_ids"]).to_numpy(zero_copy_only=False)
    n_gone = np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights=gone, minlength=len(lengths))
    return np.asarray((lengths > 0) & (n_gone == lengths))


def collected_links(links: SetName, documents: PartSet, parts: Sequence[int]) -> Keys:
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


@dataclass(frozen=True, slots=True)
class Request:
    """One line of a list, without its comment."""

    list: str  # path or URL of the list
    number: int
    written: str

    def __str__(self) -> str:
        return f"'{self.list}' line {self.number:,}: {self.written[:_MAX_SHOWN]!r}"


@dataclass(frozen=True, slots=True)
class RequestList:
    """A parent in a manifest: one hash for a set of lines, whatever their order and lists."""

    hash: str
    folder: Folder
    kind = "removal_list"


@dataclass(slots=True)
class Requests:
    """The entries of removal lists as look-up tables; if two lines name the same thing, the first one counts."""

    lists: tuple[str, ...] = ()
    lines: list[Request] = field(default_factory=list)
    _ids: dict[str, Request] = field(default_factory=dict)
    _urls: dict[str, Request] = field(default_factory=dict)  # without scheme
    _links: dict[str, Request] = field(default_factory=dict)
    _domains: dict[str, Request] = field(default_factory=dict)

    @classmethod
    def read(cls, locations: Iterable[str]) -> Requests:
        """Read the lists at these paths or fsspec URLs. Raises InputError with file and number of an invalid line."""
        requests = cls(tuple(dict.fromkeys(locations)))
        for location in requests.lists:
            for line in _lines(location):
                requests._add(line)
        return requests

    def __reduce__(self) -> tuple[Any, ...]:
        """Let workers read the lists themselves: the tables may be large."""
        return _read_again, (self.lists, sha256_json([str(line) for line in self.lines]))

    def lines_for(self, identifier: str, link_ids: Sequence[str], url: str | None) -> list[Request]:
        """Return the lines that name a document, the most specific first: its id, a link's URL, its URL, its domain."""
        found = [self._ids.get(identifier), *(self._links.get(each) for each in link_ids)]
        canonical = canonical_url(url) if url and (self._urls or self._domains) else None
        if canonical is not None:
            found.append(self._urls.get(_without_scheme(canonical)))
            labels = host_of(canonical).removesuffix(".").split(".")
            found += [self._domains.get(".".join(labels[start:])) for start in range(len(labels))]
        return list(dict.fromkeys(line for line in found if line is not None))

    def parent(self, lines: Iterable[Request]) -> RequestList:
        """Return the lines that named documents, as a parent of the sets made without these documents."""
        return RequestList(sha256_json(sorted({line.written for line in lines})), Folder(self.lists[0]))

    def _add(self, line: Request) -> None:
        written = line.written
        self.lines.append(line)
        if found := _ID.fullmatch(written):
            self._ids.setdefault(found[1] or found[2], line)
        elif host := _host(written):
            self._domains.setdefault(host, line)
        elif (url := canonical_url(written)) is not None:
            bare = _without_scheme(url)
            self._urls.setdefault(bare, line)
            for scheme in SCHEMES:
                self._links.setdefault(link_id(scheme + bare), line)
        else:
            raise InputError(
                f"{line} is not a URL, domain or document id",
                "write one per line: https://example.org/page, example.org (without scheme and path), or id:ANY-ID; "
                "a comment starts with '#'",
            )


@functools.lru_cache(maxsize=1)
def _read_again(lists: tuple[str, ...], digest: str) -> Requests:
    requests = Requests.read(lists)
    if sha256_json([str(line) for line in requests.lines]) != digest:
        raise InputError("a removal list changed while it was read", "rerun the same command")
    return requests


def _lines(location: str) -> Iterable[Request]:
    folder, name = Folder.split(location)
    if not folder.is_file(name):
        raise InputError(
            f"removal list '{location}' does not exist or is not a file", "name text files of URLs, domains and ids"
        )
    data = folder.read_bytes(name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"'{location}' line {line:,} is not UTF-8", "save the list as UTF-8") from None
    for number, row in enumerate(text.split("\n"), 1):
        if written := _COMMENT.sub("", row).strip():
            yield Request(location, number, written)


def _host(written: str) -> str | None:
    """Return the domain that a line names in canonical form (lower case, IDNA); None if it isn't a domain."""
    url = canonical_url(f"http://{written}/") if _HOST.fullmatch(written) else None
    return host_of(url).removesuffix(".") if url else None


def _without_scheme(url: str) -> str:
    return url.partition("://")[2]
