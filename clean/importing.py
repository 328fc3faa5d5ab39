"""Parquet and JSONL files of somebody's with a `text` column, as a documents set: the way in for `filter` and `dedup`.

Kept where a record has them: id, url, title, date, karma, split. Text passes the same rule as a page's. A record
without id gets one from its file's SHA-256 and its place there, so it does not change with how files are grouped.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from webtext.base.errors import InputError
from webtext.base.partset import PartSet
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import ID_HEX_DIGITS, split_of, text_digest
from webtext.base.stage import Failed, PartContext, PartTask, run_parts
from webtext.base.urls import canonical_url, library_versions, registrable_domain
from webtext.clean.extract.body import Dropped, Refused
from webtext.clean.inputs import InputFile
from webtext.clean.language import detect_language
from webtext.clean.text import clean_text, has_surrogates

CODE_VERSION = 1
SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst")
KNOWN = ("id", "url", "text", "title", "date", "karma", "split")
MAX_LINE_BYTES = 64 << 20
MAX_TEXT_BYTES = 1 << 30
MAX_ZSTD_WINDOW = 2**31


@dataclass(frozen=True, slots=True)
class ImportTask:
    """One file and the SHA-256 of its bytes."""

    file: InputFile
    sha256: str


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the file, or what was found in its place."""

    values: dict[str, Any] | str
    row: int
    file: ImportTask


def import_documents(files: Sequence[InputFile], out: str, run: Run) -> PartSet:
    """Write the documents set `out` from the files, one part each, in their order."""
    tasks = [ImportTask(file, file.sha256()) for file in files]
    return run_parts(
        _import_part,
        [PartTask(index=i, sources=(), payload=task, depends=task.sha256) for i, task in enumerate(tasks)],
        recipe=Recipe(
            stage="clean.import",
            code_version=CODE_VERSION,
            settings={},
            versions={"py3langid": importlib.metadata.version("py3langid")} | library_versions(),
        ),
        outputs={"documents": (out, "documents")},
        parents=[],
        run=run,
        label="clean.import",
    )["documents"]


def _import_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    writer = context.main
    seen: set[str] = set()
    for row, _, result in context.apply(_document, _numbered(task.payload), identify=_place):
        if isinstance(result, Refused):
            writer.fail(f"row {row}", result.reason, result.cause)
        elif isinstance(result, Dropped):
            writer.counts.drop(result.reason)
        elif isinstance(result, Failed):
            pass  # counted where it failed
        elif result["id"] in seen:
            writer.fail(f"row {row}", "repeated_id", result["id"])
        else:
            seen.add(result["id"])
            writer.counts.keep()
            writer.write([result])


def _numbered(task: ImportTask) -> Iterator[tuple[int, Record]]:
    rows = parquet_rows(task.file, KNOWN) if task.file.name.endswith(".parquet") else json_lines(task.file)
    return ((i, Record(row, i, task)) for i, row in enumerate(rows))


def _place(record: Record) -> str:
    return f"row {record.row}"


def _document(record: Record) -> dict[str, Any] | Dropped | Refused:
    if isinstance(record.values, str):
        return Refused("not_json", record.values)
    values = record.values
    text, url = values.get("text"), _string(values.get("url"))
    if not isinstance(text, str):
        return Refused("no_text", f"text is {type(text).__name__}")
    text = clean_text(text)
    if not text.strip():
        return Dropped("empty_text")
    place = f"{record.file.sha256}\n{record.row}"
    given = values.get("id")
    named = _whole_number(given) if isinstance(given, int) else _string(given)
    identifier = str(named or hashlib.sha256(place.encode()).hexdigest()[:ID_HEX_DIGITS])
    canonical = canonical_url(url) if url else None
    language, score = detect_language(text) or (None, None)
    split = values.get("split")
    return {
        "id": identifier,
        "link_ids": [],
        "url": url,
        "text": text,
        "text_digest": text_digest(text),
        "title": _string(values.get("title")),
        "date": _whole_number(values.get("date")),
        "domain": registrable_domain(canonical) if canonical else None,
        "language": language,
        "language_score": score,
        "karma": _whole_number(values.get("karma")),
        "split": split if split in ("train", "validation") else split_of(identifier),
    }


def _string(value: Any) -> str | None:
    """The value if it is a string that a column can hold: lone surrogates, which JSON can write, no column takes."""
    return value if isinstance(value, str) and not has_surrogates(value) else None


def _whole_number(value: Any) -> int | None:
    """The value if it is a whole number that a column can hold."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None


def parquet_rows(file: InputFile, known: Sequence[str], required: str = "text") -> Iterator[dict[str, Any]]:
    """Each row's `known` columns, those that the file has; InputError when the `required` one is not among them."""
    with file.folder.open(file.name) as opened:
        try:
            parquet = pq.ParquetFile(opened)
        except pa.ArrowInvalid as error:
            raise InputError(f"'{file.location}' is no Parquet file: {error}", "check the file") from None
        columns = [name for name in known if name in parquet.schema_arrow.names]
        if required not in columns:
            raise InputError(
                f"'{file.location}' has no column '{required}'", f"its columns: {', '.join(parquet.schema_arrow.names)}"
            )
        batches = parquet.iter_batches(batch_size=256, columns=columns)
        while (batch := _next_batch(batches, file)) is not None:
            yield from batch.to_pylist()


def _next_batch(batches: Iterator[pa.RecordBatch], file: InputFile) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"'{file.location}' is a damaged Parquet file: {error}", "write or download it again"
        ) from None


def json_lines(file: InputFile) -> Iterator[dict[str, Any] | str]:
    """Each line's object, or what is wrong with the line; empty lines are none."""
    with file.folder.open(file.name) as opened, decompressed(opened, file.name) as lines:
        while line := _read_line(lines, file):
            if len(line) > MAX_LINE_BYTES:
                while not line.endswith(b"\n") and (line := _read_line(lines, file)):
                    pass
                yield f"a line of more than {MAX_LINE_BYTES:,} bytes"
            elif line.strip():
                try:
                    value = json.loads(line)
                    yield value if isinstance(value, dict) else f"a {type(value).__name__}, not an object"
                except (ValueError, RecursionError) as error:
                    yield str(error)


def read_text(file: InputFile) -> bytes:
    """All that a text file holds; InputError when that is above MAX_TEXT_BYTES."""
    with file.folder.open(file.name) as opened, decompressed(opened, file.name) as lines:
        blocks: list[bytes] = []
        n_bytes = 0
        while block := _read_line(lines, file):
            blocks.append(block)
            n_bytes += len(block)
            if n_bytes > MAX_TEXT_BYTES:
                raise InputError(f"'{file.location}' holds more than {MAX_TEXT_BYTES:,} bytes", "split it")
    return b"".join(blocks)


def _read_line(lines: BinaryIO, file: InputFile) -> bytes:
    """The next line, or its first MAX_LINE_BYTES + 1 bytes."""
    try:
        return lines.readline(MAX_LINE_BYTES + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise InputError(f"'{file.location}' cannot be decompressed: {error}", "download or make it again") from None


def decompressed(opened: BinaryIO, name: str) -> BinaryIO:
    """The bytes that a file holds, by its name: .gz, .xz, .zst or as they are."""
    if name.endswith(".gz"):
        return cast(BinaryIO, gzip.open(opened))
    if name.endswith(".xz"):
        return cast(BinaryIO, lzma.open(opened))
    if name.endswith(".zst"):
        reader = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).stream_reader(opened)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, reader)))
    return opened
