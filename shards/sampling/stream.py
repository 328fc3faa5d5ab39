"""The endless stream of one split's windows: sample g is window k = g mod n of epoch ⌊g / n⌋, in that epoch's order.

The positions of samples are computed a few thousand at a time. Their tokens are copied from the memory map, or from
prefetched blocks (`resident.py`).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from webtext.base.errors import ConfigError, InputError
from webtext.shards.format import HEADER_BYTES, Tokens
from webtext.shards.reading.reader import TokenShards
from webtext.shards.sampling.order import EpochOrder, Indices
from webtext.shards.sampling.resident import Range, Resident, memory_bytes, read_ahead
from webtext.shards.sampling.windows import DocumentWindows, RingWindows
from webtext.shards.shardfile import ShardFile

ORDER_VERSION = 2
"""Raised by hand when the same seed gives another order."""
CHUNK = 8192
"""Samples whose positions are computed at once; for fewer, numpy's calls would cost more than the permutation."""
REMOTE_THREADS = 8
"""One stream from an object store reads some tens of MB/s; this many are enough for several GPUs."""

Rows = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    """Size and shuffling of windows. With `group_blocks` None, all windows of an epoch are permuted together."""

    context: int
    seed: int
    crosses_documents: bool
    block_bytes: int
    group_blocks: int | None

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ConfigError(f"context {self.context}: expected at least 1")
        if self.block_bytes < 1 or (self.group_blocks is not None and self.group_blocks < 1):
            raise ConfigError(
                f"block_bytes {self.block_bytes}, group_blocks {self.group_blocks}", "expected at least 1 of each"
            )


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Consecutive samples of one group: their windows, with starts and lengths in tokens."""

    first: int
    epoch: int
    group: int
    windows: Indices
    starts: Indices
    lengths: Indices


class WindowStream:
    """The windows of one split, sample by sample."""

    def __init__(self, shards: TokenShards, settings: WindowSettings) -> None:
        if shards.n_tokens <= settings.context:
            raise InputError(
                f"the {shards.split} split of '{shards.set.folder.url}' has {shards.n_tokens:,} tokens; "
                f"a context of {settings.context:,} needs more than that",
                "choose a shorter context, or pack more documents",
            )
        self.shards = shards
        self.block_windows = max(1, settings.block_bytes // (settings.context * shards.token_dtype.itemsize))
        self._crosses_documents = settings.crosses_documents
        self._group_blocks = settings.group_blocks
        self._key = f"webtext order {ORDER_VERSION} seed {settings.seed}"
        self.windows: RingWindows | DocumentWindows
        if settings.crosses_documents:
            self.windows = RingWindows(shards.n_tokens, settings.context, self._key.encode())
        else:
            self.windows = DocumentWindows(shards.document_bounds, settings.context)
        self.n_windows = self.windows.n_windows
        n_windows = min(self.block_windows * (settings.group_blocks or self.n_windows), self.n_windows)
        self._group_bytes = n_windows * settings.context * shards.token_dtype.itemsize
        self._order: tuple[int, EpochOrder] | None = None
        self._held: tuple[int, int] | None = None  # epoch and group whose blocks are in memory
        self._first = self._stop = 0  # range of samples in _places
        self._places: list[Any] = []  # per sample: (array, start, stop), or (block, position, length)
        self._due: dict[int, tuple[ShardFile, int, int]] = {}  # samples whose checksums must be compared first
        self._resident: Resident[Any]
        if shards.remote is None:
            self._resident = Resident(functools.partial(_read_into_cache, shards), n_threads=1)
        else:
            self._resident = Resident(functools.partial(_read, shards), n_threads=REMOTE_THREADS)
        weakref.finalize(self, self._resident.close)

    def order(self, epoch: int) -> EpochOrder:
        """Return the order of an epoch's windows."""
        if self._order is None or self._order[0] != epoch:
            key = f"{self._key} epoch {epoch}".encode()
            order = EpochOrder(
                self.n_windows, block_windows=self.block_windows, group_blocks=self._group_blocks, key=key
            )
            self._order = (epoch, order)
        return self._order[1]

    def place(self, sample: int) -> tuple[int, int]:
        """Return a sample's position in the split and its number of tokens."""
        chunk = self._locate(sample)
        at = sample - chunk.first
        return int(chunk.starts[at]), int(chunk.lengths[at])

    def copy(self, first: int, out: Tokens, rows: Rows) -> None:
        """Write samples first, first+1, … to the given rows of `out`; short samples are padded with end-of-text."""
        copy = self._copy_mapped if self.shards.remote is None else self._copy_held
        done = 0
        while done < len(rows):
            if not self._first <= first + done < self._stop:
                self._enter(self._locate(first + done))
            at = first + done - self._first
            places = self._places[at : at + len(rows) - done]
            if self._due:
                for sample in range(first + done, first + done + len(places)):
                    if sample in self._due:
                        file, start, stop = self._due.pop(sample)
                        file.read(start, stop)
            copy(places, out, rows[done : done + len(places)])
            done += len(places)

    def _locate(self, sample: int) -> _Chunk:
        epoch, k = divmod(sample, self.n_windows)
        order = self.order(epoch)
        group = order.group_of(k)
        within = k - order.group_start(group)
        first = within // CHUNK * CHUNK
        windows = order.windows(group, first, min(first + CHUNK, order.group_size(group)))
        starts, lengths = self.windows.starts(epoch, windows), self.windows.lengths(windows)
        return _Chunk(sample - (within - first), epoch, group, windows, starts, lengths)

    def _enter(self, chunk: _Chunk) -> None:
        """Move to a chunk's samples: keep the blocks of its group and of the next one, and release all others.

        Local groups that would fill the memory aren't read ahead: they would be evicted from the cache before use.
        """
        if self._held != (chunk.epoch, chunk.group):
            self._held = (chunk.epoch, chunk.group)
            following = (chunk.epoch, chunk.group + 1)
            if following[1] == self.order(chunk.epoch).n_groups:
                following = (chunk.epoch + 1, 0)
            if self.shards.remote is not None or self._group_bytes <= memory_bytes() // 4:
                here, ahead = self._extents(*self._held), self._extents(*following)
                self._resident.hold(here + ahead)
                if self.shards.remote is None:  # wait; otherwise windows would be read from disk one by one
                    for extent in here:
                        self._resident.get(extent)
        self._first, self._stop = chunk.first, chunk.first + len(chunk.windows)
        self._due = self._not_compared(chunk) if self.shards.remote is None else {}
        if self.shards.remote is None:
            self._places = self._mapped(chunk)
        else:
            columns = (chunk.windows // self.block_windows, chunk.starts, chunk.lengths)
            self._places = list(zip(*(column.tolist() for column in columns), strict=True))

    def _not_compared(self, chunk: _Chunk) -> dict[int, tuple[ShardFile, int, int]]:
        """Return the samples in blocks that weren't compared yet; empty if groups are read ahead."""
        shards = self.shards.shard_starts.searchsorted(chunk.starts, side="right") - 1
        due = {}
        for shard in np.unique(shards).tolist():
            file = self.shards.file(shard)
            if file.checks.n_unchecked:
                places = np.flatnonzero(shards == shard)
                starts = chunk.starts[places] - self.shards.shard_starts[shard]
                stops = np.minimum(starts + chunk.lengths[places], file.header.n_tokens)
                for i in np.flatnonzero(file.are_due(starts, stops)).tolist():
                    due[chunk.first + int(places[i])] = (file, int(starts[i]), int(stops[i]))
        return due

    def _mapped(self, chunk: _Chunk) -> list[tuple[Tokens, int, int]]:
        """Return (array, start, stop) for each sample; the array is its shard, or a copy if it spans several shards."""
        bounds = self.shards.shard_starts
        shards = bounds.searchsorted(chunk.starts, side="right") - 1
        stops = chunk.starts + chunk.lengths
        arrays = {i: self.shards.tokens(i) for i in np.flatnonzero(np.bincount(shards)).tolist()}
        tokens = [arrays[shard] for shard in shards.tolist()]
        places = list(
            zip(tokens, (chunk.starts - bounds[shards]).tolist(), (stops - bounds[shards]).tolist(), strict=True)
        )
        for i in np.flatnonzero(stops > bounds[shards + 1]).tolist():
            length = int(chunk.lengths[i])
            places[i] = (self.shards.read(int(chunk.starts[i]), length), 0, length)
        return places

    def _copy_mapped(self, places: Sequence[tuple[Tokens, int, int]], out: Tokens, rows: Rows) -> None:
        if self._crosses_documents:  # all windows have one length
            for row, (tokens, start, stop) in zip(rows, places, strict=True):
                out[row] = tokens[start:stop]
        else:
            for row, (tokens, start, stop) in zip(rows, places, strict=True):
                out[row, : stop - start] = tokens[start:stop]
                out[row, stop - start :] = self.shards.eot_id

    def _copy_held(self, places: Sequence[tuple[int, int, int]], out: Tokens, rows: Rows) -> None:
        assert self._held is not None
        for row, (block, start, length) in zip(rows, places, strict=True):
            extent = self._extent(self._held[0], block)
            at = (start - extent[0]) % self.shards.n_tokens
            out[row, :length] = self._resident.get(extent)[at : at + length]
            out[row, length:] = self.shards.eot_id

    def _extents(self, epoch: int, group: int) -> list[Range]:
        return [self._extent(epoch, block) for block in self.order(epoch).blocks(group).tolist()]

    def _extent(self, epoch: int, block: int) -> Range:
        last = min((block + 1) * self.block_windows, self.n_windows) - 1
        return self.windows.extent(epoch, block * self.block_windows, last)


# Functions of the shards alone: if they referred to the stream, its finalizer would never run.
def _read_into_cache(shards: TokenShards, wanted: Range) -> None:
    """Read a range of mapped tokens into the page cache and compare its checksums."""
    for shard, start, stop in shards.pieces(*wanted):
        size = shards.token_dtype.itemsize
        file = shards.file(shard)
        read_ahead(file.location, HEADER_BYTES + start * size, (stop - start) * size)
        file.read(start, stop)


def _read(shards: TokenShards, wanted: Range) -> Tokens:
    return shards.read(*wanted)
