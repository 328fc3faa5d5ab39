"""Inputs of the tokenizer's verbs, and reading their texts while counting records by outcome.

    part set (folder)          documents of the split 'train'; others are dropped as `held_out`
    *.counts                   counts of pieces, written earlier
    any other file or folder   texts, as `base/inputs/` reads them; a text file is streamed

Records without text are counted by reason and never end a run; a damaged file does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from webtext.base.errors import InputError
from webtext.base.inputs.files import DOCUMENT_SUFFIXES, DOCUMENTS, TEXT, InputFile, Refused, find_inputs
from webtext.base.inputs.records import records
from webtext.base.parts.counts import Counts
from webtext.tokenizer import _bpe
from webtext.tokenizer.encode.stream import EncodeStream
from webtext.tokenizer.text import utf8

if TYPE_CHECKING:
    from webtext.base.parts.partset import Part, PartSet
    from webtext.tokenizer.train.counts import PieceCounts

HELD_OUT = "held_out"
EMPTY = "empty"
COUNTS = "counts"

_ROWS_AT_ONCE = 256
_BLOCK_BYTES = 1 << 20
_LARGEST_BLOCK = 64 << 20


@dataclass(slots=True)
class Input:
    """One part set or file that the user named as `url`, its weight, and the counts of records and bytes read from it."""

    url: str = ""
    weight: Fraction = Fraction(1)
    set: PartSet | None = None
    parts: Sequence[Part] = ()  # of the set: those that are read
    file: InputFile | None = None
    sha256: str = ""
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0
    share: float | None = 0.0  # of it that is read; None if that is unknown until the end

    @property
    def kind(self) -> str:
        """'set', 'counts', or the file's kind."""
        if self.file is None:
            return "set"
        return COUNTS if self.file.name.endswith(".counts") else self.file.kind

    @property
    def size(self) -> int:
        """The bytes of its files."""
        if self.file is not None:
            return self.file.folder.size(self.file.name)
        return sum(part.bytes for part in self.parts)

    def units(self) -> list[Input]:
        """Return an input for each part of a set, or this one if it is a file."""
        return [replace(self, parts=(part,)) for part in self.parts] if self.set else [self]

    def parent(self) -> dict[str, str]:
        """Return the input's entry in a manifest's `parents`."""
        named = {"set": self.set.kind, "hash": self.set.hash} if self.set else {"file_sha256": self.sha256}
        return named if self.weight == 1 else named | {"weight": str(self.weight)}


def open_input(url: str, weight: Fraction = Fraction(1)) -> list[Input]:
    """Return the part set or the file at a path or URL, or all files of a folder. InputError if there is none."""
    sets, files = find_inputs([url], DOCUMENTS, DOCUMENT_SUFFIXES, may_be_empty=True)
    found = [Input(url, weight, file=file) for file in files if file.kind]
    return [Input(url, weight, set=each, parts=each.parts) for each in sets] + found


def count_input(
    source: Input, into: PieceCounts, weight: int, text_field: str, on_bytes: Callable[[int], None]
) -> None:
    """Count the texts of an input `weight` times. `on_bytes` is called with the number of bytes of each text."""
    if source.file is None or source.kind != TEXT:
        into.add(_kept(source, text_field, on_bytes), weight)
    else:
        size = source.size if source.file.name == source.file.plain_name else None

        def on_block(n_bytes: int) -> None:
            source.bytes += n_bytes
            source.share = source.bytes / size if size else None
            on_bytes(n_bytes)

        with source.file.open() as file:
            into.add_stream(file, weight, on_block)
        if source.bytes:
            source.counts.keep()
        else:
            source.counts.drop(EMPTY)
    source.share = 1.0


def texts_of(source: Input, text_field: str = "text") -> Iterator[str | bytes]:
    """Yield the texts of an input; a text file in blocks of about a megabyte.

    Blocks end where every pattern cuts, even one that joins words, unless there is no such position in 64 MB.
    """
    if source.kind == COUNTS:
        raise InputError(f"'{source.url}' contains counts of pieces, not text", "pass the texts themselves")
    if source.file is None or source.kind != TEXT:
        yield from _kept(source, text_field, lambda n_bytes: None)
        return
    stream = EncodeStream(bytes, _bpe.last_safe_cut)
    with source.file.open() as file:
        while block := file.read(_BLOCK_BYTES):
            if text := stream.push(block):
                yield text
            if stream.n_waiting > _LARGEST_BLOCK:
                yield stream.finish()
    if rest := stream.finish():
        yield rest


def _kept(source: Input, text_field: str, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the texts of an input with many records, and count the records."""
    texts = _documents(source) if source.file is None else _rows(source, source.file, text_field)
    for text in texts:
        if not text:
            source.counts.drop(EMPTY)
            continue
        source.counts.keep()
        source.bytes += len(text)
        on_bytes(len(text))
        yield text


def _rows(source: Input, file: InputFile, text_field: str) -> Iterator[bytes]:
    """Yield the texts of JSON lines or Parquet; a record without a text is a failed one."""
    source.share = None
    for record in records(file, (text_field,), text_field):
        if isinstance(record, Refused):
            source.counts.fail(record.reason)
        else:
            yield utf8(record[text_field])


def _documents(source: Input) -> Iterator[bytes]:
    """Yield the texts of a part set's train split."""
    import pyarrow.compute as pc

    assert source.set is not None
    n_rows = 0
    n_all = sum(part.records for part in source.parts)
    for part in source.parts:
        for batch in source.set.batches(part, columns=["text", "split"], batch_size=_ROWS_AT_ONCE):
            n_rows += batch.num_rows
            source.share = n_rows / n_all
            is_train = pc.equal(batch.column("split"), "train")
            train = batch.filter(is_train)
            if train.num_rows < batch.num_rows:
                source.counts.drop(HELD_OUT, batch.num_rows - train.num_rows)
            yield from train.column("text").cast("binary").to_pylist()
