"""Pass over a documents part: what dedup must know of each document, in one scratch file per part.

    part-00000.signed    Arrow IPC: id, digest (of the text), karma, date, in_validation, has_words, signature

Every row is signed, also those that quality rules drop, so that other thresholds need no second pass. A file counts
only if the key in its metadata names the part's records, the settings and the code that would make it now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError, RunFailed
from webtext.base.journal import Journal
from webtext.base.partset import PartSet
from webtext.base.recipe import sha256_json
from webtext.base.run import Run
from webtext.base.schemas import ID_HEX_DIGITS
from webtext.base.storage import Folder
from webtext.clean import _minhash

CODE_VERSION = 1  # raised when signatures or shingles change; guarded by a golden test
TEXTS_PER_BATCH = 128
_COLUMNS = ("id", "text", "text_digest", "karma", "date", "split")
DIGEST_BYTES = ID_HEX_DIGITS // 2
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_KEY = b"webtext.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignTask:
    """One part to be signed."""

    documents: PartSet
    part: int
    work: Folder
    shingle_words: int
    permutations: int

    @property
    def key(self) -> str:
        """What the signatures of this part depend on."""
        return sha256_json(
            {
                "code_version": CODE_VERSION,
                "records": self.documents.parts[self.part].record_digest,
                "shingle_words": self.shingle_words,
                "permutations": self.permutations,
                "unicode": _minhash.UNICODE_VERSION,
            }
        )


def sign_documents(tasks: Sequence[SignTask], run: Run) -> None:
    """Sign the parts that have no matching scratch file."""
    missing = [task for task in tasks if not _is_signed(task)]
    with run.console.progress(len(missing), "clean.dedup: sign", "parts") as progress:
        failures = run.engine.map(_sign_part, missing, on_done=lambda _index, _result: progress.advance())
    if failures:
        raise RunFailed(
            f"part {missing[failures[0].index].part} of '{tasks[0].documents.folder.url}' could not be signed: "
            f"{failures[0].error}",
            "give the same command again",
        )


def signed_schema(permutations: int) -> pa.Schema:
    """The columns of a scratch file."""
    return pa.schema(
        [
            ("id", pa.string()),
            ("digest", pa.binary(DIGEST_BYTES)),
            ("karma", pa.int64()),
            ("date", pa.int64()),
            ("in_validation", pa.bool_()),
            ("has_words", pa.bool_()),
            ("signature", pa.binary(permutations)),
        ]
    )


def signed_name(part: int) -> str:
    """The scratch file of a part."""
    return f"part-{part:05d}.signed"


def read_facts(work: Folder, part: int) -> pa.Table:
    """What the scratch file of a part says, but for the signatures."""
    names = signed_schema(1).names[:-1]
    options = pa.ipc.IpcReadOptions(included_fields=list(range(len(names))))
    with pa.OSFile(str(work.local_path(signed_name(part)))) as source:
        return pa.ipc.open_file(source, options=options).read_all().replace_schema_metadata()


def read_signatures(work: Folder, part: int) -> npt.NDArray[np.uint8]:
    """The signatures of a part, [records, permutations]."""
    with pa.memory_map(str(work.local_path(signed_name(part)))) as source:
        column = pa.ipc.open_file(source).read_all()["signature"]
        return fixed_bytes(column)


def fixed_bytes(column: Any) -> npt.NDArray[np.uint8]:
    """A column of fixed-size values without nulls as [n, bytes of one]."""
    width = column.type.byte_width
    rows = [
        np.frombuffer(chunk.buffers()[1] or b"", np.uint8)[chunk.offset * width :][: len(chunk) * width]
        for chunk in column.chunks
    ]
    return np.concatenate([np.empty(0, np.uint8), *rows]).reshape(-1, width)


def texts_of(column: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """A string array's bytes and the offsets of its texts in them, as the native core takes them."""
    _, offsets, data = column.buffers()
    if len(column) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    ends = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return np.frombuffer(data or b"", np.uint8), ends


def _is_signed(task: SignTask) -> bool:
    path = task.work.local_path(signed_name(task.part))
    if not path.exists():
        return False
    try:
        with pa.memory_map(str(path)) as source:
            metadata = pa.ipc.open_file(source).schema.metadata or {}
            return bool(metadata.get(_KEY) == task.key.encode())
    except (pa.ArrowInvalid, OSError):
        return False


def _sign_part(journal: Journal, task: SignTask) -> None:
    """Runs in a worker."""
    with task.work.scratch(signed_name(task.part)) as path:
        _write_signed(path, task)


def _write_signed(path: Path, task: SignTask) -> None:
    schema = signed_schema(task.permutations).with_metadata({_KEY: task.key.encode()})
    with pa.ipc.new_file(str(path), schema) as writer:
        for batch in task.documents.batches(task.part, _COLUMNS, TEXTS_PER_BATCH):
            texts, offsets = texts_of(batch.column("text"))
            signatures, n_shingles = _minhash.sign(texts, offsets, task.shingle_words, task.permutations)
            columns = [
                batch.column("id"),
                _rows_of_bytes(_from_hex(batch.column("text_digest"), task), DIGEST_BYTES),
                batch.column("karma"),
                batch.column("date"),
                pc.equal(batch.column("split"), "validation"),
                pa.array(n_shingles > 0),
                _rows_of_bytes(signatures, task.permutations),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _rows_of_bytes(values: npt.NDArray[np.uint8], width: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(width), values.size // width, [None, pa.py_buffer(values)])


def _from_hex(column: pa.Array, task: SignTask) -> npt.NDArray[np.uint8]:
    """The bytes that text digests stand for."""
    digits, offsets = texts_of(column)
    digits = digits[offsets[0] : offsets[-1]]
    if (np.diff(offsets) != ID_HEX_DIGITS).any() or not np.isin(digits, _HEX_DIGITS).all():
        raise InputError(
            f"a text_digest in part {task.part} of '{task.documents.folder.url}' is not {ID_HEX_DIGITS} hex digits",
            "make the documents again with this version of webtext",
        )
    nibbles = (digits & 0x0F) + np.where(digits >= ord("a"), 9, 0).astype(np.uint8)
    return np.ascontiguousarray(nibbles[0::2] << 4 | nibbles[1::2])
