"""Lists of links: CSV, JSON lines, Parquet and plain URLs, with the votes as far as the columns contain them.

Columns are found by name, in any order and case (`COLUMNS`); only `url` is required. A URL is unescaped once, as for
Reddit's dumps: exports of its posts are full of `&amp;`, which nobody means in a URL. A row's post is identified by its
id, or by file and position without one. An id that is a full name (`t3_...`, `t1_...`) makes it that post of Reddit.
A missing score or time is taken from the settings `default_score` and `default_created`. Without a default the row is
dropped as `null_score` or `null_created`, since nothing shows that anybody voted for it.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from webtext.base.errors import InputError
from webtext.base.parts.untrusted_parquet import Expands, parquet_batches, rows_of
from webtext.crawl.links.comments import SOURCE as REDDIT_COMMENT
from webtext.crawl.links.dumps import SOURCE as REDDIT
from webtext.crawl.links.reddit_rows import unescaped, whole_number
from webtext.crawl.links.submission import Submission
from webtext.crawl.streams.lines import Unreadable, read_lines

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "url": ("url",),
    "score": ("score", "karma", "points", "ups"),
    "created": ("created_utc", "created", "date"),
    "retrieved": ("retrieved_on", "retrieved_utc", "retrieved"),
    "subreddit": ("subreddit",),
    "over_18": ("over_18",),
    "is_self": ("is_self",),
    "name": ("name",),
    "id": ("id", "post_id"),
    "source": ("source",),
}
"""The fields of a vote, and the column names accepted for each; the first one that exists is read."""

SOURCE = "list"
FULL_NAMES = {"t3_": REDDIT, "t1_": REDDIT_COMMENT}

Row = tuple[int, Mapping[str, Any]]  # position, values by the names of COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Values for rows that lack them."""

    file: str = "list"
    score: int | None = None
    created: int | None = None


class RowSource:
    """Base of the list sources: turns the values of one row into a vote."""

    def __init__(self, defaults: Defaults) -> None:
        self._defaults = defaults

    def parse(self, record: Row) -> Sequence[Submission] | Unreadable:
        """Return the vote of one row."""
        position, row = record
        try:
            return (_submission(row, position, self._defaults),)
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))


class UrlList(RowSource):
    """One URL per line; lines that begin with `#` are comments and count as no record."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Yield lines with their positions."""
        for position, line in read_lines(file):
            if isinstance(line, Unreadable):
                yield position, line
            elif not line.lstrip().startswith(b"#"):
                yield position, _read_as_text(position, {"url": line.decode("utf-8", "surrogateescape")})


class JsonLines:
    """One JSON object per line, with the keys of COLUMNS."""

    def __init__(self, defaults: Defaults) -> None:
        self._rows = RowSource(defaults)
        self._decode = msgspec.json.Decoder().decode

    def records(self, file: BinaryIO) -> Iterator[tuple[int, tuple[int, bytes] | Unreadable]]:
        """Yield lines with their positions."""
        for position, line in read_lines(file):
            yield position, line if isinstance(line, Unreadable) else (position, line)

    def parse(self, record: tuple[int, bytes]) -> Sequence[Submission] | Unreadable:
        """Return the vote of one line."""
        position, line = record
        try:
            value = self._object(line)
        except (ValueError, RecursionError) as error:
            return Unreadable("invalid_json", f"{type(error).__name__}: {error}"[:200])
        if not isinstance(value, dict):
            return Unreadable("wrong_type", f"expected an object, got {line[:40]!r}")
        columns = find_columns(tuple(value))
        return self._rows.parse((position, {ours: value[theirs] for ours, theirs in columns.items()}))

    def _object(self, line: bytes) -> Any:
        try:
            return self._decode(line)
        except msgspec.DecodeError:
            return json.loads(line)  # a lone surrogate, which the fast decoder rejects


