"""The order in which a model sees tokens: endless, shuffled, and a function of (seed, epoch, k) only.

`Mixture` assigns sample g of a run to a source. There it is window k of an epoch, in an order that is
computed place by place (`order.py`). So a restart at any g costs nothing, and the number of processes changes which
process reads a window, but not which windows a step has.

A window has context + 1 tokens: all but the last are inputs, all but the first are targets (`windows.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ConfigError, InputError, checked_int, shown
from webtext.base.parts.recipe import sha256_json
from webtext.shards.format import Tokens
from webtext.shards.reader import TokenShards
from webtext.shards.sampling.order import Indices
from webtext.shards.sampling.stream import MAX_SEED, ORDER_VERSION, WindowSettings, WindowStream

BLOCK_BYTES = 64 << 20  # read in one go, so that a disk, a network file system or a store isn't asked for each window
GROUP_BLOCKS = 64
PARTS = 1 << 20
"""Weights are rounded to multiples of 1/PARTS of their sum: exact in 64 bits for more than 10^12 samples."""

Batch = npt.NDArray[np.int64]
"""Token ids, int64 [batch_size, context + 1]."""


class Sampler:
    """An endless iterator of batches, int64 [batch_size, context + 1], in a new order each epoch.

    With several processes, each creates a Sampler with its `rank`. A step takes batch_size samples for every rank, rank
    0 first. `state_dict` counts the samples of all ranks, so a run may resume with another batch size or number of
    processes.

    Several token sets of one tokenizer are mixed by `weights` (by default, by their numbers of windows). Windows that
    don't cross documents are padded with end-of-text (see `document_numbers`). The windows of `group_blocks` blocks of
    `block_bytes` are shuffled together; None is a full shuffle.
    """

    def __init__(
        self,
        shards: TokenShards | Sequence[TokenShards],
        context: int = 1024,
        batch_size: int = 8,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        *,
        weights: Iterable[float] | None = None,
        crosses_documents: bool = True,
        block_bytes: int = BLOCK_BYTES,
        group_blocks: int | None = GROUP_BLOCKS,
    ) -> None:
        self.batch_size = checked_int("batch_size", batch_size, 1, MAX_SEED, f"1 to {MAX_SEED}")
        self.world_size = checked_int("world_size", world_size, 1, MAX_SEED, f"1 to {MAX_SEED}")
        self.rank = checked_int(
            "rank", rank, 0, self.world_size - 1, f"0 to {self.world_size - 1}: world_size is {world_size}"
        )
        self.sources = [shards] if isinstance(shards, TokenShards | str) else list(shards)
        parts = None if weights is None else _numbers(weights)
        _check_sources(self.sources, parts)
        self.shards = self.sources[0]
        self.settings = WindowSettings(
            context=context,
            seed=seed,
            crosses_documents=crosses_documents,
            block_bytes=block_bytes,
            group_blocks=group_blocks,
        )
        self.samples_consumed = 0
        self.streams = [WindowStream(source, self.settings) for source in self.sources]
        self.mixture = Mixture(parts or [stream.n_windows for stream in self.streams])

    @property
    def context(self) -> int:
        return self.settings.context

    @property
    def n_windows(self) -> int:
        """Number of samples in one epoch of every source."""
        return sum(stream.n_windows for stream in self.streams)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self.fill(np.empty((self.batch_size, self.context + 1), np.int64))

    def fill(self, out: Tokens) -> Tokens:
        """Write the next batch to `out`, [batch_size, context + 1] of any integer type that fits the ids; return it."""
        if out.shape != (self.batch_size, self.context + 1):
            raise ConfigError(
                f"out has the shape {out.shape}", f"expected ({self.batch_size}, {self.context + 1}): a batch"
            )
        if out.dtype.kind not in "iu" or np.iinfo(out.dtype).max < self.shards.vocab_size - 1:
            raise ConfigError(f"out is {out.dtype}", f"expected integers up to {self.shards.vocab_size - 1:,}")
        first = self.samples_consumed + self.rank * self.batch_size
        if len(self.streams) == 1:
            self.streams[0].copy(first, out, range(self.batch_size))
        else:
            counts = self.mixture.counts(np.arange(first, first + self.batch_size + 1))
            for stream, of_source in zip(self.streams, counts, strict=True):
                stream.copy(int(of_source[0]), out, np.flatnonzero(np.diff(of_source)).tolist())
        self.skip(1)
        return out

    def skip(self, n_batches: int) -> None:
        """Skip batches; takes no time."""
        self.samples_consumed += n_batches * self.batch_size * self.world_size

    def state_dict(self) -> dict[str, Any]:
        """Return the samples consumed by all ranks, what defines the order, and its fingerprint, as plain values."""
        order = self._defines_order()
        return {"samples_consumed": self.samples_consumed, "order": order, "fingerprint": sha256_json(order)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where the state was taken; raises InputError, with what differs, if it belongs to another order."""
        mine = self._defines_order()
        try:
            theirs, samples, fingerprint = dict(state["order"]), int(state["samples_consumed"]), state["fingerprint"]
        except (KeyError, TypeError, ValueError):
            raise InputError("this is not the state of a sampler", "load what state_dict() returned") from None
        if fingerprint != sha256_json(mine) or samples < 0:
            differing = [key for key in mine if theirs.get(key) != mine[key]] or ["fingerprint"]
            was = ", ".join(f"{key} {_shown(theirs.get(key))}" for key in differing)
            now = ", ".join(f"{key} {_shown(mine.get(key, sha256_json(mine)))}" for key in differing)
            raise InputError(
                f"the saved position belongs to another order of samples: {was}",
                f"this run has: {now}",
                "resume with the tokens and settings of the first run, or start a new one",
            )
        self.samples_consumed = samples

    def _defines_order(self) -> dict[str, Any]:
        # Not the batch size nor the ranks: a run may resume with others.
        return {
            "version": ORDER_VERSION,
            "tokens": [source.hash for source in self.sources],
            "split": [source.split for source in self.sources],
            "weights": self.mixture.parts,
        } | asdict(self.settings)


