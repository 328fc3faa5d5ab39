"""A Bloom filter of a corpus' n-grams in a file, to check other texts later, without the documents.

GPT-2's authors used one (Radford et al. 2019, section 4): 8-grams of the training set, at most one false positive in
10^8. Held-out documents are left out, so that a model's texts can be compared with them. A filter can be published even
if the texts can't. It takes 38.4 bits per n-gram. The n-grams are counted with repeats, which is an upper bound on the
number of distinct ones.

    magic, header length (8 bytes, little-endian), header (JSON: FilterHeader), zeros up to HEADER_BYTES, bits

A task sets the bits of some parts' n-grams in a piece of the filter, in memory. The pieces, of one range of bits or of
several parts' n-grams, are a part set in the folder `_NAME` beside the file until one task joins them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder, file_sha256, write_array
from webtext.base.workers.journal import Failed, Journal
from webtext.clean import _ngrams
from webtext.clean.decontaminate.comparison import Mask, aligned, overlap_rows, percent
from webtext.clean.decontaminate.evaluation import evaluation_sets, examples_of
from webtext.clean.text.arrays import texts_of

MAX_FALSE_POSITIVE = 1e-8
MAGIC = b"webtext n-gram filter 3\n"
HEADER_BYTES = 4096
BATCH_ROWS = 256
PIECE_BYTES = 512 << 20
"""Memory of a task; a larger filter is filled range by range, and each range hashes all n-grams again."""
PIECES_BYTES, MAX_GROUPS = 8 << 30, 64
"""Disk for all pieces, unless the filter itself is larger: it bounds into how many groups the parts are divided."""
JOIN_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class FilterHeader:
    """The header of a filter file."""

    words: int  # words per n-gram
    ngrams: int  # n-grams added, with repeats
    bits: int
    probes: int  # bits set per n-gram
    unicode: str  # Unicode version of the tables that split text into words
    documents: str  # hash of the documents set
    failed: int  # documents whose n-grams could not be added
    sha256: str  # SHA-256 of the bits

    @property
    def false_positives(self) -> float:
        """The share of other n-grams that the filter has as well; at most, because repeats count as n-grams (Bloom 1970)."""
        return (1 - math.exp(-self.probes * self.ngrams / self.bits)) ** self.probes


@dataclass(frozen=True, slots=True)
class _Piece:
    """The bits of some parts' n-grams in the words `first` to `last` - 1 of the filter."""

    documents: SetName
    parts: tuple[int, ...]
    words: int
    first: int
    last: int
    n_words: int
    probes: int


def sizes(n_ngrams: int, max_false_positive: float) -> tuple[int, int]:
    """Return the number of bits (a multiple of 64) and probes that keep false positives below the bound.

    The smallest filter has -ln p / ln(2)^2 bits per n-gram and -log2 p probes (Bloom 1970). 0.2 % more bits make up for
    rounding the probes.

    >>> sizes(1_000_000, 1e-8)
    (38416960, 27)
    """
    each = -math.log(max_false_positive) / math.log(2) ** 2
    words = math.ceil(max(1, n_ngrams) * each * 1.002 / 64)
    return 64 * words, max(1, round(-math.log2(max_false_positive)))


