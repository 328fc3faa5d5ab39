"""The output layer and its cross-entropy, with the vocabulary split over ranks (Shoeybi et al. 2019, section 3).

Like `cross_entropy.py`, it computes a chunk of positions at a time, and turns logits into their gradient in place. Ranks
exchange two numbers per position: the logarithm of the sum of their exponentials, and the target's logit, which one
rank has.

Shape suffixes as in `gpt2.py`: n position, c channel, v the rank's own part of the vocabulary (padded), p rank.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, distributed

from webtext.train.model.cross_entropy import chunk_rows, sum_dtype
from webtext.train.parallel.tensor_parallel import all_gather_single, gather_sequence


def vocab_parallel_loss(
    hidden_bsc: Tensor,
    weight_vc: Tensor,
    targets_n: Tensor,
    vocab_size: int,
    group: distributed.ProcessGroup,
    counted_n: Tensor | None = None,
    *,
    compiled: bool = False,
) -> Tensor:
    """Return the loss of a hidden state; each rank of `group` has a part of the sequence and of the output weights.

    Like `cross_entropy.linear_cross_entropy`, the mean over the positions where `counted_n` is true.
    """
    hidden_nc = gather_sequence(hidden_bsc, group).flatten(0, 1)
    loss: Tensor = _CrossEntropy.apply(hidden_nc, weight_vc, targets_n, vocab_size, group, counted_n, compiled)  # type: ignore[no-untyped-call]
    return loss


@torch.no_grad()
def vocab_parallel_losses(
    hidden_bsc: Tensor, weight_vc: Tensor, targets_n: Tensor, vocab_size: int, group: distributed.ProcessGroup
) -> Tensor:
    """Return the loss of each position, [n], the same on all ranks; without gradient."""
    hidden_nc, first = gather_sequence(hidden_bsc, group).flatten(0, 1), distributed.get_rank(group) * len(weight_vc)
    losses = []
    for rows in chunk_rows(len(targets_n), weight_vc):
        logits_nv = _logits(hidden_nc[rows], weight_vc, vocab_size - first)
        total_n, picked_n = _over_ranks(_of_rank(logits_nv, targets_n[rows] - first), group)
        losses.append(total_n - picked_n)
    return torch.cat(losses)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_nc: Tensor,
        weight_vc: Tensor,
        targets_n: Tensor,
        vocab_size: int,
        group: distributed.ProcessGroup,
        counted_n: Tensor | None,
        compiled: bool,
    ) -> Tensor:
        of_rank, to_slopes = map(_compiled, (_of_rank, _to_slopes)) if compiled else (_of_rank, _to_slopes)
        first = distributed.get_rank(group) * len(weight_vc)
        loss = torch.zeros((), device=hidden_nc.device, dtype=sum_dtype(hidden_nc))
        grad_hidden_nc = torch.empty_like(hidden_nc)
        grad_weight_vc = torch.zeros_like(weight_vc, dtype=loss.dtype)
        for rows in chunk_rows(len(targets_n), weight_vc):
            logits_nv, here_n = _logits(hidden_nc[rows], weight_vc, vocab_size - first), targets_n[rows] - first
            total_n, picked_n = _over_ranks(of_rank(logits_nv, here_n), group)
            counts_n = torch.ones_like(total_n) if counted_n is None else counted_n[rows].to(total_n.dtype)
            loss += ((total_n - picked_n) * counts_n).sum()
            to_slopes(logits_nv, here_n, total_n, counts_n)
            torch.mm(logits_nv, weight_vc, out=grad_hidden_nc[rows])
            grad_weight_vc += logits_nv.T @ hidden_nc[rows]
        ctx.save_for_backward(grad_hidden_nc, grad_weight_vc)
        ctx.n = len(targets_n) if counted_n is None else counted_n.sum()
        ctx.weight_dtype = weight_vc.dtype
        mean: Tensor = loss / ctx.n
        return mean

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden_nc, grad_weight_vc = ctx.saved_tensors
        scale = grad_outputs[0] / ctx.n
        return grad_hidden_nc * scale, (grad_weight_vc * scale).to(ctx.weight_dtype), None, None, None, None, None


def _logits(hidden_nc: Tensor, weight_vc: Tensor, n_tokens: int) -> Tensor:
    """Return the logits, of which the columns from `n_tokens` on are padding."""
    logits_nv = hidden_nc @ weight_vc.T
    logits_nv[:, max(0, n_tokens) :] = -torch.inf
    return logits_nv


def _of_rank(logits_nv: Tensor, here_n: Tensor) -> Tensor:
    """Return the logarithm of the sum of this rank's exponentials, and the logits of targets that it has or 0, [2, n].

    `here_n` is the targets' columns; other ranks' have none here.
    """
    is_here_n = (here_n >= 0) & (here_n < logits_nv.shape[1])
    picked_n = logits_nv.gather(1, here_n.clamp(0, logits_nv.shape[1] - 1)[:, None])[:, 0].where(is_here_n, 0)
    return torch.stack([logits_nv.to(sum_dtype(logits_nv)).logsumexp(1), picked_n.to(sum_dtype(logits_nv))])


def _over_ranks(of_rank_2n: Tensor, group: distributed.ProcessGroup) -> Tensor:
    """Return the same two numbers of the entire vocabulary, [2, n], with the same bits on all ranks."""
    of_ranks_p2n = of_rank_2n.new_empty(group.size(), *of_rank_2n.shape)
    all_gather_single(of_ranks_p2n.flatten(0, 1), of_rank_2n, group)
    return torch.stack([of_ranks_p2n[:, 0].logsumexp(0), of_ranks_p2n[:, 1].sum(0)])


def _to_slopes(logits_nv: Tensor, here_n: Tensor, total_n: Tensor, counts_n: Tensor) -> None:
    """Replace logits by their gradient, times the number of positions: softmax - one hot where the position counts."""
    slopes_nv = (logits_nv - total_n[:, None]).exp_()
    is_target_nv = torch.arange(logits_nv.shape[1], device=here_n.device) == here_n[:, None]
    logits_nv.copy_(slopes_nv.add_(is_target_nv, alpha=-1).mul_(counts_n[:, None]))


@functools.cache
def _compiled(function: Any) -> Any:
    return torch.compile(function, dynamic=False)
