"""Lists of links: CSV, JSON lines, Parquet, columns of datasets, and plain URLs.

A table has the columns `url`, `score` (a whole number) and `created` (UTC seconds, or an ISO 8601 date or time); only
`url` is required, and others are ignored. A URL is unescaped once, as for Reddit's dumps: exports of its posts are full
of `&amp;`, which nobody means in a URL. A row's post is identified by file and position. A missing score or time is taken
from the settings `default_score` and `default_created`. Without a default the row is dropped as `null_score` or
`null_created`, since nothing shows that anybody voted for it.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from webtext.base.errors import InputError, one_line, shown
from webtext.base.inputs.hugging_face import Reference, column_names, open_dataset
from webtext.base.inputs.identity import unix_seconds
from webtext.base.parts.untrusted_parquet import BATCH_ROWS, Expands, open_parquet, parquet_batches, rows_of
from webtext.crawl.links.settings import SOURCES
from webtext.crawl.links.sources.lines import Unreadable, read_lines
from webtext.crawl.links.sources.reddit import RowReader, as_int64, unescaped
from webtext.crawl.links.sources.submission import Submission

_, CSV, JSONL, PARQUET, _ = SOURCES
URL, SCORE, CREATED = COLUMNS = ("url", "score", "created")
SOURCE = "list"
CHECKED_ROWS = 1000
"""Rows of JSON lines in which a column must occur."""
_LINE = re.compile(rb"[^\r\n]*(?:\r\n?|\n)")

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
        position, row = record
        try:
            return (_submission(row, position, self._defaults),)
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))


class UrlList(RowSource):
    """One URL per line; lines that begin with `#` are comments and count as no record."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        for position, line in _lines(file):
            if isinstance(line, Unreadable):
                yield position, line
            elif not (line.isspace() or line.lstrip().startswith(b"#")):
                yield position, _read_as_text(position, {URL: line.decode("utf-8", "surrogateescape")})


class _JsonRow(msgspec.Struct):
    url: str | None = None
    score: int | float | str | None = None
    created: int | float | str | None = None


_json_rows = RowReader(_JsonRow)


class JsonLines(RowSource):
    """One JSON object per line, with the keys of COLUMNS."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        for position, line in read_lines(file):
            row = line if isinstance(line, Unreadable) else _json_rows.row(line)
            yield position, row if isinstance(row, Unreadable) else (position, msgspec.structs.asdict(row))


class CsvFile(RowSource):
    """A table whose first line names its columns, separated by commas, or by tabs if that line contains one.

    A quoted field may contain line ends. A row with more or fewer fields than columns fails as `wrong_columns`. A row
    with a field of more than 131,072 characters (a quote that is never closed) fails as `field_too_long`; reading
    continues after it.
    """

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Yield rows with the positions of their first lines."""
        rows = _csv_rows(file)
        names = _csv_names(rows)
        columns = {name: names.index(name) for name in COLUMNS if name in names}
        for position, fields in rows:
            if isinstance(fields, Unreadable):
                yield position, fields
            elif len(fields) != len(names):
                yield position, Unreadable("wrong_columns", f"{len(fields)} fields, and {len(names)} columns")
            else:
                yield position, _read_as_text(position, {name: fields[i] for name, i in columns.items()})


def _csv_rows(file: BinaryIO) -> Iterator[tuple[int, list[str] | Unreadable]]:
    """Yield (position of the first line, fields) for each row, or Unreadable in place of one that cannot be read."""
    starts: list[int] = []  # of the lines of a row
    unreadable: list[tuple[int, Unreadable]] = []

    def texts() -> Iterator[str]:
        for position, line in _lines(file):
            if isinstance(line, Unreadable):
                unreadable.append((position, line))
            else:
                starts.append(position)
                yield line.decode("utf-8", "surrogateescape")

    lines = texts()
    first = next(lines, "")
    reader = csv.reader(itertools.chain([first], lines), delimiter="\t" if "\t" in first else ",")
    while True:
        fields: list[str] | Unreadable | None
        try:
            fields = next(reader, None)
        except csv.Error as error:
            fields = Unreadable("field_too_long", str(error))
        yield from unreadable
        unreadable.clear()
        if fields is None:
            return
        if fields:  # a blank line has none
            yield starts[0], fields
        starts.clear()


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | Unreadable]]:
    """Yield (position, line) as `read_lines`, with line ends, also of lines that end in a carriage return alone."""
    for position, lines in read_lines(file):
        if isinstance(lines, Unreadable):
            yield position, lines
        else:
            yield from ((position + line.start(), line[0]) for line in _LINE.finditer(lines + b"\n"))


def _csv_names(rows: Iterator[tuple[int, list[str] | Unreadable]]) -> list[str]:
    """Return the column names from the first row; an empty list if it cannot be read."""
    _, names = next(rows, (0, []))
    return [] if isinstance(names, Unreadable) else names


def _read_as_text(position: int, row: Mapping[str, str]) -> Row | Unreadable:
    """Return the row, or Unreadable if its URL is not UTF-8; invalid bytes in other columns do not matter."""
    try:
        row.get(URL, "").encode()
    except UnicodeEncodeError as error:
        return Unreadable("not_utf8", f"the URL's character {error.start} is not UTF-8")
    return position, row