class Mixture:
    """Interleaves sources by weights, which may have any positive sum: which source sample g comes from, and which it is.

    Of the first g samples, ⌊(g·w + T/2) / T⌋ come from the source with the largest weight w, where T is the sum of the
    weights. The other sources divide the rest in the same way. So after any number of samples, each of K sources is
    within (2 + ln K) / 2 samples of its share, and no table is stored.

    >>> Mixture([3, 1]).counts(np.arange(9)).tolist()
    [[0, 1, 2, 2, 3, 4, 5, 5, 6], [0, 0, 0, 1, 1, 1, 1, 2, 2]]
    """

    def __init__(self, weights: Sequence[float]) -> None:
        if not weights or not math.isfinite(sum(weights)) or min(weights) <= 0:
            raise ConfigError(f"weights {list(weights)}: expected one number above 0 for each source")
        self.parts = [max(1, round(weight / math.fsum(weights) * PARTS)) for weight in weights]

    def counts(self, samples: Indices) -> Indices:
        """Return how many of the first `samples[i]` samples come from each source: int64 [source, i]."""
        counts = np.empty((len(self.parts), len(samples)), np.int64)
        rest, total = samples.astype(np.int64), sum(self.parts)
        for i in sorted(range(len(self.parts)), key=lambda i: -self.parts[i]):
            counts[i] = (rest * self.parts[i] + total // 2) // total
            rest, total = rest - counts[i], total - self.parts[i]
        return counts


def _numbers(weights: Iterable[Any]) -> list[float]:
    try:
        if not isinstance(weights, str | bytes | Mapping):
            return [float(weight) for weight in weights]
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigError(f"weights are {shown(weights)}", "expected a list or an array with a number for each token set")


def _check_sources(sources: Sequence[TokenShards], weights: Sequence[float] | None) -> None:
    if not all(isinstance(source, TokenShards) for source in sources):
        raise ConfigError(f"token sets are {shown(sources)}", "expected TokenShards, e.g. TokenShards('build/tokens')")
    if not sources or (weights is not None and len(weights) != len(sources)):
        raise ConfigError(
            f"token sets: {len(sources)}, weights: {len(weights or ())}", "expected one weight for each token set"
        )
    for other in sources[1:]:
        if other.tokenizer_hash != sources[0].tokenizer_hash:
            raise InputError(
                f"'{other.set.folder.url}' was packed with another tokenizer than '{sources[0].set.folder.url}'",
                f"{other.tokenizer_hash[:12]}… instead of {sources[0].tokenizer_hash[:12]}…",
                "pack all sets of a mixture with one tokenizer",
            )


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
