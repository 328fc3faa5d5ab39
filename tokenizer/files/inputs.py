"""Inputs of the tokenizer's verbs: what kind each path is, and reading its texts while counting records by outcome.

    part set (folder)          documents of the split 'train'; others are dropped as `held_out`
    *.counts                   counts of pieces, written earlier
    *.parquet                  a column of texts
    *.jsonl *.json *.ndjson    a field of texts, one JSON object per line; blank lines are skipped
    any other file             one text

Files of the last two kinds may be compressed: .gz, .bz2, .xz or .zst. Records without text are counted by reason and
never end a run; a damaged file does. Memory is bounded: files are read in blocks, and a JSON line above 64 MB is a
failed record.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from webtext.base.decompress import SUFFIXES, StreamBroken, decompressed
from webtext.base.errors import InputError, missing_extra
from webtext.base.parts.counts import Counts
from webtext.base.storage import Folder
from webtext.tokenizer import _bpe
from webtext.tokenizer.arguments import split_path
from webtext.tokenizer.text import utf8

if TYPE_CHECKING:
    from webtext.base.parts.partset import PartSet
    from webtext.tokenizer.train.counts import PieceCounts

HELD_OUT = "held_out"
EMPTY = "empty"
NO_JSON = "no_json"
NO_TEXT = "no_text"
LINE_TOO_LONG = "line_too_long"

MAX_LINE_BYTES = 64 << 20
_JSON_LINES = (".jsonl", ".json", ".ndjson")
_NO_TEXT_FILES = (".warc", ".warc.gz", ".zip", ".tar", ".tar.gz", ".npy", ".tok")
_ROWS_AT_ONCE = 256
_BLOCK_BYTES = 1 << 20
_NEAR_END = 1 << 14


@dataclass(slots=True)
class Input:
    """One input, its weight, and the counts of records and bytes read from it."""

    url: str
    kind: str  # "set", "counts", "parquet", "json lines" or "text"
    weight: Fraction
    sha256: str = ""
    set: PartSet | None = None
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0

    def parent(self) -> dict[str, str]:
        """Return the input's entry in a manifest's `parents`."""
        named = {"set": self.set.kind, "hash": self.set.hash} if self.set else {"file_sha256": self.sha256}
        return named if self.weight == 1 else named | {"weight": str(self.weight)}


def open_input(url: str, weight: Fraction = Fraction(1)) -> Input:
    """Detect the kind of input at a path or URL. Raises InputError if it can't be read."""
    folder = Folder(url)
    if not (folder.is_local and folder.local_path().is_file()):  # a file needs no pyarrow
        from webtext.base.parts.partset import MANIFEST, PartSet

        if folder.exists(MANIFEST) or (folder.is_local and folder.local_path().is_dir()):
            return Input(url, "set", weight, set=PartSet.open(url, ("corpus", "documents")))
    if url.endswith(_NO_TEXT_FILES):
        raise InputError(f"'{url}' is not a text file", "expected a part set, text, JSON lines, Parquet or counts")
    parent, name = split_path(url)
    with parent.open(name) as file:
        sha256 = hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
    return Input(url, _kind(name), weight, sha256)


def count_input(
    source: Input, into: PieceCounts, weight: int, text_field: str, on_bytes: Callable[[int], None]
) -> None:
    """Count the pieces of an input `weight` times. `on_bytes` is called with the number of bytes of each text."""
    if source.kind == "counts":
        parent, name = split_path(source.url)
        into.add_file(parent.local_path(name), weight)
    elif source.kind == "text":
        with _opened(source.url) as file:
            source.bytes = into.add_stream(file, weight, on_bytes)
        if source.bytes:
            source.counts.keep()
        else:
            source.counts.drop(EMPTY)
    else:
        into.add(_kept(source, text_field, on_bytes), weight)