class ParquetFile(RowSource):
    """A Parquet file with the columns of COLUMNS, read by row group; a position is a row number."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        position = 0
        try:
            known = open_parquet(file).schema_arrow.names
            for batch in parquet_batches(file, [name for name in COLUMNS if name in known]):
                for row in rows_of(batch):
                    yield position, _typed_row(position, row)
                    position += 1
        except (pa.ArrowException, OSError, Expands) as error:
            yield position, Unreadable("damaged_stream", f"Parquet: {one_line(error)}")


class HuggingFaceColumn(RowSource):
    """A column of URLs in a dataset, whose input file contains only the dataset's pinned reference.

    `base/inputs/hugging_face.py` documents its form. All splits are read, in the dataset's order.
    """

    def __init__(self, defaults: Defaults, folder: str | None) -> None:
        super().__init__(defaults)
        self._folder = folder or None

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Yield the rows of all splits, numbered consecutively."""
        reference = Reference.parse(file.read().decode(), self._folder)
        position = 0
        for rows in open_dataset(reference)[0].values():
            known = column_names(rows)
            columns = {reference.column, *(name for name in (SCORE, CREATED) if name in known)}
            for batch in rows.select_columns(sorted(columns)).with_format("arrow").iter(BATCH_ROWS):
                for row in rows_of(batch):
                    yield position, _typed_row(position, row, reference.column)
                    position += 1


def _typed_row(position: int, row: Mapping[str, Any] | Exception, url: str = URL) -> Row | Unreadable:
    """Return a row whose URL is in the column `url`, or Unreadable if it could not be decoded."""
    try:
        if isinstance(row, Exception):
            raise row
        link = row.get(url)
        return position, {**row, URL: link.decode() if isinstance(link, bytes) else link}
    except (ValueError, OverflowError, KeyError) as error:  # those of `rows_of`
        return Unreadable("not_utf8" if isinstance(error, UnicodeDecodeError) else "wrong_type", str(error))


def check_columns(source: str, file: BinaryIO, location: str, needed: Sequence[str]) -> None:
    """Raise InputError if a list is damaged, if no row has one of the `needed` columns, or if it has two of one name."""
    if source == PARQUET:
        try:
            names = open_parquet(file).schema_arrow.names
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"'{location}' is damaged: {one_line(error)}", "download it again") from None
    elif source == CSV:
        names = _csv_names(_csv_rows(file))
    elif source == JSONL:
        names = _json_names(file)
    else:
        names = [URL]
    missing = [name for name in needed if name not in names]
    if wrong := missing or [name for name in needed if names.count(name) > 1]:
        named = "', '".join(wrong)
        raise InputError(
            f"'{location}' has {'no column' if missing else 'several columns'} '{named}': "
            f"its columns are {', '.join(names[:12])[:200] or 'none'}",
            f"name the column of links '{URL}', and those of votes and times '{SCORE}' and '{CREATED}'",
            "or set the score and time of all rows: --default-score, --default-created",
        )


def _json_names(file: BinaryIO) -> list[str]:
    """Return the keys of the first objects of JSON lines, or all COLUMNS if none of them can be read."""
    names: dict[str, None] = {}
    for _, line in itertools.islice(read_lines(file), CHECKED_ROWS):
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(b"" if isinstance(line, Unreadable) else line)
            names |= dict.fromkeys(row if isinstance(row, dict) else ())
    return list(names) or [*COLUMNS]


def _submission(row: Mapping[str, Any], position: int, defaults: Defaults) -> Submission:
    score, created, url = _number(row.get(SCORE), SCORE), _moment(row.get(CREATED)), row.get(URL)
    if not isinstance(url, str | None):
        raise msgspec.ValidationError(f"{URL} is {shown(url, typed=False)}, not text")
    url = (url or "").strip()
    return Submission(
        source=SOURCE,
        post_id=f"{defaults.file}:{position}",
        subreddit=None,
        url=unescaped(url) or None,
        score=defaults.score if score is None else score,
        created=defaults.created if created is None else created,
        retrieved=None,
        is_self=False,
        over_18=False,
    )


def _number(value: Any, field: str) -> int | None:
    if isinstance(value, str):
        value = value.strip() or None
    if value is None or (isinstance(value, float) and value != value):
        return None  # data frames write NaN for a missing value
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise msgspec.ValidationError(f"{field} is {shown(value, typed=False)}, not a number")
    return as_int64(math.floor(value) if isinstance(value, Decimal) else value, field)


def _moment(value: Any) -> int | None:
    """Return UTC seconds for a number, an ISO 8601 date or time, or a Parquet timestamp; without a zone it is UTC."""
    if isinstance(value, str) and _DATE.match(value.strip()):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise msgspec.ValidationError(f"{CREATED} is {shown(value, typed=False)}, not a date or time") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() // 1)
    number = _number(value, CREATED)
    return None if number is None else unix_seconds(number)


_DATE = re.compile(r"\d{4}-?\d\d-?\d\d(\D|$)")
