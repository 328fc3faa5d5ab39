"""The output layer and its cross-entropy, with the vocabulary split over ranks (Shoeybi et al. 2019, section 3).

Like `cross_entropy.py`, it computes a chunk of positions at a time. Ranks exchange only the logits' maximum and sum of
exponentials per position, and with the sum the target's logit, which one rank has.

Shape suffixes as in `gpt2.py`: n position, c channel, v the rank's own part of the vocabulary (padded).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed

from webtext.train.model.cross_entropy import chunk_rows, sum_dtype


class VocabParallelCrossEntropy(torch.autograd.Function):
    """Mean over n of -log softmax(hidden @ weight.T)[target]; the gradient of `hidden_nc` is this rank's summand.

    With `counted_n` the mean is over the positions where it is true, which must be at least one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_nc: Tensor,
        weight_vc: Tensor,
        targets_n: Tensor,
        vocab_size: int,
        group: distributed.ProcessGroup,
        counted_n: Tensor | None = None,
    ) -> Tensor:
        loss = torch.zeros((), device=hidden_nc.device, dtype=sum_dtype(hidden_nc))
        grad_hidden_nc = torch.empty_like(hidden_nc)
        grad_weight_vc = torch.zeros_like(weight_vc, dtype=loss.dtype)
        for rows in chunk_rows(len(targets_n), weight_vc):
            chunk = _Chunk(hidden_nc[rows], weight_vc, targets_n[rows], vocab_size, group)
            losses_n, slope_nv = chunk.losses_n, chunk.slopes().to(weight_vc.dtype)
            if counted_n is not None:
                losses_n = losses_n * counted_n[rows]
                slope_nv *= counted_n[rows, None]
            loss += losses_n.sum()
            grad_hidden_nc[rows] = slope_nv @ weight_vc
            grad_weight_vc += slope_nv.T @ hidden_nc[rows]
        ctx.save_for_backward(grad_hidden_nc, grad_weight_vc)
        ctx.n = len(targets_n) if counted_n is None else counted_n.sum()
        ctx.weight_dtype = weight_vc.dtype
        mean: Tensor = loss / ctx.n
        return mean

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        grad_hidden_nc, grad_weight_vc = ctx.saved_tensors
        scale = grad_outputs[0] / ctx.n
        return grad_hidden_nc * scale, (grad_weight_vc * scale).to(ctx.weight_dtype), None, None, None, None


@torch.no_grad()
def vocab_parallel_losses(
    hidden_nc: Tensor, weight_vc: Tensor, targets_n: Tensor, vocab_size: int, group: distributed.ProcessGroup
) -> Tensor:
    """Return -log softmax(hidden @ weight.T)[target] of each position, [n], the same on all ranks; without gradient."""
    chunks = chunk_rows(len(targets_n), weight_vc)
    return torch.cat(
        [_Chunk(hidden_nc[rows], weight_vc, targets_n[rows], vocab_size, group).losses_n for rows in chunks]
    )


class _Chunk:
    """The losses of some positions, and the exponentials of this rank's logits, from which the gradient is computed."""

    def __init__(
        self, hidden_nc: Tensor, weight_vc: Tensor, targets_n: Tensor, vocab_size: int, group: distributed.ProcessGroup
    ) -> None:
        n_rows = len(weight_vc)
        first = distributed.get_rank(group) * n_rows
        logits_nv = (hidden_nc @ weight_vc.T).to(sum_dtype(hidden_nc))
        logits_nv[:, max(0, vocab_size - first) :] = -torch.inf
        top_n = logits_nv.amax(dim=1)
        distributed.all_reduce(top_n, distributed.ReduceOp.MAX, group)
        logits_nv -= top_n[:, None]
        here_n = targets_n - first
        self._is_here_n = (here_n >= 0) & (here_n < n_rows)
        self._here_n1 = here_n.clamp(0, n_rows - 1)[:, None]
        picked_n = logits_nv.gather(1, self._here_n1)[:, 0].where(self._is_here_n, 0)
        self._exps_nv = logits_nv.exp_()
        sums_2n = torch.stack([self._exps_nv.sum(dim=1), picked_n])
        distributed.all_reduce(sums_2n, group=group)
        self._sums_n = sums_2n[0]
        self.losses_n = sums_2n[0].log() - sums_2n[1]

    def slopes(self) -> Tensor:
        """Return softmax minus one-hot for this rank's part of the vocabulary, [n, v], overwriting the exponentials."""
        slope_nv = self._exps_nv.div_(self._sums_n[:, None])
        return slope_nv.scatter_add_(1, self._here_n1, -self._is_here_n[:, None].to(slope_nv.dtype))
