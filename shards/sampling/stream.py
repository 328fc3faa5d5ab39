"""The endless stream of one split's windows: sample g is window k = g mod n of epoch ⌊g / n⌋, in that epoch's order.

The positions of samples are computed a few thousand at a time. Their tokens are copied from the memory map.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from webtext.base.errors import InputError, checked_int
from webtext.shards.format import Tokens
from webtext.shards.reader import TokenShards
from webtext.shards.sampling.order import EpochOrder, Indices
from webtext.shards.sampling.windows import DocumentWindows, RingWindows

ORDER_VERSION = 2
"""Raised by hand when the same seed gives another order."""
MAX_SEED = 2**64
CHUNK = 8192
"""Samples whose positions are computed at once; for fewer, numpy's calls would cost more than the permutation."""
OPENING_THREADS = 8
"""Shards opened at once: one core hashes about 1 GB/s, and one stream from a store reads some tens of MB/s."""

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
        """Convert integers of any library to int: they are written into the order's key and into checkpoints."""
        for name, least in (("context", 1), ("seed", -MAX_SEED), ("block_bytes", 1), ("group_blocks", 1)):
            if getattr(self, name) is not None or name != "group_blocks":
                value = checked_int(name, getattr(self, name), least, MAX_SEED, f"{least} to {MAX_SEED}")
                object.__setattr__(self, name, value)
        object.__setattr__(self, "crosses_documents", bool(self.crosses_documents))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Consecutive samples of one group, named by epoch and number, with starts and lengths in tokens."""

    first: int
    group: tuple[int, int]
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
        self._order: tuple[int, EpochOrder] | None = None
        self._group: tuple[int, int] | None = None  # epoch and group that were read ahead
        self._first = 0  # sample of the first place
        self._places: list[tuple[Tokens, int, int]] = []

    def order(self, epoch: int) -> EpochOrder:
        """Return the order of an epoch's windows."""
        if self._order is None or self._order[0] != epoch:
            key = f"{self._key} epoch {epoch}".encode()
            made = EpochOrder(
                self.n_windows, block_windows=self.block_windows, group_blocks=self._group_blocks, key=key
            )
            self._order = (epoch, made)
        return self._order[1]

    def place(self, sample: int) -> tuple[int, int]:
        """Return a sample's position in the split and its number of tokens."""
        chunk = self._locate(sample)
        at = sample - chunk.first
        return int(chunk.starts[at]), int(chunk.lengths[at])

    def copy(self, first: int, out: Tokens, rows: Rows) -> None:
        """Write samples first, first+1, … to the given rows of `out`; short samples are padded with end-of-text."""
        done = 0
        while done < len(rows):
            if not self._first <= first + done < self._first + len(self._places):
                self._enter(self._locate(first + done))
            at = first + done - self._first
            places = self._places[at : at + len(rows) - done]
            for row, (tokens, start, stop) in zip(rows[done : done + len(places)], places, strict=True):
                out[row, : stop - start] = tokens[start:stop]
                if not self._crosses_documents:  # otherwise all windows have one length
                    out[row, stop - start :] = self.shards.eot_id
            done += len(places)

    def _locate(self, sample: int) -> _Chunk:
        epoch, k = divmod(sample, self.n_windows)
        order = self.order(epoch)
        group = order.group_of(k)
        within = k - order.group_start(group)
        first = within // CHUNK * CHUNK
        windows = order.windows(group, first, min(first + CHUNK, order.group_size(group)))
        starts, lengths = self.windows.starts(epoch, windows), self.windows.lengths(windows)
        return _Chunk(sample - (within - first), (epoch, group), starts, lengths)

    def _enter(self, chunk: _Chunk) -> None:
        """Move to a chunk's samples: find the place of each as (array, start, stop).

        The array is the sample's shard, or a copy of the sample if it spans several shards. Shards that haven't been used
        yet are opened together, because their files are hashed, and copied if they are at a URL.
        """
        if self._group_blocks is not None and self._group != chunk.group:
            self._group = chunk.group
            self._read_ahead(*chunk.group)
        bounds = self.shards.shard_starts
        shards = bounds.searchsorted(chunk.starts, side="right") - 1
        stops = chunk.starts + chunk.lengths
        arrays = self._open(np.unique(shards).tolist())
        tokens = [arrays[shard] for shard in shards.tolist()]
        places = list(
            zip(tokens, (chunk.starts - bounds[shards]).tolist(), (stops - bounds[shards]).tolist(), strict=True)
        )
        for i in np.flatnonzero(stops > bounds[shards + 1]).tolist():
            length = int(chunk.lengths[i])
            places[i] = (self.shards.read(int(chunk.starts[i]), length), 0, length)
        self._first, self._places = chunk.first, places

    def _read_ahead(self, epoch: int, group: int) -> None:
        """Read a group's blocks into the page cache, each in one sweep; else its windows would be read one by one."""
        order = self.order(epoch)
        pieces: list[tuple[int, int, int]] = []
        for block in order.blocks(group).tolist():
            last = min((block + 1) * self.block_windows, self.n_windows) - 1
            pieces += self.shards.pieces(*self.windows.extent(epoch, block * self.block_windows, last))
        self._open(sorted({shard for shard, _, _ in pieces}))
        for shard, start, stop in pieces:
            self.shards.file(shard).read_ahead(start, stop)

    def _open(self, shards: list[int]) -> dict[int, Tokens]:
        with ThreadPoolExecutor(OPENING_THREADS) as pool:
            return dict(zip(shards, pool.map(self.shards.tokens, shards), strict=True))
