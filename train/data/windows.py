"""Windows of one context: the rules by which a run trains on them, and held-out text cut into them.

Held-out windows predict every token but a stream's first exactly once. A stream (a shard, a text) begins with the
end-of-text that opens its first document, which is never predicted. A window ends every `stride` tokens and reaches back
one context; only its last `stride` tokens are scored, the others are context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from webtext.base.console import Progress
from webtext.train.distributed import World
from webtext.train.settings import TrainSettings

Tokens = npt.NDArray[Any]
LARGEST_LOSS = 700.0  # its exponential is still finite


def documents_of(tokens_bt: Tensor, eot_id: int) -> Tensor:
    """Return the number of each token's document in its window, [b, t], as `document_numbers` in shards does."""
    numbers_bt = (tokens_bt == eot_id).cumsum(1)
    return numbers_bt - numbers_bt[:, :1]


@dataclass(frozen=True, slots=True)
class WindowRules:
    """How a run uses windows: whether documents are masked from one another, and whether short windows are padded.

    A window contains several documents, each opened by an end-of-text, or one document and padding. With masks a token
    attends only to its own document, including the end-of-text that opens it, which is also the target after the last
    token of the document before. Positions count through the window, masked or not: GPT-2's are absolute, and each is
    trained on all of a corpus. In windows that don't cross documents, the first end-of-text after the start is the target
    that ends the document. Everything after it is padding and does not count.
    """

    masks: bool = False
    pads: bool = False
    eot_id: int = -1

    @classmethod
    def of(cls, settings: TrainSettings, eot_id: int) -> WindowRules:
        return cls(settings.data.documents == "masked", settings.data.documents == "padded", eot_id)

    def documents(self, tokens_bt: Tensor) -> Tensor | None:
        """Return `documents_of` the input tokens, or None without document masks."""
        return documents_of(tokens_bt, self.eot_id) if self.masks else None

    def counted(self, tokens_bt: Tensor) -> Tensor | None:
        """Return whether the target after each input token counts, [b, t]: false in padding; None if all count."""
        return documents_of(tokens_bt, self.eot_id) == 0 if self.pads else None

    def counted_share(self, tokens_bt: Tensor) -> Tensor:
        """Return the share of a microbatch's targets that count, a scalar on its device."""
        counted_bt = self.counted(tokens_bt)
        return torch.ones((), device=tokens_bt.device) if counted_bt is None else counted_bt.float().mean()


class Windows:
    """The windows over `streams`; given `limit`, that many of them, spread evenly."""

    def __init__(
        self, streams: Sequence[Tokens], *, context: int, stride: int | None, limit: int | None = None
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


def total_loss(
    model: Any,
    windows: Windows,
    batch_size: int,
    world: World,
    progress: Progress | None = None,
    rules: WindowRules = WindowRules(),  # noqa: B008 - it is frozen
) -> tuple[float, int]:
    """Return the sum of -log p in nats over the scored tokens of all processes, and the number of those tokens.

    `model` has GPT2's `log_likelihood`; if it was trained with document masks, it needs the `rules` of its run.
    """
    total = torch.zeros(2, dtype=torch.float64, device=world.device)  # read once: the host queues the batches
    for tokens_bt, n_scored in windows.batches(batch_size, world.rank, world.size):
        tokens = torch.from_numpy(tokens_bt).to(world.device, non_blocking=True)
        likelihood_bt = model.log_likelihood(tokens, rules.documents(tokens[:, :-1]), last=max(n_scored)).double()
        total[0] -= sum(row_t[-n:].sum() for row_t, n in zip(likelihood_bt, n_scored, strict=True))
        total[1] += sum(n_scored)
        if progress is not None:
            progress.advance(len(n_scored))
    loss, n_tokens = world.sum(total).tolist()
    return loss, round(n_tokens)


def spread(total: int, limit: int | None) -> npt.NDArray[np.int64]:
    """Return the numbers below `total`, or `limit` of them at equal distances, including the first and the last."""
    n = total if limit is None else min(limit, total)
    return np.unique(np.linspace(0, total - 1, n).round().astype(np.int64))