def texts_of(source: Input, text_field: str = "text") -> Iterator[str | bytes]:
    """Yield the texts of an input; a text file in blocks of about a megabyte.

    Blocks end where every pattern cuts, even one that joins words, unless there is no such position in 64 MB.
    """
    if source.kind == "counts":
        raise InputError(f"'{source.url}' contains counts of pieces, not text", "pass the texts themselves")
    if source.kind != "text":
        yield from _kept(source, text_field, lambda n_bytes: None)
        return
    with _opened(source.url) as file:
        rest = bytearray()
        while block := file.read(_BLOCK_BYTES):
            rest += block
            end = _bpe.last_safe_cut(rest, 0, max(len(rest) - _NEAR_END, 0), len(rest))
            if not end and len(rest) > MAX_LINE_BYTES:
                end = len(rest)
            if end:
                yield bytes(rest[:end])
                del rest[:end]
        if rest:
            yield bytes(rest)


@contextlib.contextmanager
def _opened(url: str) -> Iterator[BinaryIO]:
    """Open a file and decompress it while reading. Raises InputError if it is damaged or cut short."""
    parent, name = split_path(url)
    with parent.open(name) as file:
        try:
            yield decompressed(file, name)
        except StreamBroken as error:
            raise _damaged(url, error) from None


def _damaged(url: str, error: Exception) -> InputError:
    return InputError(f"'{url}' is damaged: {' '.join(str(error).split())[:200]}", "fetch or write it again")


def _kind(name: str) -> str:
    if name.endswith(".counts"):
        return "counts"
    if name.endswith(".parquet"):
        return "parquet"
    plain = name.removesuffix(next((suffix for suffix in SUFFIXES if name.endswith(suffix)), ""))
    return "json lines" if plain.endswith(_JSON_LINES) else "text"


def _kept(source: Input, text_field: str, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the texts of an input with many records, and count the records."""
    readers = {"set": _documents, "parquet": _rows, "json lines": _lines}
    for text in readers[source.kind](source, text_field):
        if not text:
            source.counts.drop(EMPTY)
            continue
        source.counts.keep()
        source.bytes += len(text)
        on_bytes(len(text))
        yield text


def _documents(source: Input, text_field: str) -> Iterator[bytes]:
    """Yield the texts of a part set's train split."""
    import pyarrow.compute as pc

    assert source.set is not None
    for part in source.set.parts:
        for batch in source.set.batches(part, columns=["text", "split"], batch_size=_ROWS_AT_ONCE):
            is_train = pc.equal(batch.column("split"), "train")
            train = batch.filter(is_train)
            if train.num_rows < batch.num_rows:
                source.counts.drop(HELD_OUT, batch.num_rows - train.num_rows)
            yield from train.column("text").cast("binary").to_pylist()


def _rows(source: Input, text_field: str) -> Iterator[bytes]:
    """Yield the texts of a Parquet file; a null is a failed record."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from webtext.base.parts.partset import bounded_batches
        from webtext.base.parts.untrusted_parquet import BUFFER_BYTES
    except ModuleNotFoundError:
        raise missing_extra("pyarrow", "build") from None
    parent, name = split_path(source.url)
    with parent.open(name) as raw:
        try:
            file = pq.ParquetFile(raw, pre_buffer=False, buffer_size=BUFFER_BYTES)
            if text_field not in file.schema_arrow.names:
                known = ", ".join(file.schema_arrow.names[:9])
                raise InputError(
                    f"'{source.url}' has no column '{text_field}'", f"its columns: {known}", "set --text-field"
                )
            type_ = file.schema_arrow.field(text_field).type
            value = type_.value_type if pa.types.is_dictionary(type_) else type_
            if not any(
                is_text(value) for is_text in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
            ):
                raise InputError(f"the column '{text_field}' of '{source.url}' is of {type_}", "expected strings")
            for batch in bounded_batches(file, [text_field], _ROWS_AT_ONCE):
                texts = batch.column(0).cast(value).cast(pa.large_binary())
                if texts.null_count:
                    source.counts.fail(NO_TEXT, texts.null_count)
                yield from texts.drop_null().to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise _damaged(source.url, error) from None


def _lines(source: Input, text_field: str) -> Iterator[bytes]:
    """Yield the texts of JSON lines; a line without a text is a failed record."""
    with _opened(source.url) as file:
        while line := file.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                source.counts.fail(LINE_TOO_LONG)
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES)
                continue
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                source.counts.fail(NO_JSON)
                continue
            text = record.get(text_field) if isinstance(record, dict) else None
            if isinstance(text, str):
                yield utf8(text)
            else:
                source.counts.fail(NO_TEXT)
