"""Which tokens a model sees when: an endless, shuffled order that is a function of (seed, epoch, k) and of nothing else.

The split's shards are taken as one ring of N tokens. An epoch cuts it into N // context windows, each a context's step
from the next, from an offset that the seed gives that epoch, so that documents are not cut at the same places each time.
A keyed permutation orders the windows (`permutation.py`). Sample g of a run is window g mod n of epoch g // n: a restart
at any g costs nothing, and how many processes share the work changes who reads a window, not which windows a step has.

A window has context + 1 tokens: inputs are all but its last, targets all but its first. Neighbours share one token, so
that every token is a target once an epoch (but for the N mod context tokens that no window of that epoch covers).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ConfigError, InputError
from webtext.base.recipe import sha256_json
from webtext.shards.permutation import Permutation
from webtext.shards.reader import TokenShards

ORDER_VERSION = 1
"""Raised when the same seed gives another order."""
ORDER_BLOCK = 4096
"""Places of the order computed in one go."""

Batch = npt.NDArray[np.int64]
"""[batch_size, context + 1] token ids."""


class WindowOrder:
    """Where each window of each epoch starts in a ring of `n_tokens`: the whole of what defines the order.

    >>> order = WindowOrder(n_tokens=9, context=2, seed=0)
    >>> sorted((order.start(g) - order.offset(0)) % 9 for g in range(order.n_windows))
    [0, 2, 4, 6]
    """

    def __init__(self, n_tokens: int, context: int, seed: int) -> None:
        self.n_tokens = n_tokens
        self.n_windows = n_tokens // context
        self._context = context
        self._seed = seed
        self._block: tuple[int, int] | None = None
        self._starts = np.zeros(0, np.int64)

    def offset(self, epoch: int) -> int:
        """Where the windows of an epoch begin to be cut: in 0 … context-1."""
        return (
            int.from_bytes(hashlib.blake2b(self._key(epoch) + b" offset", digest_size=8).digest(), "little")
            % self._context
        )

    def start(self, sample: int) -> int:
        """Position of the first token of the run's sample `sample`."""
        epoch, k = divmod(sample, self.n_windows)
        block, within = divmod(k, ORDER_BLOCK)
        if self._block != (epoch, block):
            places = np.arange(block * ORDER_BLOCK, min((block + 1) * ORDER_BLOCK, self.n_windows))
            windows = Permutation(self.n_windows, self._key(epoch))(places)
            self._starts = (self.offset(epoch) + windows * self._context) % self.n_tokens
            self._block = (epoch, block)
        return int(self._starts[within])

    def _key(self, epoch: int) -> bytes:
        return f"webtext order {ORDER_VERSION} seed {self._seed} epoch {epoch}".encode()


class Sampler:
    """An endless iterator of batches: arrays [batch_size, context + 1] of int64, shuffled anew each epoch.

    With several processes, each makes one with its `rank`; a step takes batch_size samples for every rank, rank 0 first.
    `state_dict` counts the samples of all ranks, so a run may go on with another batch size or number of processes.
    """

    def __init__(
        self,
        shards: TokenShards,
        context: int = 1024,
        batch_size: int = 8,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(
                f"batch_size {batch_size}, rank {rank}, world_size {world_size}",
                "expected batch_size >= 1 and 0 <= rank < world_size",
            )
        check_context(shards, context)
        self.shards = shards
        self.context = context
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.samples_consumed = 0
        self.order = WindowOrder(shards.n_tokens, context, seed)

    @property
    def n_windows(self) -> int:
        """Samples of one epoch."""
        return self.order.n_windows

    @property
    def epoch(self) -> int:
        """Number of whole epochs that all ranks have consumed."""
        return self.samples_consumed // self.n_windows

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        first = self.samples_consumed + self.rank * self.batch_size
        batch = np.empty((self.batch_size, self.context + 1), np.int64)
        for i in range(self.batch_size):
            batch[i] = self.shards.read(self.order.start(first + i), self.context + 1)
        self.samples_consumed += self.batch_size * self.world_size
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Samples consumed by all ranks, and what defines the order with its fingerprint; plain values."""
        order = self._defines_order()
        return {"samples_consumed": self.samples_consumed, "order": order, "fingerprint": sha256_json(order)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken. InputError, naming what differs, when it belongs to another order."""
        mine = self._defines_order()
        try:
            theirs, samples, fingerprint = dict(state["order"]), int(state["samples_consumed"]), state["fingerprint"]
        except (KeyError, TypeError, ValueError):
            raise InputError("this is no state of a sampler", "load what state_dict() returned") from None
        if fingerprint != sha256_json(mine) or samples < 0:
            differing = [key for key in mine if theirs.get(key) != mine[key]] or ["fingerprint"]
            was = ", ".join(f"{key} {theirs.get(key)}" for key in differing)
            now = ", ".join(f"{key} {mine.get(key, sha256_json(mine))}" for key in differing)
            raise InputError(
                f"the saved position belongs to another order of samples: {was}",
                f"here it is: {now}",
                "go on with the tokens and settings of the first run, or start a new one",
            )
        self.samples_consumed = samples

    def _defines_order(self) -> dict[str, Any]:
        return {
            "version": ORDER_VERSION,
            "tokens": self.shards.hash,
            "split": self.shards.split,
            "context": self.context,
            "seed": self.seed,
        }


def check_context(shards: TokenShards, context: int) -> None:
    """InputError when the split is not longer than a context, ConfigError when that is no length."""
    if context < 1:
        raise ConfigError(f"context {context}: expected at least 1")
    if shards.n_tokens <= context:
        raise InputError(
            f"the {shards.split} split of '{shards.set.folder.url}' has {shards.n_tokens:,} tokens; "
            f"a context of {context:,} needs more than that",
            "choose a shorter context, or pack more documents",
        )
