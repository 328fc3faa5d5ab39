"""Records of input files: one reader for each kind of file, in bounded memory, for untrusted files.

A record that can't be read is `Refused` with a reason.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from webtext.base.errors import missing_extra
from webtext.base.inputs.files import CSV, JSON, JSON_LINES, PARQUET, TEXT, BrokenFile, InputFile, Refused

MAX_LINE_BYTES = 64 << 20
MAX_TEXT_BYTES = 128 << 20  # encoding a text takes about eight times its size in memory
BLOCK_BYTES = 1 << 20
_MANY_BLANK_LINES = 100
_NUMBERS = ("karma", "date", "published")  # fields that may be whole numbers; every value of CSV is a string
_INVALID = re.compile("[\udc80-\udcff]")  # how `surrogateescape` decodes bytes that are not UTF-8
_WHOLE = re.compile(r"(-?[0-9]{1,19})(?:\.0)?")  # data frames write integers as floats
_BETWEEN = re.compile(r"[\s,]*")


def records(
    file: InputFile, fields: Sequence[str], text: str, separator: str | None = None
) -> Iterator[dict[str, Any] | Refused]:
    """Yield a file's records in order: each has a string `text`, and the other `fields` that the record has.

    A text file is one record, or as many as `separator` divides it into; blank ones and blank lines are skipped. JSON
    may contain lone surrogates. A file that breaks off ends with a `Refused`. Raises InputError for a Parquet or CSV
    file that doesn't have one column `text`, of strings.
    """
    try:
        for record in _records(file, fields, text, separator):
            yield record if isinstance(record, Refused) or file.kind == TEXT else _with_text(record, text)
    except BrokenFile as error:
        yield Refused(error.reason, error.lines[0])


def _records(
    file: InputFile, fields: Sequence[str], text: str, separator: str | None
) -> Iterator[dict[str, Any] | Refused]:
    if file.kind == PARQUET:
        try:
            from webtext.base.inputs.parquet import parquet_rows
        except ModuleNotFoundError:
            raise missing_extra("pyarrow", "build") from None
        yield from parquet_rows(file, fields, text)
        return
    with file.open() as stream:
        if file.kind == JSON_LINES or (file.kind == JSON and _has_lines(file)):
            yield from objects(stream)
        elif file.kind == JSON:
            yield from _elements(stream)
        elif file.kind == CSV:
            yield from _rows(stream, file, fields, text)
        else:
            for found in _texts(stream, separator):
                yield found if isinstance(found, Refused) else {text: found}


def _with_text(record: dict[str, Any], field: str) -> dict[str, Any] | Refused:
    text = record.get(field)
    if isinstance(text, bytes):
        text = _decoded(text)
    if isinstance(text, str):
        return {**record, field: text.replace("\r\n", "\n")}
    absent = f"no field '{field}' among {', '.join(record)[:200]}"
    reason = Refused("no_text", f"{field} is {type(text).__name__}" if field in record else absent)
    return text if isinstance(text, Refused) else reason


def objects(stream: BinaryIO) -> Iterator[dict[str, Any] | Refused]:
    """Yield the object of each line of JSON that isn't blank."""
    n_blank = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        is_blank = not line.strip()
        n_blank = n_blank + 1 if is_blank else 0
        if n_blank == _MANY_BLANK_LINES and isinstance(stream, io.BufferedReader):  # a small file may have gigabytes
            while n_blank := len(stream.peek()) - len(stream.peek().lstrip(b"\r\n")):
                stream.read(n_blank)
        if len(line) > MAX_LINE_BYTES:
            while not line.endswith(b"\n") and (line := stream.readline(MAX_LINE_BYTES)):
                pass
            yield Refused("line_too_long", f"a line of more than {MAX_LINE_BYTES:,} bytes")
        elif not is_blank:
            yield _object(line)


def _object(line: bytes) -> dict[str, Any] | Refused:
    text = _decoded(line)  # json.loads of bytes would also accept surrogates and UTF-16
    if isinstance(text, Refused):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Refused("not_json", str(error))
    return _checked(value, "")


