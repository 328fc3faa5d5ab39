"""Pass over a documents part: what dedup must know of each document, in one scratch file per part.

    part-00000.signatures    Arrow IPC: id, text_digest, karma, date, split, n_shingles, signature (uint16 x permutations)

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

from webtext.base.errors import RunFailed
from webtext.base.journal import Journal
from webtext.base.partset import PartSet
from webtext.base.recipe import sha256_json
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean import _minhash

CODE_VERSION = 1  # raised when signatures or shingles change; guarded by a golden test
TEXTS_PER_BATCH = 128
FACTS = ("id", "text_digest", "karma", "date", "split")
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
            ("text_digest", pa.string()),
            ("karma", pa.int64()),
            ("date", pa.int64()),
            ("split", pa.string()),
            ("n_shingles", pa.int64()),
            ("signature", pa.binary(2 * permutations)),
        ]
    )


def signatures_name(part: int) -> str:
    """The scratch file of a part."""
    return f"part-{part:05d}.signatures"


def read_signed(work: Folder, part: int) -> pa.Table:
    """The scratch file of a part, memory-mapped."""
    with pa.memory_map(str(work.local_path(signatures_name(part)))) as source:
        return pa.ipc.open_file(source).read_all()


def signature_rows(column: Any) -> npt.NDArray[np.uint16]:
    """A signature column as [n, permutations]."""
    rows = [np.frombuffer(chunk.buffers()[1] or b"", np.uint16) for chunk in column.chunks]
    permutations = column.type.byte_width // 2
    chunks = [
        values[chunk.offset * permutations :][: len(chunk) * permutations].reshape(-1, permutations)
        for values, chunk in zip(rows, column.chunks, strict=True)
    ]
    return np.concatenate([np.empty((0, permutations), np.uint16), *chunks])


def texts_of(column: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """A string array's bytes and the offsets of its texts in them, as the native core takes them."""
    _, offsets, data = column.buffers()
    if len(column) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    ends = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return np.frombuffer(data or b"", np.uint8), ends


def _is_signed(task: SignTask) -> bool:
    path = task.work.local_path(signatures_name(task.part))
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
    with task.work.scratch(signatures_name(task.part)) as path:
        _write_signed(path, task)


def _write_signed(path: Path, task: SignTask) -> None:
    schema = signed_schema(task.permutations).with_metadata({_KEY: task.key.encode()})
    with pa.ipc.new_file(str(path), schema) as writer:
        for batch in task.documents.batches(task.part, [*FACTS, "text"], TEXTS_PER_BATCH):
            texts, offsets = texts_of(batch.column("text"))
            signatures, n_shingles = _minhash.sign(texts, offsets, task.shingle_words, task.permutations)
            rows = pa.Array.from_buffers(schema.field("signature").type, len(batch), [None, pa.py_buffer(signatures)])
            columns = [batch.column(name) for name in FACTS]
            writer.write_batch(pa.record_batch([*columns, pa.array(n_shingles), rows], schema=schema))
