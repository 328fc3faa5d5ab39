"""Where a URL, a document or a token ended, and why: from the posts that voted to the tokens. Read from the parts alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from webtext.app.chain import Layout
from webtext.app.lookup import find_rows, open_if_there
from webtext.base.schemas import link_id

Row = dict[str, Any]


@dataclass(slots=True)
class Trace:
    """One URL's way. `stage` is where it ended, `reason` why it went no further (None in the corpus).

    `link` and `page` are those of the URL itself; `links` are all links that led to the document.
    """

    url: str
    stage: str
    reason: str | None = None
    link: Row | None = None
    page: Row | None = None
    document: Row | None = None
    decision: Row | None = None
    links: list[Row] = field(default_factory=list)
    tokens: list[Row] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


class Tracer:
    """Answers for the build in `root`. Each question reads each set once, and holds no more than the rows it found."""

    def __init__(self, root: str) -> None:
        layout = Layout(root)
        self._sets = {
            name: open_if_there(getattr(layout, name), name)
            for name in ("links", "pages", "documents", "dropped", "corpus", "tokens")
        }

    def trace(self, url: str) -> Trace:
        """Follow a canonical URL as far as it went."""
        return self.trace_all([url])[url]

    def trace_all(self, urls: Iterable[str]) -> dict[str, Trace]:
        """Follow many canonical URLs; each set is read once for all of them."""
        by_id = {link_id(url): url for url in urls}
        links = self._by("links", "link_id", by_id)
        pages = self._by("pages", "link_id", by_id)
        documents = list(find_rows(self._sets["documents"], "link_ids", by_id))
        unlinked = [url for identifier, url in by_id.items() if identifier not in links]
        documents += [
            row for row in find_rows(self._sets["documents"], "url", unlinked) if not row["link_ids"]
        ]  # of pages that came without links
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
        """Follow documents back to their links and forth to their tokens; ids that name no document are left out."""
        documents = list(find_rows(self._sets["documents"], "id", identifiers))
        first_links = [row["link_ids"][0] for row in documents if row["link_ids"]]
        pages = self._by("pages", "link_id", first_links)
        ends = self._ends(documents)
        traces = {}
        for row in documents:
            first = row["link_ids"][0] if row["link_ids"] else ""
            link = ends.links.get(first)
            traces[row["id"]] = self._trace(link["url"] if link else row["url"], link, pages.get(first), row, ends)
        return traces

    def trace_document(self, identifier: str) -> Trace | None:
        """Follow one document; None when none has this id."""
        return self.trace_documents([identifier]).get(identifier)

    def _by(self, name: str, key: str, wanted: Collection[str]) -> dict[str, Row]:
        return {row[key]: row for row in find_rows(self._sets[name], key, wanted)}

    def _ends(self, documents: Iterable[Row]) -> _Ends:
        documents = list(documents)
        identifiers = {row["id"] for row in documents}
        return _Ends(
            links=self._by("links", "link_id", {link for row in documents for link in row["link_ids"]}),
            decisions=self._by("dropped", "id", identifiers),
            kept={row["id"] for row in find_rows(self._sets["corpus"], "id", identifiers, ["id"])},
            tokens=self._by("tokens", "id", identifiers),
        )

    def _trace(self, url: str, link: Row | None, page: Row | None, document: Row | None, ends: _Ends) -> Trace:
        stage, reason = self._end(link, page, document, ends)
        trace = Trace(url, stage, reason, link, page, document)
        if document is not None:
            trace.links = [ends.links[each] for each in document["link_ids"] if each in ends.links]
            trace.decision = ends.decisions.get(document["id"])
            tokens = ends.tokens.get(document["id"])
            trace.tokens = [tokens] if tokens else []
        return trace

    def _end(self, link: Row | None, page: Row | None, document: Row | None, ends: _Ends) -> tuple[str, str | None]:
        """Stage and reason: the first stage that did not hand it on."""
        if document is None and link is None:
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
        return ("corpus", None) if document["id"] in ends.kept else ("documents", "not_judged_yet")

    def _why_no_document(self, page: Row) -> str:
        """The failure that names this page's record; else the reasons for which extraction drops pages without a row."""
        documents = self._sets["documents"]
        if documents is None:
            return "not_extracted_yet"
        place = f"{page['warc_file']}:{page['warc_offset']} "
        for part in documents.parts:
            for failure in part.failures:
                if failure.id.startswith(place):
                    return failure.reason
        return " or ".join(sorted(documents.counts.dropped)) or "not_extracted_yet"


@dataclass(frozen=True, slots=True)
class _Ends:
    """What is known of some documents beyond their own rows."""

    links: Mapping[str, Row]
    decisions: Mapping[str, Row]
    kept: set[str]
    tokens: Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A document that stays, and the decisions over all that were dropped as its duplicates."""

    kept: Row
    dropped: list[Row]


def find_cluster(root: str, identifier: str) -> Cluster | None:
    """The cluster of a document, whether it is the one that stays or a duplicate; None when it has no duplicates."""
    layout = Layout(root)
    dropped = open_if_there(layout.dropped, "dropped")
    own = next((row for row in find_rows(dropped, "id", [identifier]) if row["duplicate_of"]), None)
    stays = own["duplicate_of"] if own else identifier
    members = list(find_rows(dropped, "duplicate_of", [stays]))
    corpus = open_if_there(layout.corpus, "corpus")
    kept = next(find_rows(corpus, "id", [stays], ["id", "url", "karma", "date", "split", "text"]), None)
    return Cluster(kept, members) if kept is not None and members else None
