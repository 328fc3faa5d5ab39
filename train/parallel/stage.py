"""A stage: a part of the model as one module, which is sharded, replicated and run by torch's pipeline schedules.

Stage i of n contains its blocks under their names in the full model. The first stage also has the embeddings, the last
the final norm and a copy of the token embedding as the output layer (`parallelize.py` keeps the copies equal).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleInterleaved1F1B

from webtext.train.data.windows import WindowRules, Windows
from webtext.train.mesh import check_microbatches, n_stages
from webtext.train.model.cross_entropy import sum_dtype, token_losses
from webtext.train.model.gpt2 import GPT2
from webtext.train.parallel.vocab_parallel import vocab_parallel_loss, vocab_parallel_losses


class Stage(nn.Module):
    """The blocks `blocks` of `model`, which isn't changed; a stage with all blocks is the full model with its loss.

    It computes in `dtype`.
    """

    def __init__(self, model: GPT2, blocks: range, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        n_layer = model.config.n_layer
        self.is_first, self.is_last = blocks.start == 0, blocks.stop == n_layer
        self.tensor_group: ProcessGroup | None = None
        """The ranks that `tensor_parallel.split_tensors` has split the model over; None if it isn't split."""
        self.model = model if len(blocks) == n_layer else _part_of(model, blocks)

    def forward(
        self, x: Tensor, targets_bt: Tensor, documents_bt: Tensor | None = None, counted_bt: Tensor | None = None
    ) -> Tensor:
        """Return hidden states [b, t, c] from token ids [b, t] or the previous stage's; the last stage returns a loss.

        In training the loss is that of `GPT2.loss`, [1]; otherwise the loss of each target, [b, t]. Tokens
        attend only to tokens with the same number in `documents_bt`. Targets count where `counted_bt` is true.
        """
        model = self.model
        x_btc = model.embed(x) if self.is_first else x
        mask_b1tt = model.attention_mask(documents_bt, x_btc.dtype)
        x_btc = model.through_blocks(x_btc, None, mask_b1tt)
        if not self.is_last:
            return x_btc
        hidden_btc = cast(Tensor, model.final_norm(x_btc))
        if not self.training:
            return self._losses(hidden_btc, targets_bt)
        loss = self._mean_loss(hidden_btc, targets_bt, counted_bt)
        return loss[None].clone()  # FSDP2 warns if its module returns a view

    def example(self, tokens_bt: Tensor) -> tuple[Tensor, Tensor]:
        """Return an input and an output in training, without values: tensor parallel ranks have parts of a sequence."""
        b, t = tokens_bt.shape
        tp = 1 if self.tensor_group is None else self.tensor_group.size()
        hidden_bsc = torch.empty(b, t // tp, self.model.config.n_embd, dtype=self.dtype, device="meta").requires_grad_()
        loss_1 = torch.empty(1, dtype=sum_dtype(hidden_bsc), device="meta").requires_grad_()
        return tokens_bt.to("meta") if self.is_first else hidden_bsc, loss_1 if self.is_last else hidden_bsc

    def _mean_loss(self, hidden_btc: Tensor, targets_bt: Tensor, counted_bt: Tensor | None) -> Tensor:
        weight_vc, vocab_size = self.model.token_embedding.weight, self.model.config.vocab_size
        if self.tensor_group is None:
            return self.model.mean_loss(hidden_btc, targets_bt, counted_bt)
        targets_n = targets_bt.flatten()
        counted_n = None if counted_bt is None else counted_bt.flatten()
        group, compiled = self.tensor_group, self.model.is_compiled
        return vocab_parallel_loss(hidden_btc, weight_vc, targets_n, vocab_size, group, counted_n, compiled=compiled)

    def _losses(self, hidden_btc: Tensor, targets_bt: Tensor) -> Tensor:
        weight_vc, vocab_size = self.model.token_embedding.weight, self.model.config.vocab_size
        targets_n = targets_bt.flatten()
        if self.tensor_group is None:
            return token_losses(hidden_btc.flatten(0, 1), weight_vc, targets_n, vocab_size).view_as(targets_bt)
        losses_n = vocab_parallel_losses(hidden_btc, weight_vc, targets_n, vocab_size, self.tensor_group)
        return losses_n.view_as(targets_bt)


def _part_of(model: GPT2, blocks: range) -> GPT2:
    """Return a model with only these blocks. It shares modules with `model`; the last stage copies the embedding."""
    part = copy.copy(model)
    part._modules = dict(model._modules)
    part.blocks = nn.ModuleDict({str(i): model.blocks[i] for i in blocks})  # type: ignore[assignment]
    is_first, is_last = blocks.start == 0, blocks.stop == model.config.n_layer
    if is_last:
        part.token_embedding = copy.deepcopy(model.token_embedding)
    elif not is_first:
        del part.token_embedding
    if not is_first:
        del part.position_embedding
    if not is_last:
        del part.final_norm
    return part


class StageWalk:
    """Held-out loss of a model in stages; stage i is on rank `ranks[i]` of `group`, which has `stages`.

    All windows are padded on the right to one context, which changes nothing to the left of the padding. A rank with
    fewer batches than others computes some that don't count. So all ranks send the same shapes equally often, which
    shards, tensor parallel ranks and pipelines require.
    """

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


_SCHEDULES: dict[str, Any] = {"1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


class Pipeline:
    """Runs the microbatches of a step through the stages of all ranks of `group`; `shapes` are their examples."""

    def __init__(
        self,
        stages: dict[int, Stage],
        shapes: dict[int, tuple[Tensor, Tensor]],  # without them torch computes both passes to find them
        schedule: str,
        n_microbatches: int,
        group: ProcessGroup,
        device: torch.device,
    ) -> None:
        pp = group.size()
        check_microbatches(schedule, n_microbatches, pp)
        n = n_stages(schedule, pp)
        parts = [PipelineStage(stage, i, n, device, *shapes[i], group=group) for i, stage in stages.items()]
        self.has_first, self.has_last = 0 in stages, n - 1 in stages
        self.schedule = _SCHEDULES[schedule](
            parts[0] if schedule == "1f1b" else parts,
            n_microbatches,
            loss_fn=lambda loss_1, _: loss_1[0] / n_microbatches,
            scale_grads=False,
        )

    def step(self, tokens_bt: Tensor, documents_bt: Tensor | None, counted_bt: Tensor | None) -> Tensor:
        """Run all microbatches forward and backward; return their mean loss, or zero without the last stage."""
        losses: list[Tensor] = []
        targets_bt = tokens_bt[:, 1:]
        inputs = (tokens_bt[:, :-1],) if self.has_first else ()
        target = targets_bt if self.has_last else None
        given = {"targets_bt": targets_bt, "documents_bt": documents_bt, "counted_bt": counted_bt}
        parts = {name: tensor for name, tensor in given.items() if tensor is not None}  # torch splits each
        self.schedule.step(*inputs, target=target, losses=losses, return_outputs=False, **parts)
        return torch.stack(losses).detach().sum() if losses else torch.zeros((), device=tokens_bt.device)