def _has_lines(file: InputFile) -> bool:
    """Return whether one of the first lines that aren't blank is an object, and none before it starts an array."""
    with file.open() as stream:
        lines = (line for line in iter(lambda: stream.readline(MAX_LINE_BYTES), b"") if line.strip())
        for line in itertools.islice(lines, 3):
            if line.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
                return False
            if not isinstance(_object(line), Refused):
                return True
    return False


def _elements(stream: BinaryIO) -> Iterator[dict[str, Any] | Refused]:
    """Yield the objects of arrays, or of values one after another. The first that is not JSON ends them."""
    reader = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape")
    decoder, buffer, start, n_more, closing = json.JSONDecoder(), "", 0, BLOCK_BYTES, None
    while True:
        more = reader.read(n_more)
        buffer, start = buffer[start:] + more, 0
        while (start := _BETWEEN.match(buffer, start).end()) < len(buffer):  # type: ignore[union-attr]
            if closing is None:
                closing = "]" if buffer[start] == "[" else ""
                start += len(closing)
                continue
            if buffer[start] == closing:  # another array may follow
                closing, start = None, start + 1
                continue
            try:
                value, end = decoder.raw_decode(buffer, start)
            except (ValueError, RecursionError) as error:
                if more and len(buffer) - start <= MAX_LINE_BYTES:
                    n_more *= 2  # it may be complete with more of the file
                    break
                yield Refused("not_json", f"{error}; the rest of the file is skipped")
                return
            yield _checked(value, buffer[start:end])
            start, n_more = end, BLOCK_BYTES
        if not more:
            if closing:
                yield Refused("not_json", "the file ends within an array")
            return


def _checked(value: Any, source: str) -> dict[str, Any] | Refused:
    if _INVALID.search(source):
        return Refused("not_utf8", f"an invalid byte in {source[:80]!r}")
    return value if isinstance(value, dict) else Refused("not_json", f"a {type(value).__name__}, not an object")


def _rows(stream: BinaryIO, file: InputFile, fields: Sequence[str], text: str) -> Iterator[dict[str, Any] | Refused]:
    """Yield the rows of CSV (RFC 4180); an empty value other than the text is absent."""
    rows = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline=""))
    names: list[str] = []  # the first row that isn't blank
    while True:
        limit = csv.field_size_limit(MAX_TEXT_BYTES)  # one for all readers of the process
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield Refused("not_csv", str(error) if names else f"the names of its columns: {error}")
            row = [] if names else None
        finally:
            csv.field_size_limit(limit)
        if row is None:
            return
        if row and not names:
            file.check_column(text, names := row)
        elif any(map(_INVALID.search, row)):
            yield Refused("not_utf8", f"an invalid byte before line {rows.line_num + 1}")
        elif row and len(row) != len(names):
            yield Refused("not_csv", f"{len(row)} values for {len(names)} columns before line {rows.line_num + 1}")
        elif row:
            named = zip(names, row, strict=True)
            found: dict[str, Any] = {name: value for name, value in named if name in fields and (value or name == text)}
            numbers = {name: _WHOLE.fullmatch(found.get(name, "")) for name in _NUMBERS}
            yield found | {name: int(digits[1]) for name, digits in numbers.items() if digits}


def _texts(stream: BinaryIO, separator: str | None) -> Iterator[str | Refused]:
    between, too_long = (separator or "").encode(), Refused("text_too_long", f"more than {MAX_TEXT_BYTES:,} bytes")
    rest, searched, is_long, codec = bytearray(), 0, False, "utf-8-sig"
    while block := stream.read(BLOCK_BYTES):
        rest += block
        if between and rest.find(between, searched) >= 0:
            *complete, rest = rest.split(between)
            for data in complete:
                if is_long or data.strip():
                    yield too_long if is_long else _decoded(data, codec)
                is_long, codec = False, "utf-8"  # after the start of the file, U+FEFF is a character of a text
        searched = max(len(rest) - len(between) + 1, 0)
        if len(rest) > MAX_TEXT_BYTES:
            is_long = True
            del rest[:searched]
            searched = 0
    if is_long or not between or rest.strip():
        yield too_long if is_long else _decoded(rest, codec)


def _decoded(data: bytes | bytearray, codec: str = "utf-8-sig") -> str | Refused:
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        return Refused("not_utf8", str(error))
