"""Reader for token shards at a URL: reads ranges of bytes and checks each against its checksums.

A range is widened to the checksummed blocks that it overlaps, so that data altered in transit is never trained on. A
forked process opens the folder again, because network clients don't survive a fork.

Nothing is requested before it is needed: the manifest has everything that opening requires, and a file's header and
checksums are read and compared with it when one of its blocks is first read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from webtext.base.storage import Folder
from webtext.shards.checksums import compare_block, compare_table
from webtext.shards.format import HEADER_BYTES, ShardHeader, Tokens


class RemoteShards:
    """The token files `names` of a folder at a URL, with the headers from its manifest. Thread-safe."""

    def __init__(self, url: str, names: Sequence[str], headers: Sequence[ShardHeader]) -> None:
        self._url = url
        self._process = -1
        self._opened: Folder | None = None
        self.names = list(names)
        self.headers = list(headers)
        self._checksums: dict[int, npt.NDArray[np.uint32]] = {}

    def whole(self, shard: int) -> bytes:
        """Return all bytes of a token file, unchecked."""
        return self._read(shard, 0, self.headers[shard].file_bytes)

    def tokens(self, shard: int, start: int, stop: int) -> Tokens:
        """Return tokens start … stop-1 of a shard (u16 or u32); raise ShardCorrupt if a block of them was altered."""
        dtype = self.headers[shard].dtype
        data = self._checked(shard, HEADER_BYTES + start * dtype.itemsize, HEADER_BYTES + stop * dtype.itemsize)
        return np.frombuffer(data, dtype)

    def index(self, shard: int) -> npt.NDArray[np.uint64]:
        """Return a shard's document starts, then its number of tokens (u64); raises ShardCorrupt like `tokens`."""
        header = self.headers[shard]
        return np.frombuffer(self._checked(shard, header.index_offset, header.checksums_offset), "<u8")

    def _checked(self, shard: int, start: int, stop: int) -> memoryview:
        """Return bytes start … stop-1 of a file, which must be between header and checksums, after checking them."""
        header, location = self.headers[shard], self._folder.location(self.names[shard])
        checksums = self._checksums_of(shard)
        size = header.block_bytes
        first, last = (start - HEADER_BYTES) // size, (stop - 1 - HEADER_BYTES) // size
        begin = HEADER_BYTES + first * size
        data = memoryview(self._read(shard, begin, min(HEADER_BYTES + (last + 1) * size, header.checksums_offset)))
        for block in range(first, last + 1):
            at = (block - first) * size
            fault = "it was altered in the store or in transit"
            compare_block(location, header, block, data[at : at + size], checksums, fault)
        return data[start - begin : stop - begin]

    def _checksums_of(self, shard: int) -> npt.NDArray[np.uint32]:
        """Return a file's checksums (u32) after checking size, header and SHA-256; two threads may both read them."""
        if shard not in self._checksums:
            name, header = self.names[shard], self.headers[shard]
            location = self._folder.location(name)
            start = self._read(shard, 0, HEADER_BYTES)
            ShardHeader.from_bytes(start, location, self._folder.size(name)).check_is(header, location)
            table = self._read(shard, header.checksums_offset, header.file_bytes)
            compare_table(location, header, table)
            self._checksums[shard] = np.frombuffer(table, "<u4")
        return self._checksums[shard]

    def _read(self, shard: int, start: int, stop: int) -> bytes:
        return self._folder.read_range(self.names[shard], start, stop)

    @property
    def _folder(self) -> Folder:
        if self._opened is None or self._process != os.getpid():
            self._opened, self._process = Folder(self._url), os.getpid()
        return self._opened
