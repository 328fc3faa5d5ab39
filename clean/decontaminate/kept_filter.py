"""A Bloom filter of a corpus' n-grams in a file, to check other evaluation sets later, without the documents.

GPT-2's authors used one (Radford et al. 2019, section 4): 8-grams, at most one false positive in 10^8. A filter can be
published even if the texts can't. It takes 38.4 bits per n-gram. The n-grams are counted with repeats, which is an
upper bound on the number of distinct ones.

    magic, header length (8 bytes, little-endian), header (JSON: FilterHeader), zeros up to HEADER_BYTES, bits

All workers set bits in the same file. Bits are never cleared, so the file doesn't depend on the order of the workers.
It is published when it is complete.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ConfigError, DryRun, InputError, RunFailed
from webtext.base.parts.digest import file_sha256
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.journal import Failed, Journal
from webtext.clean import _ngrams
from webtext.clean.decontaminate.comparison import aligned, overlap_rows, percent
from webtext.clean.decontaminate.evaluation import evaluation_sets, examples_of
from webtext.clean.text.arrays import texts_of

MAX_FALSE_POSITIVE = 1e-8
MAGIC = b"webtext n-gram filter 2\n"
HEADER_BYTES = 4096
BATCH_ROWS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True)
class _FillTask:
    documents: SetName
    part: int
    words: int
    file: str | None  # file to set bits in; None: only count
    bits: int
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


def write_filter(documents: PartSet, words: int, path: Path, run: Run) -> FilterHeader:
    """Write the filter of all n-grams of `words` words of the documents, unless `path` already is that filter."""
    try:
        header, _ = open_filter(path)
        if (header.documents, header.words, header.unicode) == (documents.hash, words, _ngrams.UNICODE_VERSION):
            return header
    except InputError:
        pass  # it doesn't exist yet, or is damaged
    if run.dry_run:
        raise DryRun
    name = SetName.of(documents)
    tasks = [_FillTask(name, part, words, None, 0, 0) for part in range(len(documents.parts))]
    n_ngrams, n_failed = _map(tasks, "count n-grams", run)
    if n_failed:
        run.console.warn(f"{n_failed:,} documents failed; their n-grams are not in the filter")
    bits, probes = sizes(n_ngrams, MAX_FALSE_POSITIVE)
    folder = Folder(path.parent)
    scratch = folder.scratch_path(path.name)
    try:
        with open(scratch, "wb") as file:
            file.truncate(HEADER_BYTES + bits // 8)
        _map([dataclasses.replace(task, file=str(scratch), bits=bits, probes=probes) for task in tasks], "fill", run)
        header = FilterHeader(
            words=words,
            ngrams=n_ngrams,
            bits=bits,
            probes=probes,
            unicode=_ngrams.UNICODE_VERSION,
            documents=documents.hash,
            failed=n_failed,
            sha256=_bits_sha256(scratch),
        )
        data = json.dumps(dataclasses.asdict(header), sort_keys=True).encode()
        with open(scratch, "r+b") as file:
            file.write(MAGIC + len(data).to_bytes(8, "little") + data)
        folder.publish(scratch, path.name)
    finally:
        scratch.unlink(missing_ok=True)
    return header


def open_filter(path: Path) -> tuple[FilterHeader, npt.NDArray[np.uint64]]:
    """Return the header and the mapped bits; raises InputError if the file isn't a complete, unaltered filter."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEADER_BYTES)
    except OSError as error:
        raise InputError(f"there is no filter '{path}': {error.strerror}", "make one: --keep-filter FILE") from None
    header = _read_header(head)
    if header is None or path.stat().st_size != HEADER_BYTES + header.bits // 8:
        raise InputError(f"'{path}' is not an n-gram filter of version 2, or is truncated", "rerun --keep-filter FILE")
    if _bits_sha256(path) != header.sha256:
        raise InputError(f"the filter '{path}' was altered", "make it again, or copy it again")
    return header, np.memmap(path, np.uint64, "r", HEADER_BYTES, (header.bits // 64,))


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


def query_filter(path: Path, against: Sequence[str]) -> dict[str, Any]:
    """Return the share of each evaluation set's n-grams that is in the filter, in the form of `overlap.json`."""
    if not against:
        raise ConfigError("no evaluation set given", "name one or more: --against FILE")
    header, bits = open_filter(path)
    if header.unicode != _ngrams.UNICODE_VERSION:
        raise InputError(
            f"the filter '{path}' was made with Unicode {header.unicode}, this package has {_ngrams.UNICODE_VERSION}",
            "text may be split into other words: use the package that made the filter",
        )
    sets = evaluation_sets(against)
    examples = examples_of(sets, header.words)
    found = _ngrams.bloom_has(bits, examples.table.hashes(), header.probes).astype(bool)
    rows = overlap_rows(examples, found, found)
    for each, row in zip(sets, rows, strict=True):
        row |= each.about()
        for name in [name for name in row if name.startswith("corpus_")]:
            del row[name]
    return {"filter": dataclasses.asdict(header), "sets": rows}


def filter_table(report: dict[str, Any]) -> str:
    """Format the result of `query_filter` as an aligned table."""
    lines = [["evaluation set", "examples", f"{report['filter']['words']}-grams", "in the corpus", "mean"]]
    for row in report["sets"]:
        shares = [percent(row[name]) for name in ("overlap_ratio", "mean_example_ratio")]
        lines.append([row["name"], f"{row['examples']:,}", f"{row['ngrams']:,}", *shares])
    return aligned(lines)


def _map(tasks: Sequence[_FillTask], what: str, run: Run) -> tuple[int, int]:
    """Run the tasks in workers; return the number of n-grams in all parts and of documents that failed."""
    total = [0, 0]
    with run.console.progress(len(tasks), f"clean.decontaminate: {what}", "parts") as progress:

        def done(_: int, counts: tuple[int, int]) -> None:
            total[:] = [one + other for one, other in zip(total, counts, strict=True)]
            progress.advance()

        failures = run.engine.map(_fill_part, tasks, on_done=done)
    if failures:
        part = tasks[failures[0].index].part
        raise RunFailed(f"part {part} of the documents failed: {failures[0].error}", "rerun the same command")
    return total[0], total[1]


def _fill_part(journal: Journal, task: _FillTask) -> tuple[int, int]:
    """Count a part's n-grams and set their bits, in a worker; also count the documents that fail."""
    bits = np.memmap(task.file, np.uint64, "r+", HEADER_BYTES, (task.bits // 64,)) if task.file else None
    n_ngrams = n_failed = 0
    batches = task.documents.open().batches(task.part, ["text"], BATCH_ROWS)
    for _, hashes in journal.apply_to_batches(
        lambda batch: _ngrams.hashes(*texts_of(batch["text"]), task.words), batches
    ):
        if isinstance(hashes, Failed):
            n_failed += 1
            continue
        n_ngrams += len(hashes)
        if bits is not None:
            _ngrams.bloom_add(bits, hashes, task.probes)
    return n_ngrams, n_failed


def _bits_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        file.seek(HEADER_BYTES)
        return file_sha256(file)
