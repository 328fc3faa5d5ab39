"""The output layer and its cross-entropy where each rank holds a part of the vocabulary (Shoeybi et al. 2019, section 3).

As `cross_entropy.py`, a chunk of positions at a time; of the logits only two numbers a position are sent around, their
maximum and their sum of exponentials, and with the sum the target's logit, which one rank has.

Shape suffixes as in `model.py`: n position, c channel, v the rank's own part of the vocabulary (padded).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed

from webtext.train.cross_entropy import chunk_rows, sum_dtype


class VocabParallelCrossEntropy(torch.autograd.Function):
    """Mean over n of -log softmax(hidden @ weight.T)[target]; the gradient of `hidden_nc` is this rank's summand."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_nc: Tensor,
        weight_vc: Tensor,
        targets_n: Tensor,
        vocab_size: int,
        group: distributed.ProcessGroup,
    ) -> Tensor:
        n, n_rows = len(targets_n), len(weight_vc)
        first = distributed.get_rank(group) * n_rows
        loss = torch.zeros((), device=hidden_nc.device, dtype=sum_dtype(hidden_nc))
        grad_hidden_nc = torch.empty_like(hidden_nc)
        grad_weight_vc = torch.zeros_like(weight_vc, dtype=loss.dtype)
        for rows in chunk_rows(n, weight_vc):
            logits_nv = (hidden_nc[rows] @ weight_vc.T).to(loss.dtype)
            logits_nv[:, max(0, vocab_size - first) :] = -torch.inf
            top_n = logits_nv.amax(dim=1)
            distributed.all_reduce(top_n, distributed.ReduceOp.MAX, group)
            logits_nv -= top_n[:, None]
            here_n = targets_n[rows] - first
            is_here_n = (here_n >= 0) & (here_n < n_rows)
            here_n1 = here_n.clamp(0, n_rows - 1)[:, None]
            picked_n = logits_nv.gather(1, here_n1)[:, 0].where(is_here_n, 0)
            exps_nv = logits_nv.exp_()
            sums_2n = torch.stack([exps_nv.sum(dim=1), picked_n])
            distributed.all_reduce(sums_2n, group=group)
            loss += (sums_2n[0].log() - sums_2n[1]).sum()
            slope_nv = exps_nv.div_(sums_2n[0][:, None])
            slope_nv.scatter_add_(1, here_n1, -is_here_n[:, None].to(slope_nv.dtype))
            slope_nv = slope_nv.to(weight_vc.dtype)
            grad_hidden_nc[rows] = slope_nv @ weight_vc
            grad_weight_vc += slope_nv.T @ hidden_nc[rows]
        ctx.save_for_backward(grad_hidden_nc, grad_weight_vc)
        ctx.n, ctx.weight_dtype = n, weight_vc.dtype
        return loss / n

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden_nc, grad_weight_vc = ctx.saved_tensors
        scale = grad_outputs[0] / ctx.n
        return grad_hidden_nc * scale, (grad_weight_vc * scale).to(ctx.weight_dtype), None, None, None
