"""Search a build's documents and decisions with DuckDB, which gets the columns that a query needs.

Values are bound, never part of the SQL. DuckDB opens no file and loads no extension: it gets the rows as a stream from
`PartSet`, which compares each part with its SHA-256 once, takes any path as it is, and reads no more than a query asks for.
"""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlencode

import duckdb
import pyarrow as pa

from webtext.app.chain import BuildLayout
from webtext.app.inspect.trace import build_documents, find_rows
from webtext.base.errors import ConfigError, InputError, one_line
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import PartSet
from webtext.base.parts.schemas import SCHEMAS
from webtext.clean.removals import REMOVED_ON_REQUEST

PAGE_ROWS = 50
BATCH_ROWS = 1 << 16
MAX_SECONDS = 60.0
MEMORY = "1GB"
COLUMNS = {
    "documents": ("id", "url", "title", "domain", "language", "karma", "date"),
    "corpus": ("id", "url", "title", "domain", "language", "karma", "date"),
    "dropped": ("id", "url", "reason", "stage", "value", "threshold"),
    "pages": ("url", "outcome", "reason", "cause", "karma"),
}
"""Set -> the columns that are shown of it."""
TEXTS = {"documents": "text", "corpus": "text", "dropped": "text_start", "pages": "url"}
"""Set -> the column in which a text is looked for."""
AROUND = 80
"""Characters shown on either side of a text that was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search: the state of a page of results, and its query string. Empty fields don't filter.

    `min_karma` is a number and `since` and `until` are dates like 2019-12-31, as typed.
    """

    set: str = "documents"
    text: str = ""
    domain: str = ""
    reason: str = ""
    language: str = ""
    min_karma: str = ""
    since: str = ""
    until: str = ""
    page: str = "1"

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Query:
        """Return the query of a query string; unknown names are ignored. ConfigError for a bad value."""
        given = {each.name: values.get(each.name, "").strip() for each in fields(cls)}
        query = cls(**{name: value for name, value in given.items() if value})
        if query.set not in COLUMNS:
            raise ConfigError(f"unknown set '{query.set}'", f"choose one of {', '.join(COLUMNS)}")
        query._conditions()
        _number("page", query.page)
        return query

    def url(self, **changes: object) -> str:
        """Return the address of the search with some fields changed; a change other than the page's returns to page 1."""
        now = asdict(self) | {"page": "1"} | changes
        return "/search?" + urlencode({name: value for name, value in now.items() if value})

    @property
    def first_row(self) -> int:
        return (max(_number("page", self.page), 1) - 1) * PAGE_ROWS

    def _conditions(self) -> list[tuple[str, Any]]:
        """Return the conditions on columns, as SQL with one placeholder, and the values."""
        equal = {name: getattr(self, name) for name in ("domain", "language", "reason")}
        found: list[tuple[str, Any]] = [(f"{name} = ?", value) for name, value in equal.items() if value]
        if self.min_karma:
            found.append(("karma >= ?", _number("min_karma", self.min_karma)))
        if self.since:
            found.append(("date >= ?", _seconds("since", self.since)))
        if self.until:
            found.append(("date < ?", _seconds("until", self.until) + 86_400))
        return found


