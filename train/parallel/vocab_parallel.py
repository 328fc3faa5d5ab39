"""The output layer and its cross-entropy, with the vocabulary split over ranks (Shoeybi et al. 2019, section 3).

Like `cross_entropy.py`, it computes a chunk of positions at a time, and turns logits into their gradient in place. Ranks
exchange two numbers per position: the logarithm of the sum of their exponentials, and the target's logit, which one
rank has.

Shape suffixes as in `gpt2.py`: n position, c channel, v the rank's own part of the vocabulary (padded), p rank.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, distributed

from webtext.train.model.cross_entropy import chunk_rows, chunked_loss, sum_dtype
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
    """Return the loss of a hidden state as `cross_entropy.linear_cross_entropy` does.

    Each rank of `group` has a part of the sequence and of the output weights.
    """
    first = distributed.get_rank(group) * len(weight_vc)
    of_rank = torch.compile(_of_rank, dynamic=False) if compiled else _of_rank
    replace = torch.compile(_to_slopes, dynamic=False) if compiled else _to_slopes

    def to_slopes(logits_nv: Tensor, targets_n: Tensor, counted_n: Tensor | None) -> Iterator[Tensor]:
        _hide_padding(logits_nv, vocab_size - first)
        total_n, picked_n = _over_ranks(of_rank(logits_nv, targets_n - first), group)
        replace(logits_nv, targets_n - first, total_n)
        losses_n = total_n - picked_n
        yield (losses_n if counted_n is None else losses_n * counted_n).sum()

    hidden_nc = gather_sequence(hidden_bsc, group).flatten(0, 1)
    return chunked_loss(hidden_nc, weight_vc, targets_n, counted_n, to_slopes)


@torch.no_grad()
def vocab_parallel_losses(
    hidden_bsc: Tensor, weight_vc: Tensor, targets_n: Tensor, vocab_size: int, group: distributed.ProcessGroup
) -> Tensor:
    """Return the loss of each position, [n], the same on all ranks; without gradient."""
    hidden_nc, first = gather_sequence(hidden_bsc, group).flatten(0, 1), distributed.get_rank(group) * len(weight_vc)
    losses = []
    for rows in chunk_rows(len(targets_n), weight_vc):
        logits_nv = hidden_nc[rows] @ weight_vc.T
        _hide_padding(logits_nv, vocab_size - first)
        total_n, picked_n = _over_ranks(_of_rank(logits_nv, targets_n[rows] - first), group)
        losses.append(total_n - picked_n)
    return torch.cat(losses)


def _hide_padding(logits_nv: Tensor, n_tokens: int) -> None:
    logits_nv[:, max(0, n_tokens) :] = -torch.inf


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


def _to_slopes(logits_nv: Tensor, here_n: Tensor, total_n: Tensor) -> None:
    """Replace logits by their gradient, times the number of positions: softmax - one hot."""
    slopes_nv = (logits_nv - total_n[:, None]).exp_()
    is_target_nv = torch.arange(logits_nv.shape[1], device=here_n.device) == here_n[:, None]
    logits_nv.copy_(slopes_nv.add_(is_target_nv, alpha=-1))
