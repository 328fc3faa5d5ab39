"""Inputs of `tokenizer train`, and reading their texts while counting records by outcome.

    part set (folder)          documents of the split 'train'; others are dropped as `held_out`
    any other file or folder   texts, as `base/inputs/` reads them; a text file is streamed

Records without text are counted by reason and never end a run, and so is a file that can't be read to its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from webtext.base.errors import ConfigError, InputError, did_you_mean
from webtext.base.inputs.encodings import UTF_8
from webtext.base.inputs.files import (
    DOCUMENT_SUFFIXES,
    DOCUMENTS,
    PARQUET,
    TEXT,
    BrokenFile,
    InputFile,
    Refused,
    find_inputs,
    hash_files,
    lost,
)
from webtext.base.inputs.records import BLOCK_BYTES, records
from webtext.base.parts.counts import Counts, failed_lines
from webtext.tokenizer.text import utf8
from webtext.tokenizer.train.counts import PieceCounts, whole_weights
from webtext.tokenizer.train.progress import REPORTED_BYTES, TrainingProgress

if TYPE_CHECKING:
    from webtext.base.parts.partset import PartSet
    from webtext.base.run import Run

HELD_OUT = "held_out"
EMPTY = "empty"

HASHED_HERE = 64 << 20
"""Bytes of files that this process hashes; workers hash more."""
_ROWS_AT_ONCE = 256
_WEIGHT = re.compile(r"\d{1,9}(\.\d{1,9})?|\d{1,9}/\d{1,9}")


@dataclass(slots=True)
class Input:
    """One part set or file that the user named as `url`, its weight, and the counts of records and bytes read from it."""

    url: str = ""
    weight: Fraction = Fraction(1)
    set: PartSet | None = None
    file: InputFile | None = None
    version: str = ""  # of the file, before its SHA-256 was computed
    sha256: str = ""
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0
    share: float | None = 0.0  # of it that is read; None if that is unknown until the end
    lost: Refused | None = None  # why the file can't be opened

    @property
    def size(self) -> int:
        """The bytes of its files."""
        if self.file:
            return self.file.folder.size(self.file.name)
        return sum(part.bytes for part in self.set.parts) if self.set else 0

    def parent(self) -> dict[str, str]:
        """Return the input's entry in a manifest's `parents`."""
        named = {"set": self.set.kind, "hash": self.set.hash} if self.set else {"file_sha256": self.sha256}
        return named if self.weight == 1 else named | {"weight": str(self.weight)}


def open_inputs(inputs: Sequence[str], run: Run, weights: Sequence[str] = (), encoding: str = UTF_8) -> list[Input]:
    """Open inputs with their weights (default 1). ConfigError for an invalid weight, or one for an unknown input."""
    named = weights_by_input(inputs, weights)
    sources = [each for url in inputs for each in _open_input(url, named.get(url, Fraction(1)), encoding)]
    files = [source.file for source in sources if source.file]
    is_much = sum(source.size for source in sources if source.file) > HASHED_HERE
    hashes = iter(hash_files(files, run) if is_much else [file.sha256() for file in files])
    for source in sources:
        source.sha256 = next(hashes) if source.file else ""
    return sources


def weights_by_input(inputs: Sequence[str], weights: Sequence[str]) -> dict[str, Fraction]:
    """Parse INPUT=NUMBER. ConfigError for an invalid weight, or one for an unknown input."""
    named: dict[str, Fraction] = {}
    for given in weights:
        url, _, number = given.rpartition("=")
        if url not in inputs:
            raise ConfigError(f"the weight '{given}' doesn't match any input", did_you_mean(url, inputs))
        if not _WEIGHT.fullmatch(number) or not set(number.partition("/")[2] or "1") - {"0"} or not Fraction(number):
            raise ConfigError(
                f"the weight '{given}' is not a number above 0", "expected e.g. 3, 2.5 or 1/3, at most nine digits"
            )
        named[url] = Fraction(number)
    return named


def find_killers(sources: Sequence[Input], run: Run) -> None:
    """Open Parquet files in workers before this process does, and set aside those that kill a worker."""
    if files := [source.file for source in sources if source.file and source.file.kind == PARQUET]:
        from webtext.base.inputs import parquet

        killers = parquet.find_killers(files, run)
        for source in sources:
            source.lost = lost(killers[source.file]) if source.file in killers else None


def count_inputs(
    inputs: Sequence[Input], counts: PieceCounts, text_field: str, run: Run, progress: TrainingProgress
) -> int:
    """Count the texts of all inputs; return the scale by which weights are multiplied. InputError if there is no text."""
    weights, scale = whole_weights([source.weight for source in inputs])
    sizes, n_new = [source.size for source in inputs], 0

    def on_bytes(n_bytes: int) -> None:
        nonlocal n_new
        n_new += n_bytes
        if n_new >= REPORTED_BYTES:
            read = [source.share * size for source, size in zip(inputs, sizes, strict=True) if source.share is not None]
            progress.counted(n_new, sum(read) / sum(sizes) if len(read) == len(inputs) else None)
            n_new = 0

    for source, weight in zip(inputs, weights, strict=True):
        try:
            _count_input(source, counts, weight, text_field, on_bytes)
        except BrokenFile as error:
            source.counts.fail(error.reason)
        if source.file:
            source.file.check_unchanged(source.version, source.sha256)
    progress.counted(n_new, 1.0)
    if failed := sum((source.counts for source in inputs), Counts()).failed:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(failed.items()))
        by_file = {source.file.location if source.file else source.url: source.counts.failed for source in inputs}
        run.console.warn(f"{sum(failed.values()):,} records without text: {reasons}\n{failed_lines(by_file)}")
    if not len(counts):
        place = inputs[0].url if inputs else ""
        raise InputError(f"no text to train on in '{place}'", "name a corpus with train documents")
    return scale


def _open_input(url: str, weight: Fraction, encoding: str) -> list[Input]:
    """Return the part set or the file at a path or URL, or all files of a folder. InputError if there is none."""
    sets, files = find_inputs([url], DOCUMENTS, DOCUMENT_SUFFIXES, may_be_empty=True, encoding=encoding)
    found = [Input(url, weight, file=file, version=file.version) for file in files if file.kind]
    return [Input(url, weight, set=each) for each in sets] + found


def _count_input(
    source: Input, into: PieceCounts, weight: int, text_field: str, on_bytes: Callable[[int], None]
) -> None:
    """Count the texts of an input `weight` times. `on_bytes` is called with the number of bytes of each text."""
    if not source.file or source.file.kind != TEXT:
        into.add(_kept(source, text_field, on_bytes), weight)
    else:
        size = source.size if len(source.file.name) == len(source.file.plain_name) else None

        def on_block(n_bytes: int) -> None:
            source.bytes += n_bytes
            source.share = source.bytes / size if size else None
            on_bytes(n_bytes)

        with source.file.open() as file:
            if any(b"\xff" in block for block in iter(lambda: file.read(BLOCK_BYTES), b"")):
                source.counts.fail("not_utf8")
                source.share = 1.0
                return
        with source.file.open() as file:
            into.add_stream(file, weight, on_block)
        if source.bytes:
            source.counts.keep()
        else:
            source.counts.drop(EMPTY)
    source.share = 1.0


def _kept(source: Input, text_field: str, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the texts of an input with many records, and count the records."""
    for text in _rows(source, source.file, text_field) if source.file else _documents(source):
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
    for record in [source.lost] if source.lost else records(file, (text_field,), text_field):
        if isinstance(record, Refused):
            source.counts.fail(record.reason)
        else:
            yield utf8(record[text_field])


def _documents(source: Input) -> Iterator[bytes]:
    """Yield the texts of a part set's train split."""
    import pyarrow.compute as pc

    assert source.set is not None
    n_rows = 0
    for part in source.set.parts:
        for batch in source.set.batches(part, columns=["text", "split"], batch_size=_ROWS_AT_ONCE):
            n_rows += batch.num_rows
            source.share = n_rows / source.set.records
            is_train = pc.equal(batch.column("split"), "train")
            train = batch.filter(is_train)
            if train.num_rows < batch.num_rows:
                source.counts.drop(HELD_OUT, batch.num_rows - train.num_rows)
            yield from train.column("text").cast("binary").to_pylist()
