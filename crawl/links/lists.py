"""Lists of links: CSV, JSON lines, Parquet and plain URLs, with as much of each vote as they tell.

Columns are found by name, whatever their order and case (`COLUMNS`); only `url` must be there. A URL is unescaped once, as
Reddit's are: exports of its posts are full of `&amp;`, and nobody means that in a URL. A row's post is known by its id, as
Reddit's own where that is a full name (`t3_...`, `t1_...`), else by file and position. What a row does not tell, score and
time, is taken from the settings `default_score` and `default_created`; without them it is dropped as `null_score` or
`null_created`, since nobody voted for it.
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
from webtext.base.untrusted_parquet import Expands, parquet_batches, rows_of
from webtext.crawl.links.comments import SOURCE as REDDIT_COMMENT
from webtext.crawl.links.dumps import SOURCE as REDDIT
from webtext.crawl.links.reddit_rows import unescaped, whole_number
from webtext.crawl.links.submission import Submission, Unreadable
from webtext.crawl.streams.lines import read_lines

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
"""What a vote has, and the names of its column; the first that is there."""

SOURCE = "list"
FULL_NAMES = {"t3_": REDDIT, "t1_": REDDIT_COMMENT}

Row = tuple[int, Mapping[str, Any]]  # its position, and its values by the names of COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What holds for rows that do not say."""

    file: str = "list"
    score: int | None = None
    created: int | None = None


class RowSource:
    """What all lists share: reading one row's values."""

    def __init__(self, defaults: Defaults) -> None:
        self._defaults = defaults

    def parse(self, record: Row) -> Sequence[Submission] | Unreadable:
        """The vote of one row."""
        position, row = record
        try:
            return (_submission(row, position, self._defaults),)
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))


class UrlList(RowSource):
    """One URL a line; lines that begin with `#` are comments, which hold no record."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Lines with their positions."""
        for position, line in read_lines(file):
            if isinstance(line, Unreadable):
                yield position, line
            elif not line.lstrip().startswith(b"#"):
                yield position, _read_as_text(position, {"url": line.decode("utf-8", "surrogateescape")})


class JsonLines:
    """One JSON object a line, with the keys of COLUMNS."""

    def __init__(self, defaults: Defaults) -> None:
        self._rows = RowSource(defaults)
        self._decode = msgspec.json.Decoder().decode

    def records(self, file: BinaryIO) -> Iterator[tuple[int, tuple[int, bytes] | Unreadable]]:
        """Lines with their positions."""
        for position, line in read_lines(file):
            yield position, line if isinstance(line, Unreadable) else (position, line)

    def parse(self, record: tuple[int, bytes]) -> Sequence[Submission] | Unreadable:
        """The vote of one line."""
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
            return json.loads(line)  # a lone surrogate, which the fast decoder refuses


class CsvFile(RowSource):
    """A table whose first line names its columns, separated by commas, or by tabs where that line has one.

    A quoted field may hold line ends. A row with more or fewer fields than columns is `wrong_columns`, one with a field
    beyond 131,072 characters (a quote that is never closed) `field_too_long`; reading goes on behind it.
    """

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Rows with the positions of their first lines."""
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
    """Rows of fields, with the positions of their first lines; what cannot be read comes in its place as Unreadable."""
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
        if fields:  # a line of blanks has none
            yield lines.start or 0, fields
        lines.start = None


def csv_names(rows: Iterator[tuple[int, list[str] | Unreadable]]) -> list[str]:
    """The names of the columns, taken from the first row; none when it cannot be read."""
    _, names = next(rows, (0, []))
    return [] if isinstance(names, Unreadable) else names


def _read_as_text(position: int, row: Mapping[str, str]) -> Row | Unreadable:
    """The row, unless its URL holds bytes that are no UTF-8; in other columns they do not matter."""
    try:
        row.get("url", "").encode()
    except UnicodeEncodeError as error:
        return Unreadable("not_utf8", f"the URL's character {error.start} is no UTF-8")
    return position, row


class _TextLines:
    """Lines as text for the CSV reader; `start` is where the first line lies that was given since it was None."""

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
        """What was met and not given as a line."""
        taken, self._unreadable = self._unreadable, []
        return taken


class ParquetFile(RowSource):
    """A Parquet file with the columns of COLUMNS, read by row groups; a position is a row's number."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Rows in order."""
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
    """A table's row by the names of COLUMNS, or why it cannot be read."""
    if isinstance(row, Exception):
        return Unreadable("not_utf8" if isinstance(row, UnicodeDecodeError) else "wrong_type", str(row))
    return position, {ours: row.get(theirs) for ours, theirs in columns.items()}


def find_columns(names: Sequence[str]) -> dict[str, str]:
    """Which of a table's columns hold what a vote has, by COLUMNS.

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
    """InputError when the table has no column of URLs."""
    _need_url_column(csv_names(csv_rows(file)), location)


def check_parquet(file: BinaryIO, location: str) -> None:
    """InputError when the file is damaged or has no column of URLs."""
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
            f"name the column of the links 'url'; others that are read: {', '.join(sum(COLUMNS.values(), ())[1:])}",
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
    """Source and id of the post."""
    identifier = row.get("id")
    identifier = str(identifier) if isinstance(identifier, int) else _text(identifier, "id")
    name = row.get("name")  # of a post, in Reddit's exports; in others anybody's
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
        raise msgspec.ValidationError(f"{field} is {_shown(value)}, no text")
    return value.strip().encode("utf-8", "replace").decode() or None


def _number(value: Any, field: str) -> int | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
        return None
    if isinstance(value, float) and value != value:
        return None  # how data frames write nothing
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise msgspec.ValidationError(f"{field} is {_shown(value)}, no number")
    return whole_number(value.strip() if isinstance(value, str) else value, field)


def _moment(value: Any, field: str) -> int | None:
    """UTC seconds of a number of them, of an ISO 8601 date or time, or of a Parquet timestamp; without a zone it is UTC."""
    if isinstance(value, str) and _DATE.match(value.strip()):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise msgspec.ValidationError(f"{field} is {_shown(value)}, no date or time") from None
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