class CsvFile(RowSource):
    """A table whose first line names its columns, separated by commas, or by tabs if that line contains one.

    A quoted field may contain line ends. A row with more or fewer fields than columns fails as `wrong_columns`. A row
    with a field of more than 131,072 characters (a quote that is never closed) fails as `field_too_long`; reading
    continues after it.
    """

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Yield rows with the positions of their first lines."""
        rows = csv_rows(file)
        names = csv_names(rows)
        columns = {ours: names.index(theirs) for ours, theirs in find_columns(names).items()}
        for position, fields in rows:
            if isinstance(fields, Unreadable):
                yield position, fields
            elif len(fields) != len(names):
                yield position, Unreadable("wrong_columns", f"{len(fields)} fields, and {len(names)} columns")
            else:
                yield position, _read_as_text(position, {name: fields[i] for name, i in columns.items()})


def csv_rows(file: BinaryIO) -> Iterator[tuple[int, list[str] | Unreadable]]:
    """Yield (position of the first line, fields) for each row, or Unreadable in place of one that cannot be read."""
    lines = _TextLines(file)
    first = next(lines, "")
    reader = csv.reader(itertools.chain([first], lines), delimiter="\t" if "\t" in first else ",")
    while True:
        fields: list[str] | Unreadable | None
        try:
            fields = next(reader, None)
        except csv.Error as error:
            fields = Unreadable("field_too_long", str(error))
        yield from lines.take_unreadable()
        if fields is None:
            return
        if fields:  # a blank line has none
            yield lines.start or 0, fields
        lines.start = None


def csv_names(rows: Iterator[tuple[int, list[str] | Unreadable]]) -> list[str]:
    """Return the column names from the first row; an empty list if it cannot be read."""
    _, names = next(rows, (0, []))
    return [] if isinstance(names, Unreadable) else names


def _read_as_text(position: int, row: Mapping[str, str]) -> Row | Unreadable:
    """Return the row, or Unreadable if its URL is not UTF-8; invalid bytes in other columns do not matter."""
    try:
        row.get("url", "").encode()
    except UnicodeEncodeError as error:
        return Unreadable("not_utf8", f"the URL's character {error.start} is not UTF-8")
    return position, row


class _TextLines:
    """Lines as text for the CSV reader; `start` is the position of the first line read since it was set to None."""

    def __init__(self, file: BinaryIO) -> None:
        self.start: int | None = None
        self._lines = read_lines(file)
        self._unreadable: list[tuple[int, Unreadable]] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        for position, line in self._lines:
            if isinstance(line, Unreadable):
                self._unreadable.append((position, line))
                continue
            if self.start is None:
                self.start = position
            return line.decode("utf-8", "surrogateescape") + "\n"
        raise StopIteration

    def take_unreadable(self) -> list[tuple[int, Unreadable]]:
        """Return the unreadable lines that were skipped since the last call."""
        taken, self._unreadable = self._unreadable, []
        return taken


class ParquetFile(RowSource):
    """A Parquet file with the columns of COLUMNS, read by row group; a position is a row number."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Yield the rows in order."""
        position = 0
        try:
            table = pq.ParquetFile(file)
            columns = find_columns(table.schema_arrow.names)
            for batch in parquet_batches(file, list(columns.values())):
                for row in rows_of(batch):
                    yield position, named_row(position, row, columns)
                    position += 1
        except (pa.ArrowException, OSError, Expands) as error:
            yield position, Unreadable("damaged_stream", f"Parquet: {' '.join(str(error).split())[:200]}")


def named_row(position: int, row: Mapping[str, Any] | Exception, columns: Mapping[str, str]) -> Row | Unreadable:
    """Return a row's values by the names of COLUMNS, or Unreadable if the row could not be decoded."""
    if isinstance(row, Exception):
        return Unreadable("not_utf8" if isinstance(row, UnicodeDecodeError) else "wrong_type", str(row))
    return position, {ours: row.get(theirs) for ours, theirs in columns.items()}


def find_columns(names: Sequence[str]) -> dict[str, str]:
    """Return which of a table's columns contains each field of COLUMNS.

    >>> find_columns(["URL", "ups", "karma", "title"])
    {'url': 'URL', 'score': 'karma'}
    """
    return _find_columns(tuple(names))


