"""The checksums of a token file's blocks, compared when a block is first read: opening costs the same for any size.

Then its ids are looked at too: one past the vocabulary is named here, and not by whatever a model makes of it.
A run that reads a block again takes it as whole: the next process compares it anew, `verify` always does.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ShardCorrupt
from webtext.shards.format import HEADER_BYTES, ShardHeader, corrupt

MEND = "copy the file from where it is whole, or pack the corpus again; then the same command goes on"


class BlockChecks:
    """Which blocks of one file were found whole. Threads may ask at once: at worst a block is compared twice.

    `data` is the whole file, `written` its table of checksums.
    """

    def __init__(
        self, location: str, header: ShardHeader, data: npt.NDArray[np.uint8], written: npt.NDArray[np.uint32]
    ) -> None:
        self.n_unchecked = header.n_blocks
        self._location, self._header, self._data, self._written = location, header, data, written
        self._unchecked = np.ones(header.n_blocks, np.bool_)

    def check(self, start: int, stop: int) -> None:
        """Compare the blocks that bytes start … stop-1 lie in, where nobody did; ShardCorrupt names the first altered one."""
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
        """Of each range of bytes starts[i] … stops[i]-1: whether a block of it has yet to be compared."""
        size = self._header.block_bytes
        before = np.concatenate([[0], np.cumsum(self._unchecked)])
        first, last = (starts - HEADER_BYTES) // size, (stops - 1 - HEADER_BYTES) // size
        return np.asarray(before[last + 1] > before[first])


def compare_table(location: str, header: ShardHeader, table: bytes) -> None:
    """ShardCorrupt unless the checksums of a file's blocks are those that its header names."""
    found = hashlib.sha256(table).hexdigest()
    if found != header.checksums_hash:
        raise ShardCorrupt(
            f"'{location}': SHA-256 of its checksums is {found[:12]}…",
            f"the file was altered: its header says {header.checksums_hash[:12]}…",
            MEND,
        )


def compare_block(
    location: str, header: ShardHeader, block: int, data: Any, written: npt.NDArray[np.uint32], fault: str = ""
) -> None:
    """ShardCorrupt unless `data`, the bytes of a file's block, has the checksum that was `written` and ids of the vocabulary."""
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
    """The ids among the bytes from `start` on, counted from the first token's."""
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
