"""Pass 1 of dedup: write the signatures and facts of each documents part to three scratch files.

    part-00000.signatures    the signatures, one byte per permutation, row after row
    part-00000.signed        Arrow IPC: id, digest (of the text), karma, date, in_validation, has_words, failed
    part-00000.signed.json   the SHA-256 of both, and the key: a hash of the part's records, the settings and the code

Every row is signed, including rows that quality rules drop, so that other thresholds don't need a second pass. The
third file is written last and removed first; the other two are used only while its key and digests match.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError, RunFailed
from webtext.base.parts.digest import file_sha256
from webtext.base.parts.identifiers import ID_HEX_DIGITS
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import sha256_json
from webtext.base.run import Run
from webtext.base.storage import Folder, write_array
from webtext.base.workers.journal import Failed, Journal
from webtext.clean import _minhash
from webtext.clean.dedup.datasketch_signatures import sign_flat
from webtext.clean.dedup.settings import DATASKETCH, DedupSettings
from webtext.clean.text.arrays import max_text_bytes, shortened, texts_of

CODE_VERSION = 3  # raised when signatures, shingles or the files change; guarded by a golden test
TEXTS_PER_BATCH = 128
FACTS_PER_BATCH = 8192
_COLUMNS = ("id", "text", "text_digest", "karma", "date", "split")
DIGEST_BYTES = ID_HEX_DIGITS // 2
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
NO_SHINGLE = np.uint32(0xFFFFFFFF)
Signed = tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class SignTask:
    """A part to sign."""

    documents: SetName
    part: int
    n_rows: int
    record_digest: str
    work: Folder
    settings: DedupSettings

    @classmethod
    def all_of(cls, documents: PartSet, work: Folder, settings: DedupSettings) -> list[SignTask]:
        """Return a task for every part of a set."""
        name = SetName.of(documents)
        return [
            cls(name, i, part.records, part.record_digest, work, settings) for i, part in enumerate(documents.parts)
        ]

    @property
    def key(self) -> str:
        """Hash of everything that this part's signatures depend on."""
        return sha256_json({"records": self.record_digest} | about_signatures(self.settings))


def sign_documents(tasks: Sequence[SignTask], run: Run) -> None:
    """Sign the parts that don't have matching scratch files yet."""
    missing = [task for task in tasks if not is_signed(task)]
    with run.console.progress(len(missing), "clean.dedup: sign", "parts") as progress:
        failures = run.engine.map(_sign_part, missing, on_done=lambda _index, _result: progress.advance())
    if failures:
        raise RunFailed(
            f"part {missing[failures[0].index].part} of '{tasks[0].documents.url}' could not be signed: "
            f"{failures[0].error}",
            "rerun the same command",
        )


def about_signatures(settings: DedupSettings) -> dict[str, Any]:
    """Return everything but the texts that signatures depend on; only signatures with equal values are comparable."""
    return {
        "code_version": CODE_VERSION,
        "shingle_words": settings.shingle_words,
        "permutations": settings.permutations,
        "signatures": settings.signatures,
        "unicode": _minhash.UNICODE_VERSION,
    }


def sign_batch(texts: pa.Array, settings: DedupSettings) -> Signed:
    """Return the texts' signatures [n, permutations], and which texts have words, bool [n].

    Signature values are uint8, or datasketch's uint32 hash values; comparisons look at the lowest byte.
    """
    flat, offsets = texts_of(texts)
    if settings.signatures == DATASKETCH:
        values = sign_flat(flat, offsets, settings.shingle_words, settings.permutations)
        return values, ~(values == NO_SHINGLE).all(axis=1)
    signatures, n_shingles = _minhash.sign(flat, offsets, settings.shingle_words, settings.permutations)
    return signatures, n_shingles > 0


SIGNED = pa.schema(
    [
        ("id", pa.string()),
        ("digest", pa.binary(DIGEST_BYTES)),
        ("karma", pa.int64()),
        ("date", pa.int64()),
        ("in_validation", pa.bool_()),
        ("has_words", pa.bool_()),
        ("failed", pa.string()),  # why the row has no signature; null if it has one
    ]
)


def signed_name(part: int) -> str:
    """Return the name of the file with the facts about a part's documents."""
    return f"part-{part:05d}.signed"


def signatures_name(part: int) -> str:
    """Return the name of the file with a part's signatures."""
    return f"part-{part:05d}.signatures"


def read_facts(work: Folder, part: int) -> Iterator[pa.RecordBatch]:
    """Yield the facts about a part's documents from its scratch file, a few thousand documents at a time."""
    with pa.OSFile(str(work.local_path(signed_name(part)))) as source:
        file = pa.ipc.open_file(source)
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


