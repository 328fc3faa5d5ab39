"""Rows of Parquet and JSONL files of somebody's, and the bytes of compressed files: bounded, and damage is named."""

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
from webtext.clean.inputs import InputFile

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst")
MAX_LINE_BYTES = 64 << 20
MAX_TEXT_BYTES = 1 << 30
MAX_ZSTD_WINDOW = 2**31


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
