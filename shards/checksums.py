"""Checksums of a token file's blocks. Each is compared when its block is first read, so opening takes constant time.

At the same time the block's ids are compared with the vocabulary, so that a wrong id is reported here instead of
failing inside a model. A process checks each block once; the next process checks it again, and `verify` always does.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ShardCorrupt
from webtext.shards.format import HEADER_BYTES, ShardHeader, corrupt

MEND = "restore the file from an intact copy, or pack the corpus again; then rerun the same command to resume"


class BlockChecks:
    """Keeps track of which blocks of one file were checked. Thread-safe: at worst a block is compared twice.

    `data` is the entire file (u8), `written` its table of checksums (u32, one per block).
    """

    def __init__(
        self, location: str, header: ShardHeader, data: npt.NDArray[np.uint8], written: npt.NDArray[np.uint32]
    ) -> None:
        self.n_unchecked = header.n_blocks
        self._location, self._header, self._data, self._written = location, header, data, written
        self._unchecked = np.ones(header.n_blocks, np.bool_)

    def check(self, start: int, stop: int) -> None:
        """Check the unchecked blocks of bytes start … stop-1; raise ShardCorrupt for the first altered one."""
        if not self.n_unchecked or stop <= start:
            return
        size = self._header.block_bytes
        first, last = (start - HEADER_BYTES) // size, (stop - 1 - HEADER_BYTES) // size
        for block in (first + np.flatnonzero(self._unchecked[first : last + 1])).tolist():
            at = HEADER_BYTES + block * size
            data = self._data[at : min(at + size, self._header.checksums_offset)]
            compare_block(self._location, self._header, block, data.data, self._written)
            self._unchecked[block] = False
        self.n_unchecked = int(np.count_nonzero(self._unchecked))

    def are_due(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each i whether bytes starts[i] … stops[i]-1 overlap an unchecked block."""
        size = self._header.block_bytes
        before = np.concatenate([[0], np.cumsum(self._unchecked)])
        first, last = (starts - HEADER_BYTES) // size, (stops - 1 - HEADER_BYTES) // size
        return np.asarray(before[last + 1] > before[first])


def compare_table(location: str, header: ShardHeader, table: bytes) -> None:
    """Raise ShardCorrupt unless a file's table of checksums has the SHA-256 in the file's header."""
    found = hashlib.sha256(table).hexdigest()
    if found != header.checksums_hash:
        raise ShardCorrupt(
            f"'{location}': the SHA-256 of its checksums is {found[:12]}…",
            f"the file was altered: its header says {header.checksums_hash[:12]}…",
            MEND,
        )


def compare_block(
    location: str, header: ShardHeader, block: int, data: Any, written: npt.NDArray[np.uint32], fault: str = ""
) -> None:
    """Raise ShardCorrupt unless `data`, the bytes of a block, matches the `written` checksum and has only valid ids."""
    found = zlib.crc32(data)
    if found != written[block]:
        at = HEADER_BYTES + block * header.block_bytes
        stop = min(at + header.block_bytes, header.checksums_offset)
        raise ShardCorrupt(
            f"'{location}': checksum of block {block:,} (bytes {at:,} to {stop - 1:,}) is {found:08x}",
            f"{fault or 'the file was altered'}: {written[block]:08x} was written",
            MEND,
        )
    _compare_ids(location, header, block * header.block_bytes, data)


def _compare_ids(location: str, header: ShardHeader, start: int, data: Any) -> None:
    """Raise ShardCorrupt for an invalid id in `data`, which begins `start` bytes after the first token."""
    size = header.dtype.itemsize
    first = -(-start // size)
    n = min((start + len(data)) // size, header.n_tokens) - first
    if n <= 0:
        return
    ids = np.frombuffer(data, header.dtype, n, first * size - start)
    if int(ids.max()) >= header.vocab_size:
        at = int(np.argmax(ids >= header.vocab_size))
        limit = f"the vocabulary has {header.vocab_size:,} tokens"
        corrupt(location, f"token {first + at:,}", int(ids[at]), limit)
