"""A stage: a part of the model as one module, which is sharded, replicated and run by torch's pipeline schedules.

Stage i of n contains its blocks under their names in the full model. The first stage also has the embeddings, the last
the final norm and a copy of the token embedding as the output layer (`parallelize.py` keeps the copies equal).
"""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleInterleaved1F1B

from webtext.train.data.windows import WindowRules
from webtext.train.mesh import n_stages
from webtext.train.model.cross_entropy import sum_dtype, token_losses
from webtext.train.model.gpt2 import GPT2
from webtext.train.parallel.tensor_parallel import vocab_parallel_loss, vocab_parallel_losses


class Stage(nn.Module):
    """The blocks `blocks` of `model`, which isn't changed; a stage with all blocks is the full model with its loss.

    It computes in `dtype`, by the `rules` of the windows.
    """

    def __init__(self, model: GPT2, blocks: range, dtype: torch.dtype, rules: WindowRules) -> None:
        super().__init__()
        self.dtype, self.rules = dtype, rules
        n_layer = model.config.n_layer
        self.is_first, self.is_last = blocks.start == 0, blocks.stop == n_layer
        self.tensor_group: ProcessGroup | None = None
        """The ranks that `tensor_parallel.split_tensors` has split the model over; None if it isn't split."""
        self.model = model if len(blocks) == n_layer else _part_of(model, blocks)

    def forward(self, x: Tensor, tokens_bt: Tensor) -> Tensor:
        """Return hidden states [b, t, c] of windows [b, t + 1]; the last stage returns a loss.

        The first stage's `x` is the input tokens, that of others the previous one's hidden states.

        With gradients the loss is that of `GPT2.loss`, [1]; without, the loss of each target, [b, t].
        """
        model, group, inputs_bt, targets_bt = self.model, self.tensor_group, tokens_bt[:, :-1], tokens_bt[:, 1:]
        x_btc = model.embed(x) if self.is_first else x
        mask_b1tt = model.attention_mask(self.rules.documents(inputs_bt), x_btc.dtype)
        x_btc = model.through_blocks(x_btc, None, mask_b1tt)
        if not self.is_last:
            return x_btc
        hidden_btc = cast(Tensor, model.final_norm(x_btc))
        counted_bt = self.rules.counted(inputs_bt)
        output = hidden_btc, model.token_embedding.weight, targets_bt, model.config.vocab_size
        if not torch.is_grad_enabled():
            return token_losses(*output) if group is None else vocab_parallel_losses(*output, group)
        if group is None:
            loss = model.mean_loss(hidden_btc, targets_bt, counted_bt)
        else:
            loss = vocab_parallel_loss(*output, group, counted_bt, compiled=model.is_compiled)
        return loss[None].clone()  # FSDP2 warns if its module returns a view

    def example(self, tokens_bt: Tensor) -> tuple[Tensor, Tensor]:
        """Return an input and an output, without values: tensor parallel ranks have parts of a sequence."""
        b, t = tokens_bt.shape
        tp = 1 if self.tensor_group is None else self.tensor_group.size()
        how: dict[str, Any] = {"device": "meta", "requires_grad": (trains := torch.is_grad_enabled())}
        hidden_bsc = torch.empty(b, t // tp, self.model.config.n_embd, dtype=self.dtype, **how)
        loss = torch.empty((1,) if trains else (b, t), dtype=sum_dtype(hidden_bsc), **how)
        return tokens_bt.to("meta") if self.is_first else hidden_bsc, loss if self.is_last else hidden_bsc


def _part_of(model: GPT2, blocks: range) -> GPT2:
    """Return a model with only these blocks. It shares modules with `model`; the last stage copies the embedding."""
    is_first, is_last = blocks.start == 0, blocks.stop == model.config.n_layer
    kept = {"token_embedding": is_first or is_last, "position_embedding": is_first, "final_norm": is_last}
    part = copy.copy(model)
    part._modules = {name: module for name, module in model._modules.items() if kept.get(name, True)}
    part.blocks = nn.ModuleDict({str(i): model.blocks[i] for i in blocks})  # type: ignore[assignment]
    if is_last:
        part.token_embedding = copy.deepcopy(model.token_embedding)
    return part


def pipeline(stages: dict[int, Stage], inputs_bt: Tensor, schedule: str, n: int, group: ProcessGroup) -> Any:
    """Return torch's schedule of n microbatches with the shape of `inputs_bt` through the stages of all ranks of `group`.

    It trains if it is made where gradients are enabled.
    """
    total = n_stages(schedule, group.size())
    # without examples of the stages' shapes torch computes both passes to find them
    examples = {i: stage.example(inputs_bt) for i, stage in stages.items()}
    parts: list[Any] = [
        PipelineStage(stages[i], i, total, inputs_bt.device, *pair, group=group) for i, pair in examples.items()
    ]
    how: dict[str, Any] = {"loss_fn": (lambda loss_1, _: loss_1[0] / n) if torch.is_grad_enabled() else None}
    if schedule == "1f1b":
        return Schedule1F1B(parts[0], n, scale_grads=False, **how)
    return ScheduleInterleaved1F1B(parts, n, scale_grads=False, **how)
