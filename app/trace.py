"""Where one URL ended, and why: from the posts that voted for it to the tokens it became. Read from the parts alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from webtext.app.chain import Layout
from webtext.base.partset import PartSet
from webtext.base.schemas import link_id
from webtext.base.storage import Folder


@dataclass(slots=True)
class Trace:
    """One URL's way. `stage` is where it ended, `reason` why it went no further (None in the corpus)."""

    url: str
    stage: str
    reason: str | None = None
    link: dict[str, Any] | None = None
    page: dict[str, Any] | None = None
    document: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None
    tokens: list[dict[str, Any]] = field(default_factory=list)


class Tracer:
    """Answers for the build in `root`. Each set is read once and only in the columns that are needed."""

    def __init__(self, root: str) -> None:
        self._layout = Layout(root)
        self._links = self._by("links", "link_id", None)
        self._pages = self._by("pages", "link_id", None)
        self._documents = self._documents_by_link()
        self._decisions = self._by("dropped", "id", None)
        self._tokens = self._by("tokens", "id", None)

    def trace(self, url: str) -> Trace:
        """Follow a canonical URL as far as it went."""
        identifier = link_id(url)
        link = self._links.get(identifier)
        if link is None:
            return Trace(url, "links", "not_a_link")
        page = self._pages.get(identifier)
        if page is None:
            return Trace(url, "pages", "not_fetched_yet", link)
        if page["outcome"] != "fetched":
            return Trace(url, "pages", page["reason"], link, page)
        document = self._documents.get(identifier)
        if document is None:
            return Trace(url, "documents", self._why_no_document(page), link, page)
        decision = self._decisions.get(document["id"])
        if decision is not None:
            return Trace(url, "dropped", decision["reason"], link, page, document, decision)
        tokens = self._tokens.get(document["id"])
        return Trace(url, "corpus", None, link, page, document, None, [tokens] if tokens else [])

    def trace_document(self, identifier: str) -> Trace | None:
        """Follow a document back to its first link, and on from there; None when no document has this id."""
        for document in self._documents.values():
            if document["id"] == identifier:
                return self.trace(self._links[document["link_ids"][0]]["url"])
        return None

    def _by(self, name: str, key: str, columns: list[str] | None) -> dict[str, dict[str, Any]]:
        url = getattr(self._layout, name)
        if not Folder(url).exists("manifest.json"):
            return {}
        opened = PartSet.open(url, name)
        return {row[key]: row for part in opened.parts for row in opened.table(part, columns).to_pylist()}

    def _documents_by_link(self) -> dict[str, dict[str, Any]]:
        if not Folder(self._layout.documents).exists("manifest.json"):
            return {}
        opened = PartSet.open(self._layout.documents, "documents")
        columns = ["id", "link_ids", "url", "title", "date", "language", "karma", "split", "warc_file", "warc_offset"]
        found: dict[str, dict[str, Any]] = {}
        for part in opened.parts:
            table = opened.table(part, [*columns, "text"])
            starts = pc.utf8_slice_codeunits(table.column("text"), 0, 200)
            for row, start in zip(table.select(columns).to_pylist(), starts.to_pylist(), strict=True):
                found.update({identifier: row | {"text_start": start} for identifier in row["link_ids"]})
        return found

    def _why_no_document(self, page: dict[str, Any]) -> str:
        """The extraction's failure for this page, by its record's name; else that nothing was extracted."""
        opened = PartSet.open(self._layout.documents, "documents")
        names = {page["final_url"], page["url"]}
        for part in opened.parts:
            for failure in part.failures:
                if any(name in failure.id for name in names if name):
                    return failure.reason
        return "nothing_extracted"