@functools.lru_cache(maxsize=256)
def _find_columns(names: tuple[str, ...]) -> dict[str, str]:
    by_name = {name.strip().lower(): name for name in reversed(names)}
    return {
        ours: by_name[known[0]]
        for ours, theirs in COLUMNS.items()
        if (known := [name for name in theirs if name in by_name])
    }


def check_csv(file: BinaryIO, location: str) -> None:
    """Raise InputError if the table has no column of URLs."""
    _need_url_column(csv_names(csv_rows(file)), location)


def check_parquet(file: BinaryIO, location: str) -> None:
    """Raise InputError if the file is damaged or has no column of URLs."""
    try:
        names = pq.ParquetFile(file).schema_arrow.names
    except (pa.ArrowException, OSError) as error:
        cause = " ".join(str(error).split())[:200]
        raise InputError(f"'{location}' is damaged: {cause}", "download it again") from None
    _need_url_column(names, location)


def _need_url_column(names: Sequence[str], location: str) -> None:
    if "url" not in find_columns(names):
        shown = ", ".join(names[:12])[:200]
        raise InputError(
            f"'{location}' has no column 'url': its columns are {shown or 'none'}",
            f"name the column of links 'url'; other columns that are read: {', '.join(sum(COLUMNS.values(), ())[1:])}",
        )


def _submission(row: Mapping[str, Any], position: int, defaults: Defaults) -> Submission:
    source, post_id = _post(row)
    score = _number(row.get("score"), "score")
    created = _moment(row.get("created"), "created")
    url = _text(row.get("url"), "url")
    return Submission(
        source=source,
        post_id=post_id or f"{defaults.file}:{position}",
        subreddit=_text(row.get("subreddit"), "subreddit"),
        url=unescaped(url) if url else None,
        score=defaults.score if score is None else score,
        created=defaults.created if created is None else created,
        retrieved=_moment(row.get("retrieved"), "retrieved"),
        is_self=_boolean(row.get("is_self"), "is_self"),
        over_18=_boolean(row.get("over_18"), "over_18"),
    )


def _post(row: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the source and the id of the post."""
    identifier = row.get("id")
    identifier = str(identifier) if isinstance(identifier, int) else _text(identifier, "id")
    name = row.get("name")  # the post's full name in Reddit's exports; elsewhere it can be anything
    for full_name in (name if isinstance(name, str) else None, identifier):
        match = _FULL_NAME.fullmatch(full_name or "")
        if match:
            return FULL_NAMES[match[1]], match[2]
    return _text(row.get("source"), "source") or SOURCE, identifier


_FULL_NAME = re.compile("(t[13]_)([0-9a-z]+)")
_NOTHING = frozenset({"", "null", "none", "nan", "na"})


def _text(value: Any, field: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise msgspec.ValidationError(f"{field} is {_shown(value)}, not text")
    return value.strip().encode("utf-8", "replace").decode() or None


def _number(value: Any, field: str) -> int | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
        return None
    if isinstance(value, float) and value != value:
        return None  # NaN, which data frames write for a missing value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise msgspec.ValidationError(f"{field} is {_shown(value)}, not a number")
    return whole_number(value.strip() if isinstance(value, str) else value, field)


def _moment(value: Any, field: str) -> int | None:
    """Return UTC seconds for a number, an ISO 8601 date or time, or a Parquet timestamp; without a zone it is UTC."""
    if isinstance(value, str) and _DATE.match(value.strip()):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise msgspec.ValidationError(f"{field} is {_shown(value)}, not a date or time") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() // 1)
    return _number(value, field)


_DATE = re.compile(r"\d{4}-?\d\d-?\d\d(\D|$)")


def _boolean(value: Any, field: str) -> bool:
    word = str(value).strip().lower() if isinstance(value, str | bool | int | float) or value is None else _shown(value)
    if word in _TRUE:
        return True
    if word in _FALSE or word in _NOTHING:
        return False
    raise msgspec.ValidationError(f"{field} is {_shown(value)}, neither true nor false")


_TRUE = frozenset({"true", "t", "1", "1.0", "yes"})
_FALSE = frozenset({"false", "f", "0", "0.0", "no"})


def _shown(value: Any) -> str:
    return repr(value)[:40]
