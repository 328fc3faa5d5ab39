"""Reads untrusted Parquet, JSONL and compressed files within bounds, and reports damage."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from webtext.base.errors import InputError
from webtext.base.parts.untrusted_parquet import Expands, parquet_batches, rows_of
from webtext.clean.inputs.find import InputFile
from webtext.clean.reasons import Refused

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst")
MAX_LINE_BYTES = 64 << 20
MAX_TEXT_BYTES = 1 << 30
MAX_ZSTD_WINDOW = 2**31


def parquet_rows(file: InputFile, known: Sequence[str], required: str = "text") -> Iterator[dict[str, Any] | Refused]:
    """Yield each row's `known` columns. Raises InputError for a damaged file or one without the `required` column."""
    with file.folder.open(file.name) as opened:
        try:
            names = pq.ParquetFile(opened).schema_arrow.names
        except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not UTF-8
            raise InputError(f"'{file.location}' is not a Parquet file: {error}", "check the file") from None
        columns = [name for name in known if name in names]
        if required not in columns:
            raise InputError(f"'{file.location}' has no column '{required}'", f"its columns: {', '.join(names)}")
        try:
            batches = parquet_batches(opened, columns)
            while (batch := _next_batch(batches, file)) is not None:
                yield from rows_or_refused(batch)
        except Expands as error:
            yield Refused("expands_too_much", str(error))


def rows_or_refused(batch: pa.RecordBatch | pa.Table) -> Iterator[dict[str, Any] | Refused]:
    """Yield each row's values, or why it has none."""
    for row in rows_of(batch):
        if isinstance(row, Exception):
            reason = "not_utf8" if isinstance(row, UnicodeDecodeError) else "value_out_of_range"
            yield Refused(reason, str(row))
        else:
            yield row


def _next_batch(batches: Iterator[pa.RecordBatch], file: InputFile) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"'{file.location}' is a damaged Parquet file: {error}", "write or download it again"
        ) from None


def json_lines(file: InputFile) -> Iterator[dict[str, Any] | Refused]:
    """Yield each line's object, or what is wrong with the line; empty lines are skipped."""
    with file.folder.open(file.name) as opened, decompressed(opened, file.name) as lines:
        while line := _read_line(lines, file):
            if len(line) > MAX_LINE_BYTES:
                while not line.endswith(b"\n") and (line := _read_line(lines, file)):
                    pass
                yield Refused("not_json", f"a line of more than {MAX_LINE_BYTES:,} bytes")
            elif line.strip():
                yield _object(line)


def _object(line: bytes) -> dict[str, Any] | Refused:
    try:
        value = json.loads(line.decode("utf-8-sig"))  # json.loads of bytes would also accept surrogates and UTF-16
    except UnicodeDecodeError as error:
        return Refused("not_utf8", str(error))
    except (ValueError, RecursionError) as error:
        return Refused("not_json", str(error))
    return value if isinstance(value, dict) else Refused("not_json", f"a {type(value).__name__}, not an object")


def read_text(file: InputFile) -> bytes:
    """Return the contents of a text file. Raises InputError above MAX_TEXT_BYTES."""
    with file.folder.open(file.name) as opened, decompressed(opened, file.name) as lines:
        blocks: list[bytes] = []
        n_bytes = 0
        while block := _read_line(lines, file):
            blocks.append(block)
            n_bytes += len(block)
            if n_bytes > MAX_TEXT_BYTES:
                raise InputError(f"'{file.location}' contains more than {MAX_TEXT_BYTES:,} bytes", "split it")
    return b"".join(blocks)


def _read_line(lines: BinaryIO, file: InputFile) -> bytes:
    """Return the next line, or its first MAX_LINE_BYTES + 1 bytes."""
    try:
        return lines.readline(MAX_LINE_BYTES + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise InputError(f"'{file.location}' cannot be decompressed: {error}", "download or create it again") from None


def decompressed(opened: BinaryIO, name: str) -> BinaryIO:
    """Return a reader of the file's decompressed bytes; the name's suffix decides: .gz, .xz, .zst or none."""
    if name.endswith(".gz"):
        return cast(BinaryIO, gzip.open(opened))
    if name.endswith(".xz"):
        return cast(BinaryIO, lzma.open(opened))
    if name.endswith(".zst"):
        reader = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).stream_reader(opened)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, reader)))
    return opened
