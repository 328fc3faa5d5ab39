"""Token shards that lie at a URL: any range of tokens, read by ranges of bytes, each checked against its checksums.

A range is widened to the checksummed blocks it touches, so nothing that was altered on its way is ever trained on. What
was opened in one process is opened anew in a forked one: network clients do not survive a fork.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from webtext.base.errors import NetworkError
from webtext.base.storage import Folder
from webtext.shards.checksums import compare_block
from webtext.shards.format import HEADER_BYTES, ShardHeader, Tokens

ATTEMPTS = 4
FIRST_WAIT_SECONDS = 0.5


class RemoteShards:
    """The token files `names` of a folder at a URL; opening reads their headers."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self._url = url
        self._process = -1
        self._opened: Folder | None = None
        self.names = list(names)
        self.headers = [self._header(name) for name in names]
        self._checksums: dict[int, npt.NDArray[np.uint32]] = {}
        self._indexes: dict[int, npt.NDArray[np.uint64]] = {}

    def whole(self, shard: int) -> bytes:
        """All bytes of a token file, unchecked."""
        return self._read(shard, 0, self.headers[shard].file_bytes)

    def tokens(self, shard: int, start: int, stop: int) -> Tokens:
        """Tokens start … stop-1 of a shard; ShardCorrupt when a block they lie in was altered."""
        dtype = self.headers[shard].dtype
        data = self._checked(shard, HEADER_BYTES + start * dtype.itemsize, HEADER_BYTES + stop * dtype.itemsize)
        return np.frombuffer(data, dtype)

    def index(self, shard: int) -> npt.NDArray[np.uint64]:
        """Where a shard's documents start, then its number of tokens; read once. ShardCorrupt as above."""
        if shard not in self._indexes:
            header = self.headers[shard]
            data = self._checked(shard, header.index_offset, header.checksums_offset)
            self._indexes[shard] = np.frombuffer(data, "<u8")
        return self._indexes[shard]

    def _checked(self, shard: int, start: int, stop: int) -> memoryview:
        """Bytes start … stop-1 of a file, after its header and before its checksums, of blocks that are whole."""
        header, location = self.headers[shard], self._folder.location(self.names[shard])
        size = header.block_bytes
        first, last = (start - HEADER_BYTES) // size, (stop - 1 - HEADER_BYTES) // size
        begin = HEADER_BYTES + first * size
        data = memoryview(self._read(shard, begin, min(HEADER_BYTES + (last + 1) * size, header.checksums_offset)))
        if shard not in self._checksums:
            table = self._read(shard, header.checksums_offset, header.file_bytes)
            self._checksums[shard] = np.frombuffer(table, "<u4")
        for block in range(first, last + 1):
            at = (block - first) * size
            fault = "it was altered there or on its way"
            compare_block(location, header, block, data[at : at + size], self._checksums[shard], fault)
        return data[start - begin : stop - begin]

    def _header(self, name: str) -> ShardHeader:
        data = self._folder.read_range(name, 0, HEADER_BYTES)
        return ShardHeader.from_bytes(data, self._folder.location(name), self._folder.size(name))

    def _read(self, shard: int, start: int, stop: int) -> bytes:
        for attempt in range(ATTEMPTS):
            try:
                return self._folder.read_range(self.names[shard], start, stop)
            except NetworkError:
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(FIRST_WAIT_SECONDS * 2**attempt)
        raise AssertionError

    @property
    def _folder(self) -> Folder:
        if self._opened is None or self._process != os.getpid():
            self._opened, self._process = Folder(self._url), os.getpid()
        return self._opened
