"""A part of the model as a module to its loss: what is sharded, replicated and sent through a pipeline.

Stage i of n holds its blocks under the names that they have in the whole model; the first holds the embeddings, the last the
final norm and a copy of the token embedding as the output layer (`parallelize.py` keeps the copies equal).
"""

from __future__ import annotations

import copy
from typing import cast

from torch import Tensor, nn
from torch.distributed import ProcessGroup

from webtext.train.cross_entropy import linear_cross_entropy
from webtext.train.model import GPT2

TIED = "token_embedding.weight"


class Stage(nn.Module):
    """The blocks `blocks` of `model`, which stays as it is; with all of them, the whole model to its loss."""

    def __init__(self, model: GPT2, blocks: range) -> None:
        super().__init__()
        n_layer = model.config.n_layer
        self.is_first, self.is_last = blocks.start == 0, blocks.stop == n_layer
        self.tensor_group: ProcessGroup | None = None
        """Where the model is split by `tensor_parallel.split_tensors`: the ranks it is split over."""
        self.model = model if len(blocks) == n_layer else _part_of(model, blocks)

    def forward(self, x: Tensor, targets_bt: Tensor) -> Tensor:
        """From token ids [b, t] or the stage before to the stage after [b, t, c], or to the mean loss, [1]."""
        model = self.model
        x_btc = model.through_blocks(model.embed(x) if self.is_first else x)
        if not self.is_last:
            return x_btc
        hidden_btc = cast(Tensor, model.final_norm(x_btc))
        weight_vc, vocab_size = model.token_embedding.weight, model.config.vocab_size
        if self.tensor_group is None:
            loss = linear_cross_entropy(hidden_btc.flatten(0, 1), weight_vc, targets_bt.flatten(), vocab_size)
        else:
            from webtext.train.parallel.tensor_parallel import tensor_parallel_loss

            loss = tensor_parallel_loss(hidden_btc, weight_vc, targets_bt, vocab_size, self.tensor_group)
        return loss[None]


def _part_of(model: GPT2, blocks: range) -> GPT2:
    """The same modules in a model that lacks the others: of the first and last stage's shared one, a copy each."""
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
