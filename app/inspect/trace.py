"""Trace a URL, a document or a token through a build, from posts to tokens, by reading the part sets.

Rows are found by key: for each part the key column first, then only the rows that match. Memory is one part's key column
plus the rows found, however large the build is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.app.chain import SETS, BuildLayout
from webtext.base.config import from_table
from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet, parents_of
from webtext.base.web.urls import canonical_url
from webtext.clean.rules.thresholds import RULES, RuleSettings
from webtext.shards.reader import TokenShards
from webtext.shards.trace import Origin
from webtext.shards.trace import trace as origin_of

Row = dict[str, Any]
TWIN = ["id", "url", "text"]
MEMBER = [*TWIN, "karma", "date", "split"]
START_CHARACTERS = 200
WITHHELD = {"title": None, "author": None, "text_start": ""}
"""What replaces the words of a document that was removed on request."""


@dataclass(slots=True)
class Trace:
    """One URL's path. `stage` is the last stage it reached, `reason` why it went no further (None in the corpus).

    `link` and `page` belong to the URL itself; `links` are all links that led to the document. `twin` is the document that
    the decision names, which was kept instead. `others` are ids of further documents of
    the same URL, `rules` each rule's verdict on the document.
    """

    url: str
    stage: str
    reason: str | None = None
    link: Row | None = None
    page: Row | None = None
    document: Row | None = None
    decision: Row | None = None
    twin: Row | None = None
    others: list[str] = field(default_factory=list)
    rules: list[Row] = field(default_factory=list)
    links: list[Row] = field(default_factory=list)
    tokens: list[Row] = field(default_factory=list)

    @property
    def removed(self) -> bool:
        """Whether the document was removed on request, so that its words aren't shown."""
        return self.decision is not None and self.decision["request"] is not None


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """Where a token of a shard comes from. `trace` is None if the tokens were packed from a corpus without documents."""

    origin: Origin
    trace: Trace | None

    @classmethod
    def at(cls, root: str, place: str) -> TokenTrace:
        """Trace the token at `place`, SHARD:OFFSET, of the build in `root`. ConfigError, or InputError if there is none."""
        shard, colon, offset = place.rpartition(":")
        if not colon or not offset.isascii() or not offset.isdigit():
            raise ConfigError(f"'{place}' is not of the form SHARD:OFFSET", "e.g. train-00000.tok:4096")
        split = "validation" if shard.startswith("validation-") else "train"
        origin = origin_of(TokenShards(BuildLayout.existing(root).tokens, split=split), shard, int(offset))
        return cls(origin, Tracer(root).trace_document(origin.id))