def write_filter(documents: PartSet, words: int, path: str | os.PathLike[str], run: Run) -> FilterHeader:
    """Write the filter of the n-grams of `words` words of the split 'train', unless `path` already is that filter."""
    location = os.fspath(path)
    folder, name = Folder.split(location)
    if folder.is_file(name):
        (header,) = run.map(_checked, [location], "clean.decontaminate: check the filter", unit="file")
        about = (documents.hash, words, _ngrams.UNICODE_VERSION)
        if header is not None and (header.documents, header.words, header.unicode) == about:
            return header
    if run.dry_run:
        raise DryRun
    opened = SetName.of(documents)
    counting = [(opened, part, words) for part in range(len(documents.parts))]
    counted = run.map(_count_part, counting, "clean.decontaminate: count n-grams")
    n_ngrams, n_failed = (sum(each) for each in zip(*counted, strict=True)) if counted else (0, 0)
    if n_failed:
        run.console.warn(f"{n_failed:,} documents failed; their n-grams are not in the filter")
    bits, probes = sizes(n_ngrams, MAX_FALSE_POSITIVE)
    header = FilterHeader(words, n_ngrams, bits, probes, _ngrams.UNICODE_VERSION, documents.hash, n_failed, sha256="")
    pieces = _pieces(opened, len(documents.parts), header)
    tasks = [
        PartTask(index=i, sources=(), payload=piece, depends=f"{documents.hash} {i}") for i, piece in enumerate(pieces)
    ]
    settings, outputs = {"words": words, "pieces": len(pieces)}, {"pieces": (folder.location(f"_{name}"), "exchange")}
    recipe = Recipe(stage="clean.filter-pieces", code_version=2, settings=settings)
    (made,) = run_parts(_fill_piece, tasks, recipe=recipe, outputs=outputs, parents=[documents], run=run).values()
    task = SetName.of(made), tuple(piece.first for piece in pieces), header, location
    (header,) = run.map(_join_pieces, [task], "clean.decontaminate: join", unit="filter")
    if run.parts is None:  # other runs may be reading them
        made.folder.remove_all()
    return header


