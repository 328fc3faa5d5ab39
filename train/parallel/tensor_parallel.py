"""Tensor parallel with sequence parallel (Shoeybi et al. 2019; Korthikanti et al. 2022).

Query, key, value and the first feed-forward layer are split by columns, the layers after them by rows. Norms and
the residual stream between them compute a part of the sequence on each rank. Embeddings are split by vocabulary,
and the loss never gathers logits: like `cross_entropy.py`, it computes a chunk of positions at a time and turns logits into
their gradient in place. Ranks exchange two numbers per position: the logarithm of the sum of their exponentials, and the
target's logit, which one rank has.

    part of the sequence ──gather──► all of it: columns, rows ──sum and scatter──► part of the sequence

In the backward pass each of the two collectives is the other. Modules have plain tensors, the rank's own shards, and
call the collectives themselves: torch's styles, which compute with DTensors, took twice the time (docs/tried/train.md).

Shape suffixes as in `gpt2.py`, and p rank, s position in one rank's part of the sequence; v is the rank's own part of the
vocabulary (padded).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed import ProcessGroup
from torch.nn import functional

from webtext.train.model.cross_entropy import chunk_rows, chunked_loss, sum_dtype
from webtext.train.model.gpt2 import GPT2

# their names since torch 2.13; older ones have the other names alone, of which newer ones warn
all_gather_single = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
reduce_scatter_single = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)

_Collective = Callable[[Tensor, ProcessGroup], Tensor]
_COLUMNS, _ROWS = ("query", "key", "value", "expand"), ("projection", "contract")


def split_axis(name: str) -> int | None:
    """Return the axis along which the parameter `name` is split; None if every rank has all of it."""
    *_, layer, kind = name.split(".")
    if layer in _COLUMNS or name == "token_embedding.weight":
        return 0
    return 1 if layer in _ROWS and kind == "weight" else None


def split_tensors(model: GPT2, group: ProcessGroup) -> None:
    """Replace each split parameter of a model, or of a stage, by this rank's shard, in place.

    The gradient of a parameter that isn't split (`split_axis`) covers only the rank's part of the sequence, so it has
    to be summed over `group`. Heads, positions and rows of the embedding must divide (`settings.check_trainable`).
    """
    rank, n = distributed.get_rank(group), group.size()

    def gathered(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (gather_sequence(inputs[0], group), *inputs[1:])

    for name, parameter in list(model.named_parameters()):
        axis = split_axis(name)
        if axis is not None:
            place, _, leaf = name.rpartition(".")
            piece = parameter.detach().chunk(n, axis)[rank].contiguous()
            setattr(model.get_submodule(place), leaf, nn.Parameter(piece))
    for block in model.blocks.children():
        for sublayer in (block.attention, block.feed_forward):
            cast(nn.Module, sublayer).register_forward_pre_hook(gathered)
        block.attention.projection = _Rows(cast(Any, block.attention).projection, group)  # type: ignore[union-attr]
        block.feed_forward.contract = _Rows(cast(Any, block.feed_forward).contract, group)  # type: ignore[union-attr]
    children = dict(model.named_children())
    if "token_embedding" in children:
        model._modules["token_embedding"] = _VocabularyPart(model.token_embedding.weight, group)
    if "position_embedding" in children:
        model.position_embedding.register_forward_pre_hook(lambda _, inputs: (inputs[0].chunk(n)[rank],))


class _Rows(nn.Module):
    """A linear layer split by rows: each rank has some channels of the input and computes a summand of the output."""

    def __init__(self, layer: nn.Linear, group: ProcessGroup) -> None:
        super().__init__()
        self.weight, self.bias, self.group = layer.weight, layer.bias, group

    def forward(self, x_btc: Tensor) -> Tensor:
        return scatter_sum(functional.linear(x_btc, self.weight), self.group) + self.bias


class _VocabularyPart(nn.Module):
    """A token embedding split by vocabulary: each rank looks up its own rows, and zeros for the others."""

    def __init__(self, weight: Tensor, group: ProcessGroup) -> None:
        super().__init__()
        self.weight, self.group = weight, group

    def forward(self, tokens_bt: Tensor) -> Tensor:
        here_bt = tokens_bt - distributed.get_rank(self.group) * len(self.weight)
        is_here_bt = (here_bt >= 0) & (here_bt < len(self.weight))
        x_btc = functional.embedding(here_bt.where(is_here_bt, 0), self.weight)
        return scatter_sum(x_btc * is_here_bt[..., None], self.group)


def gather_sequence(x_bsc: Tensor, group: ProcessGroup) -> Tensor:
    """Gather the parts of the sequence on all ranks to [b, t, c]; gradients are summed and scattered."""
    return cast(Tensor, _Exchange.apply(x_bsc, group, _gathered, _scattered_sum))  # type: ignore[no-untyped-call]


def scatter_sum(x_btc: Tensor, group: ProcessGroup) -> Tensor:
    """Return this rank's part of the sequence, [b, s, c], of the sum over all ranks; gradients are gathered."""
    return cast(Tensor, _Exchange.apply(x_btc, group, _scattered_sum, _gathered))  # type: ignore[no-untyped-call]