class Tracer:
    """Traces records of the build in `root`. Each call reads each set once and keeps only the rows it found."""

    def __init__(self, root: str) -> None:
        self._root, layout = root, BuildLayout.existing(root)
        self._sets = {name: layout.open(name) for name in SETS}
        self._sets["documents"] = documents = build_documents(layout)
        if self._sets["pages"] is None and documents is not None:
            self._sets["pages"] = next((each for each in parents_of(documents) if each.kind == "pages"), None)
        pages = self._sets["pages"]
        if self._sets["links"] is None and pages is not None:  # a sample shares the whole build's links
            self._sets["links"] = next((each for each in parents_of(pages) if each.kind == "links"), None)

    def find(self, url_or_id: str) -> Trace | None:
        """Trace a URL or a document id; None when nothing has that id, or, without links, that URL.

        A URL is a link's, in any spelling, or a document's own URL after redirects.
        """
        url_or_id = url_or_id.encode(errors="replace").decode()  # what isn't UTF-8 on a command line has surrogates
        url = canonical_url(url_or_id) if "://" in url_or_id else None
        if url is None:
            return self._with_rules(self.trace_document(url_or_id))
        found = self.trace(url)
        at_url = [row["id"] for row in find_rows(self._sets["documents"], "url", {url_or_id, url}, ["id"])]
        if found.document is None:  # the address of a document, or an id that looks like one
            found = self.trace_document(at_url[0] if at_url else url_or_id) or found
        if self._sets["links"] is None and not (found.document or found.page):  # from WARC files, or imported
            reason = self._failure("documents", lambda id_: id_.endswith((f" {url_or_id}", f" {url}")))
            return Trace(url, "documents", reason) if reason else None
        own = found.document["id"] if found.document else None
        found.others = [identifier for identifier in at_url if identifier != own]
        return self._with_rules(found)

    def why(self, url_or_id: str) -> Trace:
        """Trace a URL or a document id, like `find`; InputError when nothing has it."""
        found = self.find(url_or_id)
        if found is None:
            raise InputError(
                f"no document '{url_or_id}' in '{self._root}'",
                "name a URL with http:// or https://, or an id from the documents set",
            )
        return found

    def trace(self, url: str) -> Trace:
        return self.trace_all([url])[url]

    def trace_all(self, urls: Iterable[str]) -> dict[str, Trace]:
        """Trace many canonical URLs; each set is read once for all of them."""
        by_id = {link_id(url): url for url in urls}
        links = self._by("links", "link_id", by_id)
        pages = self._by("pages", "link_id", by_id)
        documents = list(find_rows(self._sets["documents"], "link_ids", by_id))
        unlinked = [url for identifier, url in by_id.items() if identifier not in links]
        at_url = find_rows(self._sets["documents"], "url", unlinked)
        documents += [row for row in at_url if not row["link_ids"]]  # from pages without links
        of_link = {identifier: row for row in documents for identifier in row["link_ids"]}
        of_url = {row["url"]: row for row in documents if not row["link_ids"]}
        ends = self._ends(documents)
        return {
            url: self._trace(
                url, links.get(identifier), pages.get(identifier), of_link.get(identifier) or of_url.get(url), ends
            )
            for identifier, url in by_id.items()
        }

    def trace_documents(self, identifiers: Collection[str]) -> dict[str, Trace]:
        """Trace documents back to their links and forward to their tokens; unknown ids are left out."""
        documents = list(find_rows(self._sets["documents"], "id", identifiers))
        first_links = [row["link_ids"][0] for row in documents if row["link_ids"]]
        pages = self._by("pages", "link_id", first_links)
        ends = self._ends(documents)
        traces = {}
        for row in documents:
            first = row["link_ids"][0] if row["link_ids"] else ""
            link = ends.links.get(first)
            url = link["url"] if link else row["url"] or row["id"]
            traces[row["id"]] = self._trace(url, link, pages.get(first), row, ends)
        return traces

    def trace_document(self, identifier: str) -> Trace | None:
        """Trace one document; None when no document has this id."""
        return self.trace_documents([identifier]).get(identifier)

    def _with_rules(self, trace: Trace | None) -> Trace | None:
        if trace is not None and trace.document is not None:
            trace.rules = _rules_of(self._sets["signals"], self._sets["corpus"], trace.document["id"])
        return trace

    def text(self, trace: Trace) -> str:
        """Return the whole text of a trace's document; empty if it was removed on request."""
        wanted = [trace.document["id"]] if trace.document and not trace.removed else []
        rows = find_rows(self._sets["documents"], "id", wanted, ["id", "text"], whole_text=True)
        return "".join(row["text"] for row in rows)

    def _by(self, name: str, key: str, wanted: Collection[str]) -> dict[str, Row]:
        return {row[key]: row for row in find_rows(self._sets[name], key, wanted)}

    def _ends(self, documents: Iterable[Row]) -> _Ends:
        documents = list(documents)
        identifiers = {row["id"] for row in documents}
        decisions = self._by("dropped", "id", identifiers)
        twins = {row["duplicate_of"] for row in decisions.values() if row["duplicate_of"]}
        where = [self._sets["documents"], *earlier_corpora(self._sets["corpus"])]
        found = {row["id"]: row for each in reversed(where) for row in find_rows(each, "id", twins, TWIN)}
        for row in find_rows(self._sets["dropped"], "id", found, ["id", "request"]):
            found[row["id"]] |= WITHHELD if row["request"] is not None else {}
        return _Ends(
            links=self._by("links", "link_id", {link for row in documents for link in row["link_ids"]}),
            decisions=decisions,
            twins=found,
            kept={row["id"] for row in find_rows(self._sets["corpus"], "id", identifiers, ["id"])},
            tokens=self._by("tokens", "id", identifiers),
        )

    def _trace(self, url: str, link: Row | None, page: Row | None, document: Row | None, ends: _Ends) -> Trace:
        stage, reason = self._end(link, page, document, ends)
        trace = Trace(url, stage, reason, link, page, document)
        if document is not None:
            trace.links = [ends.links[each] for each in document["link_ids"] if each in ends.links]
            trace.decision = ends.decisions.get(document["id"])
            document |= WITHHELD if trace.removed else {}
            trace.twin = ends.twins.get((trace.decision or {}).get("duplicate_of") or "")
            tokens = ends.tokens.get(document["id"])
            trace.tokens = [tokens] if tokens else []
        return trace

    def _end(self, link: Row | None, page: Row | None, document: Row | None, ends: _Ends) -> tuple[str, str | None]:
        """Return the stage where the record stopped, and the reason."""
        if document is None and link is None and page is None:
            return "links", "not_a_link"
        if document is None and page is None:
            return "pages", "not_fetched_yet"
        if page is not None and page["outcome"] != "fetched":
            return "pages", page["reason"]
        if document is None:
            return "documents", self._why_no_document(page or {})
        decision = ends.decisions.get(document["id"])
        if decision is not None:
            return "dropped", decision["reason"]
        if document["id"] in ends.kept:
            return "corpus", None
        return "documents", self._failure("corpus", lambda id_: id_ == document["id"]) or "not_judged_yet"

    def _failure(self, name: str, is_wanted: Callable[[str], bool]) -> str | None:
        """Return why the first failed record of a set with such an id failed, if there is one."""
        failures = found.failures() if (found := self._sets[name]) else ()
        return next((failure.reason for failure in failures if is_wanted(failure.id)), None)

    def _why_no_document(self, page: Row) -> str:
        """Return this page's failure, else all reasons for which extraction dropped pages, since those leave no row."""
        documents = self._sets["documents"]
        if documents is None:
            return "not_extracted_yet"
        place = f"{page['warc_file']}:{page['warc_offset']} "
        failed = self._failure("documents", lambda id_: id_.startswith(place))
        return failed or " or ".join(sorted(documents.counts.dropped)) or "not_extracted_yet"