def open_filter(path: str | os.PathLike[str]) -> tuple[FilterHeader, npt.NDArray[np.uint64]]:
    """Return the header and the mapped bits; raises InputError if the file isn't a complete, unaltered filter."""
    folder, name = Folder.split(os.fspath(path))
    if not folder.is_file(name):
        raise InputError(f"there is no filter '{path}'", "make one: --keep-filter FILE")
    with folder.open(name) as file:
        header = _read_header(file.read(HEADER_BYTES))
        if header is None or folder.size(name) != HEADER_BYTES + header.bits // 8:
            raise InputError(f"'{path}' is not an n-gram filter of version 3, or is truncated", "make it again")
        file.seek(HEADER_BYTES)
        if file_sha256(file) != header.sha256:
            raise InputError(f"the filter '{path}' was altered", "make it again, or copy it again")
    return header, np.memmap(folder.local_path(name), np.uint64, "r", HEADER_BYTES, (header.bits // 64,))


def _read_header(head: bytes) -> FilterHeader | None:
    """Parse the header from a file's first bytes; None if it isn't a valid header."""
    start = len(MAGIC) + 8
    try:
        n_bytes = int.from_bytes(head[len(MAGIC) : start], "little")
        header = FilterHeader(**json.loads(head[start : start + n_bytes]))
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = (header.words, header.ngrams, header.bits, header.probes)
    sound = all(isinstance(each, int) and 0 <= each < 2**62 for each in numbers) and header.words * header.probes > 0
    return header if head.startswith(MAGIC) and sound and header.bits > 0 and header.bits % 64 == 0 else None


def query_filter(path: str | os.PathLike[str], against: Sequence[str]) -> dict[str, Any]:
    """Return the share of each evaluation set's n-grams that is in the filter, in the form of `overlap.json`."""
    if not against:
        raise ConfigError("no evaluation set given", "name one or more: --against FILE")
    header, has = ask_filter(path)
    sets = evaluation_sets(against)
    examples = examples_of(sets, header.words)
    found = has(examples.table)
    rows = overlap_rows(examples, found, found)
    for each, row in zip(sets, rows, strict=True):
        row |= each.about()
        for name in [name for name in row if name.startswith("corpus_")]:
            del row[name]
    return {"filter": dataclasses.asdict(header), "sets": rows}


def ask_filter(path: str | os.PathLike[str]) -> tuple[FilterHeader, Callable[[_ngrams.Table], Mask]]:
    """Return the header of a filter, and a function from a table to which of its n-grams the filter has."""
    header, bits = open_filter(path)
    if header.unicode != _ngrams.UNICODE_VERSION:
        raise InputError(
            f"the filter '{path}' was made with Unicode {header.unicode}, this package has {_ngrams.UNICODE_VERSION}",
            "text may be split into other words: use the package that made the filter",
        )
    return header, lambda table: _ngrams.bloom_has(bits, table.hashes(), header.probes).astype(bool)


def filter_table(report: dict[str, Any]) -> str:
    """Format the result of `query_filter` as an aligned table."""
    lines = [["evaluation set", "examples", f"{report['filter']['words']}-grams", "in the corpus", "mean"]]
    for row in report["sets"]:
        shares = [percent(row[name]) for name in ("overlap_ratio", "mean_example_ratio")]
        lines.append([row["name"], f"{row['examples']:,}", f"{row['ngrams']:,}", *shares])
    return aligned(lines)


def _checked(_: Journal, location: str) -> FilterHeader | None:
    """Return the header of a filter, in a worker; None if it is damaged."""
    try:
        return open_filter(location)[0]
    except InputError:
        return None


def _pieces(documents: SetName, n_parts: int, header: FilterHeader) -> list[_Piece]:
    """Return the pieces: all groups of parts for the first range of bits, then for the next."""
    n_words = header.bits // 64
    n_ranges = -(-header.bits // 8 // PIECE_BYTES)
    n_groups = max(1, min(n_parts, MAX_GROUPS, PIECES_BYTES // (header.bits // 8)))
    starts = [n_words * number // n_ranges for number in range(n_ranges + 1)]
    groups = [tuple(range(number, n_parts, n_groups)) for number in range(n_groups)]
    return [
        _Piece(documents, parts, header.words, first, last, n_words, header.probes)
        for first, last in zip(starts, starts[1:], strict=False)
        for parts in groups
    ]


def _count_part(journal: Journal, task: tuple[SetName, int, int]) -> tuple[int, int]:
    """Count a part's n-grams and the documents that fail, in a worker."""
    documents, part, words = task
    n_ngrams = n_failed = 0
    batches = documents.open().batches(part, ["text", "split"], BATCH_ROWS)
    for _, hashes in journal.apply_to_batches(lambda batch: _hashes(batch, words), batches):
        if isinstance(hashes, Failed):
            n_failed += 1
        else:
            n_ngrams += len(hashes)
    return n_ngrams, n_failed


def _fill_piece(context: PartContext, task: PartTask) -> None:
    """Set the bits of a piece, in a worker."""
    piece: _Piece = task.payload
    bits = np.zeros(piece.last - piece.first, np.uint64)
    documents = piece.documents.open()
    batches = (batch for part in piece.parts for batch in documents.batches(part, ["id", "text", "split"], BATCH_ROWS))
    for rows, hashes in context.apply_to_batches(lambda batch: _hashes(batch, piece.words), batches):
        if not isinstance(hashes, Failed):
            context.main.counts.keep(rows.num_rows)
            _ngrams.bloom_add(bits, hashes, piece.probes, piece.first, piece.n_words)
    with open(context.main.attach(f"part-{task.index:05d}.bits"), "wb") as file:
        write_array(file, bits)


def _hashes(batch: pa.RecordBatch, words: int) -> npt.NDArray[np.uint64]:
    return _ngrams.hashes(*texts_of(batch.filter(pc.equal(batch["split"], "train"))["text"]), words)


def _join_pieces(journal: Journal, task: tuple[SetName, tuple[int, ...], FilterHeader, str]) -> FilterHeader:
    """Write the filter from its pieces, of which some begin at the same word, in a worker; return the header."""
    name, firsts, header, location = task
    pieces, sha256 = name.open(), hashlib.sha256()
    folder, filter_name = Folder.split(location)
    with folder.scratch(filter_name) as path, open(path, "wb") as file:
        file.seek(HEADER_BYTES)
        for first in sorted(set(firsts)):
            with contextlib.ExitStack() as opened:
                names = [pieces.attachment(i, ".bits") for i, each in enumerate(firsts) if each == first]
                files = [opened.enter_context(pieces.folder.open(each)) for each in names]
                while block := files[0].read(JOIN_BYTES):
                    journal.idle()  # progress
                    bits = np.frombuffer(block, np.uint64).copy()
                    for other in files[1:]:
                        bits |= np.frombuffer(other.read(JOIN_BYTES), np.uint64)
                    sha256.update(bits.data)
                    write_array(file, bits)
        header = dataclasses.replace(header, sha256=sha256.hexdigest())
        data = json.dumps(dataclasses.asdict(header), sort_keys=True).encode()
        file.seek(0)
        file.write(MAGIC + len(data).to_bytes(8, "little") + data)
    return header