class _Exchange(torch.autograd.Function):
    """Applies a collective, and to the gradient the one that is its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup, collective: _Collective, derivative: _Collective) -> Tensor:
        ctx.group, ctx.derivative = group, derivative
        return collective(x, group)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.derivative(grad_outputs[0], ctx.group), None, None, None


def _gathered(x_bsc: Tensor, group: ProcessGroup) -> Tensor:
    b, s, c = x_bsc.shape
    x_pbsc = x_bsc.new_empty(group.size(), b, s, c)
    all_gather_single(x_pbsc.flatten(0, 1), x_bsc.contiguous(), group)
    return x_pbsc.transpose(0, 1).reshape(b, -1, c)


def _scattered_sum(x_btc: Tensor, group: ProcessGroup) -> Tensor:
    b, _, c = x_btc.shape
    x_pbsc = x_btc.reshape(b, group.size(), -1, c).transpose(0, 1).contiguous()
    if x_btc.device.type == "cpu":  # gloo's reduce-scatter is its all-reduce: 0.44 ms for 0.4 MB, this 0.25
        received_pbsc = torch.empty_like(x_pbsc)
        distributed.all_to_all_single(received_pbsc, x_pbsc, group=group)
        return received_pbsc.sum(0)
    x_bsc = torch.empty_like(x_pbsc[0])
    reduce_scatter_single(x_bsc, x_pbsc.flatten(0, 1), group=group)
    return x_bsc


def vocab_parallel_loss(
    hidden_bsc: Tensor,
    weight_vc: Tensor,
    targets: Tensor,
    vocab_size: int,
    group: ProcessGroup,
    counted: Tensor | None = None,
    *,
    compiled: bool = False,
) -> Tensor:
    """Return the loss of a hidden state as `cross_entropy.linear_cross_entropy` does.

    Each rank of `group` has a part of the sequence and of the output weights.
    """
    first = distributed.get_rank(group) * len(weight_vc)
    of_rank = torch.compile(_of_rank, dynamic=False) if compiled else _of_rank
    replace = torch.compile(_vocab_slopes, dynamic=False) if compiled else _vocab_slopes

    def to_slopes(logits_nv: Tensor, targets_n: Tensor) -> Tensor:
        logits_nv[:, max(0, vocab_size - first) :] = -torch.inf  # padding
        total_n, picked_n = _over_ranks(of_rank(logits_nv, targets_n - first), group)
        replace(logits_nv, targets_n - first, total_n)
        return cast(Tensor, total_n - picked_n)

    return chunked_loss(gather_sequence(hidden_bsc, group), weight_vc, targets, counted, to_slopes)


@torch.no_grad()
def vocab_parallel_losses(
    hidden_bsc: Tensor, weight_vc: Tensor, targets: Tensor, vocab_size: int, group: ProcessGroup
) -> Tensor:
    """Return the loss of each target, in its shape, the same on all ranks; without gradient."""
    hidden_nc, first = gather_sequence(hidden_bsc, group).flatten(0, 1), distributed.get_rank(group) * len(weight_vc)
    losses, targets_n = [], targets.flatten()
    for rows in chunk_rows(len(targets_n), weight_vc):
        logits_nv = hidden_nc[rows] @ weight_vc.T
        logits_nv[:, max(0, vocab_size - first) :] = -torch.inf  # padding
        total_n, picked_n = _over_ranks(_of_rank(logits_nv, targets_n[rows] - first), group)
        losses.append(total_n - picked_n)
    return torch.cat(losses).view_as(targets)


def _of_rank(logits_nv: Tensor, here_n: Tensor) -> Tensor:
    """Return the logarithm of the sum of this rank's exponentials, and the logits of targets that it has or 0, [2, n].

    `here_n` is the targets' columns; other ranks' have none here.
    """
    is_here_n = (here_n >= 0) & (here_n < logits_nv.shape[1])
    picked_n = logits_nv.gather(1, here_n.clamp(0, logits_nv.shape[1] - 1)[:, None])[:, 0].where(is_here_n, 0)
    return torch.stack([logits_nv.to(sum_dtype(logits_nv)).logsumexp(1), picked_n.to(sum_dtype(logits_nv))])


def _over_ranks(of_rank_2n: Tensor, group: ProcessGroup) -> Tensor:
    """Return the same two numbers of the entire vocabulary, [2, n], with the same bits on all ranks."""
    of_ranks_p2n = of_rank_2n.new_empty(group.size(), *of_rank_2n.shape)
    all_gather_single(of_ranks_p2n.flatten(0, 1), of_rank_2n, group)
    return torch.stack([of_ranks_p2n[:, 0].logsumexp(0), of_ranks_p2n[:, 1].sum(0)])


def _vocab_slopes(logits_nv: Tensor, here_n: Tensor, total_n: Tensor) -> None:
    """Replace logits by their gradient, times the number of positions: softmax - one hot."""
    slopes_nv = (logits_nv - total_n[:, None]).exp_()
    is_target_nv = torch.arange(logits_nv.shape[1], device=here_n.device) == here_n[:, None]
    logits_nv.copy_(slopes_nv.add_(is_target_nv, alpha=-1))