def _rules_of(signals: PartSet | None, corpus: PartSet | None, identifier: str) -> list[Row]:
    """Return one row per rule of the corpus's recipe: rule, column, value, bound ('min' or 'max'), threshold, drops.

    Empty when the build has no signals, applied no rules, applied rules of another version, or couldn't measure the document.
    """
    row = next(find_rows(signals, "id", [identifier]), None)
    return [_said(row, *each) for each in thresholds_of(corpus).items()] if row and not row["failed"] else []


def thresholds_of(corpus: PartSet | None) -> dict[str, float]:
    """Return the thresholds that a corpus was made with, by rule; empty for unknown rules of another version."""
    recorded = corpus.recipe["settings"].get("rules") if corpus else None
    try:
        return from_table(RuleSettings, recorded, "clean.rules").thresholds() if isinstance(recorded, dict) else {}
    except ConfigError:
        return {}


def _said(row: Row, reason: str, threshold: float) -> Row:
    rule = RULES[reason]
    value = row[rule.column]
    drops = value is not None and (value < threshold if rule.bound == "min" else value > threshold)
    return {
        "rule": reason,
        "column": rule.column,
        "value": value,
        "bound": rule.bound,
        "threshold": threshold,
        "drops": drops,
    }


@dataclass(frozen=True, slots=True)
class _Ends:
    """Rows of other sets that belong to some documents."""

    links: Mapping[str, Row]
    decisions: Mapping[str, Row]
    twins: Mapping[str, Row]
    kept: set[str]
    tokens: Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A document that dedup kept, and the decisions on its duplicates.

    `decision` is the one on the document itself, if it was removed on request.
    """

    kept: Row
    decision: Row | None
    dropped: list[Row]


def find_cluster(root: str, identifier: str) -> Cluster | None:
    """Return the cluster that a document belongs to, as the kept one or as a duplicate; None when it has no duplicates."""
    layout = BuildLayout(root)
    dropped = layout.open("dropped")
    head, own = identifier, _decision(dropped, identifier)
    above = {head}
    while own is not None and own["duplicate_of"] and own["duplicate_of"] not in above:
        head = own["duplicate_of"]
        above.add(head)
        own = _decision(dropped, head)
    members: list[Row] = []
    wanted, known = {head}, {head}
    while wanted:
        found = [row for row in find_rows(dropped, "duplicate_of", wanted) if row["id"] not in known]
        members += found
        wanted = {row["id"] for row in found}
        known |= wanted
    corpus = layout.open("corpus")
    where = [corpus, *earlier_corpora(corpus)] if own is None else [build_documents(layout)]
    kept = next((row for each in where for row in find_rows(each, "id", [head], MEMBER)), None)
    if kept is None:  # it is in an earlier build that isn't available
        kept = dict.fromkeys(("url", "text_start", "characters", "karma", "date", "split")) | {"id": head}
    if own and own["request"] is not None:
        kept["text_start"] = None
    return Cluster(kept, own, members) if members else None


def build_documents(layout: BuildLayout) -> PartSet | None:
    """Return a build's documents; when they are in another folder, the parent that its corpus names."""
    documents = layout.open("documents")
    corpus = layout.open("corpus") if documents is None else None
    parents = parents_of(corpus) if corpus else ()
    return documents or next((parent for parent in parents if parent.kind in ("documents", "corpus")), None)


