"""Held-out loss of a model in stages: forward passes only, each rank in the order of the stages.

All windows are padded on the right to one context, which changes nothing to the left of the padding. A rank with fewer
batches than others computes some that don't count. So all ranks send the same shapes equally often, which shards,
tensor parallel ranks and pipelines require.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from webtext.train.data.windows import Windows
from webtext.train.model.loss import WindowRules
from webtext.train.parallel.stage import Stage


class StageWalk:
    """This rank's `stages`; stage i is on rank `ranks[i]` of `group`."""

    def __init__(
        self,
        stages: dict[int, Stage],
        ranks: Sequence[int],
        group: ProcessGroup,
        rules: WindowRules,
        device: torch.device,
    ) -> None:
        self.stages, self.ranks, self.group = stages, ranks, group
        self.rules, self.device = rules, device

    def total_loss(self, windows: Windows, batch_size: int, data_rank: int, n_data: int) -> Tensor:
        """Return the sum of -log p in nats over one data rank's scored tokens, and their number, as float64 [2].

        Only the rank with the last stage has them; others return zeros.
        """
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        for tokens_bt, is_scored_bt in _batches(windows, batch_size, data_rank, n_data):
            losses_bt = self._losses(tokens_bt.to(self.device, non_blocking=True))
            if losses_bt is not None:
                is_scored_bt = is_scored_bt.to(self.device, non_blocking=True)
                total += torch.stack([losses_bt.double().where(is_scored_bt, 0).sum(), is_scored_bt.sum()])
        return total

    def _losses(self, tokens_bt: Tensor) -> Tensor | None:
        """Return the loss of each token after the first, [b, t], or None if this rank doesn't have the last stage."""
        inputs_bt, targets_bt = tokens_bt[:, :-1], tokens_bt[:, 1:]
        documents_bt = self.rules.documents(inputs_bt)
        x: Tensor | None = inputs_bt
        for i, rank in enumerate(self.ranks):
            if i not in self.stages:
                x = None
                continue
            stage = self.stages[i]
            if x is None:
                x = torch.empty_like(stage.example(inputs_bt)[0], device=self.device)
                distributed.recv(x, group=self.group, group_src=self.ranks[i - 1])
            x = stage(x, targets_bt, documents_bt=documents_bt)
            if i + 1 < len(self.ranks) and self.ranks[i + 1] != rank:
                distributed.send(x.contiguous(), group=self.group, group_dst=self.ranks[i + 1])
        return x


def _batches(windows: Windows, size: int, data_rank: int, n_data: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens [size, context + 1] and which after the first are scored [size, context]; as often on all ranks."""
    n_batches = math.ceil(len(windows) / n_data / size)
    for first in range(0, n_batches * size, size):
        tokens_bt = np.zeros((size, windows.context + 1), np.int64)
        is_scored_bt = np.zeros((size, windows.context), bool)
        for row in range(size):
            number = (first + row) * n_data + data_rank
            if number < len(windows):
                tokens, n_scored = windows.window(number)
                tokens_bt[row, : len(tokens)] = tokens
                is_scored_bt[row, len(tokens) - 1 - n_scored : len(tokens) - 1] = True
        yield torch.from_numpy(tokens_bt), torch.from_numpy(is_scored_bt)