class Search:
    """Searches of one build; may be called by many threads."""

    def __init__(self, root: str) -> None:
        self._layout = BuildLayout.existing(root)
        self._connection = duckdb.connect(
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        )
        self._connection.execute(f"SET memory_limit = '{MEMORY}'")
        self._connection.execute("SET temp_directory = ''")  # else it would be in the current folder
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def open(self, name: str) -> PartSet:
        """Return a set of the build; InputError if it hasn't been made, is damaged or of a newer format."""
        documents = build_documents(self._layout) if name == "documents" else None
        return documents or PartSet.open(getattr(self._layout, name), name)

    def rows(self, query: Query) -> Iterator[dict[str, Any]]:
        """Yield the rows of the query's page, and one more if there is another page.

        Without a text, rows are sorted by karma, highest first, and each has the number of all as `n`. With one, they are in
        the order of the set, sent as they are found, and have the text `around` it. Raises InputError if the search takes
        longer than MAX_SECONDS, or meets a file that can't be read.
        """
        cursor = self._connection.cursor()
        timer = threading.Timer(MAX_SECONDS, cursor.interrupt)
        timer.start()
        try:
            yield from self._found(cursor, query)
        except duckdb.InterruptException:
            raise InputError(
                f"the search took longer than {MAX_SECONDS:g} s",
                "filter by domain or language, or retry: the first search of a set also checks its files",
            ) from None
        except duckdb.Error as error:
            cause = (
                str(error).rpartition("Unknown error: ")[2].partition(" Detail: Python")[0]
            )  # of `PartSet`, no trace
            cause = one_line(cause, 400)
            raise InputError(f"the search failed: {cause}", "check the set with webtext inspect set --verify") from None
        finally:
            timer.cancel()
            cursor.close()

    def reasons(self, name: str) -> list[str]:
        """Return the reasons of a set's records, most frequent first: of documents, why they were dropped."""
        kind = "pages" if name == "pages" else "corpus"
        opened = self._layout.open(kind)
        counts = opened.counts if opened else Counts()
        found = Counter(counts.dropped) + Counter(counts.failed if name == "pages" else {})
        return [reason for reason, _ in found.most_common()]

    def _found(self, cursor: duckdb.DuckDBPyConnection, query: Query) -> Iterator[dict[str, Any]]:
        opened = self.open(query.set)
        if not query.text:
            parts = list(range(len(opened.parts)))
            yield from self._judged(query, self._select(cursor, opened, parts, query, query.first_row, PAGE_ROWS + 1))
            return
        skipped, wanted = query.first_row, PAGE_ROWS + 1
        for part in range(len(opened.parts)):  # part by part, so that the first hits are shown while others are read
            rows = self._select(cursor, opened, [part], query, 0, skipped + wanted)
            yield from self._judged(query, rows[skipped:])
            wanted -= max(len(rows) - skipped, 0)
            skipped = max(skipped - len(rows), 0)
            if wanted <= 0:
                return

    def _judged(self, query: Query, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield rows; those of all documents, once there are decisions, with the reason why they were dropped or None.

        The words of a document that was removed on request are left out.
        """
        dropped = self._layout.open("dropped") if query.set == "documents" and rows else None
        if dropped is None:
            yield from rows
            return
        decided = find_rows(dropped, "id", {row["id"] for row in rows}, ["id", "reason"])
        reasons = {row["id"]: row["reason"] for row in decided}
        for row in rows:
            reason = reasons.get(row["id"])
            yield row | {"decision": reason} | ({"title": None, "around": ""} if reason == REMOVED_ON_REQUEST else {})

    def _select(
        self,
        cursor: duckdb.DuckDBPyConnection,
        opened: PartSet,
        parts: list[int],
        query: Query,
        first: int,
        n_rows: int,
    ) -> list[dict[str, Any]]:
        shown, text = COLUMNS[query.set], TEXTS[query.set]
        needed = dict.fromkeys([*shown, text] if query.text else shown)
        conditions = query._conditions()
        asked = {sql.split()[0] for sql, _ in conditions}
        if query.set == "pages" and (lacking := sorted(asked - set(shown))):
            raise ConfigError(f"pages have no {lacking[0]}", "filter them by text, reason or karma")
        selected, values = [f"a.{name}" for name in shown], []
        if query.text:
            selected.append(f"substr(a.{text}, greatest(1, instr(lower(a.{text}), lower(?)) - {AROUND}), ?)")
            values += [query.text, len(query.text) + 2 * AROUND]
            conditions.append((f"contains(lower({text}), lower(?))", query.text))
        else:
            selected.append("count(*) OVER ()")
        _register(cursor, "a", opened, parts, list(needed))
        sql = f"SELECT {', '.join(selected)} FROM a"
        of_documents = query.set == "dropped" and bool(asked - {"reason"})
        if of_documents or (query.set in ("documents", "corpus") and query.reason):
            other = self.open("documents" if of_documents else "dropped")
            names = ["id", "domain", "language", "karma", "date"] if of_documents else ["id", "reason"]
            _register(cursor, "b", other, list(range(len(other.parts))), names)
            sql += " JOIN b USING (id)"
        if conditions:
            sql += " WHERE " + " AND ".join(condition for condition, _ in conditions)
            values += [value for _, value in conditions]
        if not query.text:
            sql += " ORDER BY " + ("a.id" if query.set == "dropped" else f"a.karma DESC NULLS LAST, a.{shown[0]}")
        cursor.execute(f"{sql} LIMIT ? OFFSET ?", [*values, n_rows, first])
        names = [*shown, "around" if query.text else "n"]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _register(
    cursor: duckdb.DuckDBPyConnection, name: str, opened: PartSet, parts: list[int], columns: list[str]
) -> None:
    """Make columns of some parts a table that can be read once."""
    batches = (batch.select(columns) for part in parts for batch in opened.batches(part, columns, BATCH_ROWS))
    schema = pa.schema([SCHEMAS[opened.kind].field(column) for column in columns])
    cursor.register(name, pa.RecordBatchReader.from_batches(schema, batches))


def _number(name: str, text: str) -> int:
    try:
        return int(text[:12])
    except ValueError:
        raise ConfigError(f"{name} is '{text[:40]}'", "it must be a whole number") from None


def _seconds(name: str, text: str) -> int:
    try:
        return int(datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp())
    except (ValueError, OverflowError):
        raise ConfigError(f"{name} is '{text[:40]}'", "it must be a date like 2019-12-31") from None