def earlier_corpora(corpus: PartSet | None) -> list[PartSet]:
    """Return the corpora of earlier builds that this one was deduplicated against."""
    indexes = [parent for parent in parents_of(corpus) if parent.kind == "signatures"] if corpus else []
    return [earlier for index in indexes for earlier in parents_of(index)]


def _decision(dropped: PartSet | None, identifier: str) -> Row | None:
    return next(find_rows(dropped, "id", [identifier]), None)


def find_rows(
    opened: PartSet | None,
    key: str,
    wanted: Collection[str],
    columns: Sequence[str] | None = None,
    *,
    whole_text: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the rows whose column `key` (a string or a list of strings) contains one of `wanted`, in the order of the set.

    A column `text` is cut to its start and named `text_start`, unless `whole_text`. None as the set yields nothing.
    """
    if opened is None or not wanted:
        return
    values = pa.array(sorted(wanted), pa.string())
    for index in range(len(opened.parts)):
        hits = _hits(opened.table(index, [key]).column(key), values)
        if not len(hits):
            continue
        start = 0
        for batch in opened.batches(index, columns):
            first, last = np.searchsorted(hits, [start, start + len(batch)])
            if first < last:
                rows = batch.take(pa.array(hits[first:last] - start)).to_pylist()
                yield from rows if whole_text else map(_shortened, rows)
            start += len(batch)


def _hits(column: pa.ChunkedArray, values: pa.Array) -> np.ndarray:
    """Return the numbers of the rows whose column contains a value, in order."""
    if pa.types.is_list(column.type):
        array = column.combine_chunks()
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        rows = pc.list_parent_indices(array).to_numpy()
        return np.unique(rows[pc.is_in(pc.list_flatten(array), values).to_numpy(zero_copy_only=False)])
    return np.flatnonzero(pc.is_in(column, values).to_numpy())


def _shortened(row: dict[str, Any]) -> dict[str, Any]:
    if "text" in row:
        text = row.pop("text")
        row |= {"text_start": text[:START_CHARACTERS], "characters": len(text)}
    return row
