"""A stage: a part of the model as one module, which is sharded, replicated and run by a pipeline.

Stage i of n contains its blocks under their names in the full model. The first stage also has the embeddings, the last
the final norm and a copy of the token embedding as the output layer (`parallelize.py` keeps the copies equal).
"""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

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

        In training the loss is that of `loss.TrainingLoss`, [1]; otherwise the loss of each target, [b, t]. Tokens
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
        loss = loss if counted_bt is None else loss * counted_bt.float().mean()
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
