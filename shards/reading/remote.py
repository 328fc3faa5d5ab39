"""Reader for token shards at a URL: reads ranges of bytes and checks each against its checksums.

A range is widened to the checksummed blocks that it overlaps, so that data altered in transit is never trained on.
Checked blocks are kept in a local file, so that a second epoch asks for none of them. A forked process opens the folder
again, because network clients don't survive a fork.

Nothing is requested before it is needed: the manifest has everything that opening requires, and a file's header and
checksums are read and compared with it when one of its blocks is first read.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from webtext.base.storage import Folder
from webtext.shards.checksums import compare_block, compare_table
from webtext.shards.format import HEADER_BYTES, ShardHeader, Tokens

CACHE_BYTES = 32 << 30


class RemoteShards:
    """The token files `names` of a folder at a URL, with the headers from its manifest. Thread-safe."""

    def __init__(self, url: str, names: Sequence[str], headers: Sequence[ShardHeader]) -> None:
        self._url = url
        self._process = -1
        self._opened: Folder | None = None
        self._kept = _Blocks()
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
        wanted = range((start - HEADER_BYTES) // size, (stop - 1 - HEADER_BYTES) // size + 1)
        blocks = {block: self._kept.get(shard, block) for block in wanted}
        if missing := [block for block in wanted if blocks[block] is None]:
            asked = range(missing[0], missing[-1] + 1)  # in one request, even if some between them are kept
            end = min(HEADER_BYTES + asked.stop * size, header.checksums_offset)
            data = memoryview(self._read(shard, HEADER_BYTES + asked.start * size, end))
            for block, at in zip(asked, range(0, len(data), size), strict=True):
                blocks[block] = piece = data[at : at + size]
                compare_block(location, header, block, piece, checksums, "it was altered in the store or in transit")
                self._kept.put(shard, block, piece)
        skipped = start - HEADER_BYTES - wanted.start * size
        whole = data if len(missing) == len(wanted) else memoryview(b"".join(filter(None, blocks.values())))
        return whole[skipped : skipped + stop - start]

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
            self._kept = _Blocks()  # a forked process would write to its parent's file
        return self._opened


class _Blocks:
    """Blocks in a file without a name in the folder for temporary files, at most CACHE_BYTES or half of what is free.

    The first that fit are kept: epochs pass over all blocks, so the one read last is the one needed last.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], tuple[int, int]] = {}  # (shard, block) -> (offset, length)
        self._lock, self._end, self._limit, self._file = threading.Lock(), 0, CACHE_BYTES, -1

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def get(self, shard: int, block: int) -> bytes | memoryview | None:
        at, n_bytes = self._places.get((shard, block), (0, 0))
        return os.pread(self._file, n_bytes, at) if n_bytes else None

    def put(self, shard: int, block: int, data: memoryview) -> None:
        with self._lock, contextlib.suppress(OSError):  # the disk is full: the block will be asked for again
            if self._file < 0:
                with tempfile.TemporaryFile() as file:
                    self._file = os.dup(file.fileno())
                disk = os.fstatvfs(self._file)
                self._limit = min(CACHE_BYTES, disk.f_bavail * disk.f_frsize // 2)
            if (shard, block) in self._places or self._end + len(data) > self._limit:
                return
            if os.pwrite(self._file, data, self._end) == len(data):  # a full disk takes a part of it
                self._places[shard, block] = self._end, len(data)
                self._end += len(data)
