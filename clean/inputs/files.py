"""Input files of clean: found by name, folder or pattern, on disk or at any fsspec URL, and read within bounds.

Parquet, JSONL and compressed files are untrusted: damage is reported, and no file can exhaust memory.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from webtext.base.decompress import StreamBroken, decompressed
from webtext.base.errors import InputError
from webtext.base.parts.digest import file_sha256
from webtext.base.parts.partset import ENTRIES, MANIFEST, PartSet
from webtext.base.parts.untrusted_parquet import Expands, parquet_batches, rows_of
from webtext.base.storage import Folder
from webtext.clean.reasons import Refused

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst")
MAX_LINE_BYTES = 64 << 20
MAX_TEXT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file, by folder and name."""

    folder: Folder
    name: str

    @property
    def location(self) -> str:
        """Path or URL, for messages."""
        return self.folder.location(self.name)

    def sha256(self) -> str:
        """SHA-256 of the file's bytes, in hex."""
        with self.folder.open(self.name) as file:
            return file_sha256(file)


def find_inputs(
    names: Iterable[str], kind: str | tuple[str, ...], suffixes: Sequence[str]
) -> tuple[list[PartSet], list[InputFile]]:
    """Return the part sets of `kind` and the files with one of `suffixes` that `names` refer to, in the order given.

    Raises InputError for a name without a match and for an empty file.
    """
    what = kind if isinstance(kind, str) else " or ".join(kind)
    sets: list[PartSet] = []
    files: list[InputFile] = []
    for name in names:
        folder = Folder(name)
        if folder.exists(MANIFEST) or folder.exists(ENTRIES):
            sets.append(PartSet.open(name, kind))
        else:
            files += _files_of(name, what, suffixes)
    if not sets and not files:
        raise InputError(f"no {what} given", "name a part set or files")
    for file in files:
        if file.folder.size(file.name) == 0:
            raise InputError(f"'{file.location}' is empty", "write or download it again, or leave it out")
    return sets, files


def _files_of(name: str, what: str, suffixes: Sequence[str]) -> list[InputFile]:
    parent, _, last = name.rstrip("/").rpartition("/")
    folder = Folder(parent or ("/" if name.startswith("/") else "."))
    known = folder.names()
    if last in known:
        return [InputFile(folder, last)]
    if any(character in last for character in "*?["):
        found = [InputFile(folder, each) for each in known if fnmatch.fnmatchcase(each, last)]
        if not found:
            raise InputError(f"no file matches '{name}'", "wildcards are allowed only after the last '/'")
        return found
    folder = Folder(name)
    if not folder.exists(""):
        raise InputError(f"'{name}' does not exist", "check the path")
    found = [InputFile(folder, each) for each in folder.names() if each.endswith(tuple(suffixes))]
    if not found:
        raise InputError(
            f"'{name}' is not a part set of {what} and contains no {', '.join(suffixes)} file",
            "name a folder that a webtext verb wrote, or files",
        )
    return found


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
    except StreamBroken as error:
        raise InputError(f"'{file.location}' cannot be decompressed: {error}", "download or create it again") from None