def read_signatures(work: Folder, part: int, permutations: int) -> npt.NDArray[np.uint8]:
    """Return the signatures of a part, uint8 [records, permutations], memory-mapped."""
    path = work.local_path(signatures_name(part))
    values = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    return values.reshape(-1, permutations)


def fixed_bytes(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Return a fixed-size binary array without nulls as uint8 [n, bytes per value]."""
    width = column.type.byte_width
    values = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    return values[column.offset * width :][: len(column) * width].reshape(-1, width)


def is_signed(task: SignTask) -> bool:
    """Whether the part's scratch files exist, are intact and have the current key."""
    try:
        entry = task.work.read_object(_entry_name(task.part))
        return entry.get("key") == task.key and entry == _entry(task)
    except (InputError, OSError):
        return False


def _entry_name(part: int) -> str:
    return f"{signed_name(part)}.json"


def _entry(task: SignTask) -> dict[str, str]:
    """Return the key, and the current SHA-256 of each scratch file."""
    entry = {"key": task.key}
    for name in (signatures_name(task.part), signed_name(task.part)):
        with task.work.open(name) as file:
            entry[name] = file_sha256(file)
    return entry


def _sign_part(journal: Journal, task: SignTask) -> None:
    """Sign one part, in a worker."""
    documents = task.documents.open()
    limit = max_text_bytes(documents)
    batches = journal.apply_to_batches(
        lambda batch: sign_batch(shortened(batch["text"], limit)[0], task.settings),
        documents.batches(task.part, _COLUMNS, TEXTS_PER_BATCH),
    )
    if journal.only is not None:  # a retry of a single row writes no files
        for _ in batches:
            pass
        return
    for name in (_entry_name(task.part), signatures_name(task.part), signed_name(task.part)):
        task.work.remove(name)
    with (
        task.work.scratch(signed_name(task.part)) as path,
        task.work.scratch(signatures_name(task.part)) as signatures,
        open(signatures, "wb") as file,
        pa.ipc.new_file(str(path), SIGNED, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer,
    ):
        for table in _in_batches(_signed(batches, task, limit, file)):
            writer.write_table(table)
    task.work.write_bytes(_entry_name(task.part), json.dumps(_entry(task)).encode())


def _signed(
    batches: Iterable[tuple[pa.RecordBatch, Signed | Failed]], task: SignTask, limit: int, signatures: BinaryIO
) -> Iterator[pa.RecordBatch]:
    for batch, signed in batches:
        failed = shortened(batch["text"], limit)[1]
        if isinstance(signed, Failed):  # write an empty row, so that signatures match the documents row for row
            failed = pa.array([signed.reason])
            signed = np.zeros((1, task.settings.permutations), np.uint8), np.zeros(1, np.bool_)
        values, has_words = signed
        write_array(signatures, values.astype(np.uint8, copy=False))
        digests = digest_bytes(batch.column("text_digest"), f"part {task.part} of '{task.documents.url}'")
        columns = [
            batch.column("id"),
            digests,
            batch.column("karma"),
            batch.column("date"),
            in_validation(batch.column("split")),
            pa.array(has_words),
            failed,
        ]
        yield pa.record_batch(columns, schema=SIGNED)


def _in_batches(small: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    while some := list(itertools.islice(small, FACTS_PER_BATCH // TEXTS_PER_BATCH)):
        yield pa.Table.from_batches(some).combine_chunks()


def in_validation(split: pa.Array) -> pa.Array:
    """Return which documents are in the validation split."""
    return pc.equal(split, "validation")


def digest_bytes(column: pa.Array, place: str) -> pa.Array:
    """Convert hex text digests to their 16 bytes; raises InputError with `place` if one isn't a digest."""
    digits, offsets = texts_of(column)
    digits = digits[offsets[0] : offsets[-1]]
    if (np.diff(offsets) != ID_HEX_DIGITS).any() or not np.isin(digits, _HEX_DIGITS).all():
        raise InputError(
            f"a text_digest in {place} is not {ID_HEX_DIGITS} hex digits",
            "make the documents again with this version of webtext",
        )
    nibbles = (digits & 0x0F) + np.where(digits >= ord("a"), 9, 0).astype(np.uint8)
    packed = np.ascontiguousarray(nibbles[0::2] << 4 | nibbles[1::2])
    return pa.Array.from_buffers(pa.binary(DIGEST_BYTES), len(column), [None, pa.py_buffer(packed)])
