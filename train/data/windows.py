"""Cut token streams into windows of one context, so that every token but a stream's first is predicted exactly once.

A stream (a shard, a text) begins with the end-of-text that opens its first document, which is never predicted. A window
ends every `stride` tokens and reaches back one context; only its last `stride` tokens are scored, the others are
context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from webtext.base.console import Progress
from webtext.train.distributed import World

Tokens = npt.NDArray[Any]


class Judged(Protocol):
    """A model that can be measured: this package's GPT2, or any other language model with this method."""

    def log_likelihood(self, tokens_bt: Tensor, /, *, last: int) -> Tensor:
        """Return the natural log-probability of each of the last tokens, given all tokens before it: [b, last]."""


class Windows:
    """The windows over `streams`; given `limit`, that many of them, spread evenly."""

    def __init__(
        self,
        streams: Sequence[Tokens],
        *,
        context: int,
        stride: int | None,
        limit: int | None = None,
    ) -> None:
        self.streams = streams
        self.context = context
        self.stride = min(stride or context, context)
        self._ends = np.cumsum([-(-max(len(stream) - 1, 0) // self.stride) for stream in streams], dtype=np.int64)
        total = int(self._ends[-1]) if len(streams) else 0
        self.numbers = spread(total, limit)

    def __len__(self) -> int:
        return len(self.numbers)

    def window(self, i: int) -> tuple[Tokens, int]:
        """Return window i as int64 [at most context + 1], and how many of its last tokens are scored."""
        number = int(self.numbers[i])
        index = int(np.searchsorted(self._ends, number, side="right"))
        stream = self.streams[index]
        start = (number - (int(self._ends[index - 1]) if index else 0)) * self.stride + 1
        end = min(start + self.stride, len(stream))
        return np.asarray(stream[max(0, end - self.context - 1) : end], np.int64), end - start

    def batches(self, size: int, rank: int = 0, world_size: int = 1) -> Iterator[tuple[Tokens, list[int]]]:
        """Yield this process's windows: tokens [b, t] of equal length, and how many of each row's last are scored."""
        batch: list[Tokens] = []
        scored: list[int] = []
        for i in range(rank, len(self), world_size):
            tokens, n_scored = self.window(i)
            if batch and (len(batch) == size or len(tokens) != len(batch[0])):
                yield np.stack(batch), scored
                batch, scored = [], []
            batch.append(tokens)
            scored.append(n_scored)
        if batch:
            yield np.stack(batch), scored

    def pairs(self) -> Iterator[tuple[Tokens, Tokens]]:
        """Yield, for each window, the token before each scored token, and the scored tokens."""
        for i in range(len(self)):
            tokens, n_scored = self.window(i)
            yield tokens[-n_scored - 1 : -1], tokens[-n_scored:]


def total_loss(
    model: Judged, windows: Windows, batch_size: int, world: World, progress: Progress | None = None
) -> tuple[float, int]:
    """Return the sum of -log p in nats over the scored tokens of all processes, and the number of those tokens."""
    total = torch.zeros(2, dtype=torch.float64, device=world.device)  # read once: the host queues the batches
    for tokens_bt, n_scored in windows.batches(batch_size, world.rank, world.size):
        tokens = torch.from_numpy(tokens_bt).to(world.device, non_blocking=True)
        likelihood_bt = model.log_likelihood(tokens, last=max(n_scored)).double()
        total[0] -= sum(row_t[-n:].sum() for row_t, n in zip(likelihood_bt, n_scored, strict=True))
        total[1] += sum(n_scored)
        if progress is not None:
            progress.advance(len(n_scored))
    loss, n_tokens = world.sum(total).tolist()
    return loss, round(n_tokens)


def spread(total: int, limit: int | None) -> npt.NDArray[np.int64]:
    """Return the numbers below `total`, or `limit` of them at equal distances, including the first and the last."""
    n = total if limit is None else min(limit, total)
    return np.unique(np.linspace(0, total - 1, n).round().astype(np.int64)) if n else np.empty(0, np.int64)
