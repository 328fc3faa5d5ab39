"""Records of input files: one reader for each kind of file, in bounded memory, for untrusted files.

A record that can't be read is `Refused` with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from webtext.base.errors import missing_extra
from webtext.base.inputs.files import JSON_LINES, PARQUET, InputFile, Refused

MAX_LINE_BYTES = 64 << 20
MAX_TEXT_BYTES = 128 << 20  # encoding a text takes about eight times its size in memory
BLOCK_BYTES = 1 << 20


def records(
    file: InputFile, fields: Sequence[str], text: str, separator: str | None = None
) -> Iterator[dict[str, Any] | Refused]:
    """Yield a file's records in order: each has a string `text`, and those of `fields` that it has.

    A text file is one record, or as many as `separator` divides it into; blank ones and blank lines are skipped. JSON
    may contain lone surrogates. Raises BrokenFile where a file breaks off, and InputError for a Parquet file without a
    column `text` of strings.
    """
    for record in _records(file, fields, text, separator):
        yield record if isinstance(record, Refused) else _with_text(record, text)


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
        if file.kind == JSON_LINES:
            yield from objects(stream)
        else:
            for found in _texts(stream, separator):
                yield found if isinstance(found, Refused) else {text: found}


def _with_text(record: dict[str, Any], field: str) -> dict[str, Any] | Refused:
    text = record.get(field)
    if isinstance(text, str):
        return record
    if not isinstance(text, bytes):
        return Refused("no_text", f"{field} is {type(text).__name__}" if field in record else f"no field '{field}'")
    decoded = _decoded(text)
    return decoded if isinstance(decoded, Refused) else {**record, field: decoded}


def objects(stream: BinaryIO) -> Iterator[dict[str, Any] | Refused]:
    """Yield the object of each line of JSON that isn't blank."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            while not line.endswith(b"\n") and (line := stream.readline(MAX_LINE_BYTES)):
                pass
            yield Refused("line_too_long", f"a line of more than {MAX_LINE_BYTES:,} bytes")
        elif line.strip():
            yield _object(line)


def _object(line: bytes) -> dict[str, Any] | Refused:
    text = _decoded(line)  # json.loads of bytes would also accept surrogates and UTF-16
    if isinstance(text, Refused):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Refused("not_json", str(error))
    return value if isinstance(value, dict) else Refused("not_json", f"a {type(value).__name__}, not an object")


def _texts(stream: BinaryIO, separator: str | None) -> Iterator[str | Refused]:
    between = (separator or "").encode()
    rest, searched, is_long, codec = bytearray(), 0, False, "utf-8-sig"
    while block := stream.read(BLOCK_BYTES):
        rest += block
        if between and rest.find(between, searched) >= 0:
            *complete, rest = rest.split(between)
            for data in complete:
                if is_long or data.strip():
                    yield _text(data, is_long, codec)
                is_long, codec = False, "utf-8"  # after the start of the file, U+FEFF is a character of a text
        searched = max(len(rest) - len(between) + 1, 0)
        if len(rest) > MAX_TEXT_BYTES:
            is_long = True
            del rest[:searched]
            searched = 0
    if is_long or not between or rest.strip():
        yield _text(rest, is_long, codec)


def _text(data: bytearray, is_long: bool, codec: str) -> str | Refused:
    return Refused("text_too_long", f"more than {MAX_TEXT_BYTES:,} bytes") if is_long else _decoded(data, codec)


def _decoded(data: bytes | bytearray, codec: str = "utf-8-sig") -> str | Refused:
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        return Refused("not_utf8", str(error))
