"""The output layer and its cross-entropy in one operation, a chunk of positions at a time.

With GPT-2's vocabulary the logits of one batch are its largest tensor by far. Here they exist for one chunk, in the
model's dtype. The forward pass turns them into their gradient in place, so nothing is kept or computed twice.

Compiled, one kernel does that without float32 logits in memory. The three matrix products around it are not compiled,
because the library writes their results in place. Uncompiled, a CPU works on a few rows at a time, whose float32 values
stay in the cache.

Shape suffixes as in `gpt2.py`: n position, c channel, v vocabulary (padded).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor

LOGITS_PER_CHUNK, MOST_CHUNKS = 2**27, 8
"""256 MiB of bfloat16 logits or an eighth of all, whichever is more: small compared with the activations. Each chunk
reads and writes the float32 gradient of the weight. In 32 chunks instead of 8, the 124M took 5 % longer on an H200."""
LOGITS_PER_BLOCK = 2**19
"""2 MiB of float32 logits, a part of a CPU's cache."""

ToSlopes = Callable[[Tensor, Tensor], Tensor]
"""Replaces logits [n, v] of targets [n] by n times their gradient; returns the targets' losses, [n]."""


def linear_cross_entropy(
    hidden: Tensor,
    weight_vc: Tensor,
    targets: Tensor,
    vocab_size: int,
    counted: Tensor | None = None,
    *,
    compiled: bool = False,
) -> Tensor:
    """Return the mean over all targets of -log softmax(hidden @ weight.T)[target], in any shape, [..., c] and [...].

    Rows of the weight from `vocab_size` on are ignored. Where `counted` is false, a target adds 0 to the sum.
    """
    replace = torch.compile(_to_slopes, dynamic=False) if compiled else _to_slopes

    def to_slopes(logits_nv: Tensor, targets_n: Tensor) -> Tensor:
        blocks = _blocks(logits_nv, compiled)
        return -torch.cat([replace(logits_nv[block], targets_n[block], vocab_size) for block in blocks])

    return chunked_loss(hidden, weight_vc, targets, counted, to_slopes)


def chunked_loss(
    hidden: Tensor, weight_vc: Tensor, targets: Tensor, counted: Tensor | None, to_slopes: ToSlopes
) -> Tensor:
    """Return the mean loss as `linear_cross_entropy` does, by `to_slopes`. The gradients are computed with it."""
    if counted is not None:  # a hidden vector of zeros adds no gradient to the weight, and receives none
        counted = counted.flatten()
        hidden = hidden.flatten(0, -2) * counted[:, None]
    arguments = hidden.flatten(0, -2), weight_vc, targets.flatten(), counted, to_slopes
    return cast(Tensor, _ChunkedLoss.apply(*arguments))  # type: ignore[no-untyped-call]


@torch.no_grad()
def token_losses(hidden: Tensor, weight_vc: Tensor, targets: Tensor, vocab_size: int) -> Tensor:
    """Return -log softmax(hidden @ weight.T)[target] of each target, in its shape, float32 or wider, without gradient."""
    hidden_nc, targets_n = hidden.flatten(0, -2), targets.flatten()
    losses_n = torch.empty(len(targets_n), dtype=sum_dtype(hidden_nc), device=hidden_nc.device)
    for rows in chunk_rows(len(targets_n), weight_vc):
        logits_nv = hidden_nc[rows] @ weight_vc.T
        for block in _blocks(logits_nv, compiled=False):
            log_probability_nv = _log_softmax(logits_nv[block], vocab_size)
            losses_n[rows][block] = -_picked(log_probability_nv, targets_n[rows][block])
    return losses_n.view_as(targets)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_nc: Tensor, weight_vc: Tensor, targets_n: Tensor, counted_n: Tensor | None, to_slopes: ToSlopes
    ) -> Tensor:
        losses, grad_weight_vc = list[Tensor](), None
        grad_hidden_nc = torch.empty_like(hidden_nc)
        chunks = list(chunk_rows(len(targets_n), weight_vc))
        for rows in chunks:
            logits_nv = hidden_nc[rows] @ weight_vc.T
            losses.append(to_slopes(logits_nv, targets_n[rows]))
            torch.mm(logits_nv, weight_vc, out=grad_hidden_nc[rows])
            part_vc = logits_nv.T @ hidden_nc[rows]
            if grad_weight_vc is None:  # several chunks are summed in float32 or wider
                grad_weight_vc = part_vc if len(chunks) == 1 else part_vc.to(sum_dtype(part_vc))
            else:
                grad_weight_vc += part_vc
        ctx.save_for_backward(grad_hidden_nc, grad_weight_vc)
        losses_n = torch.cat(losses)
        return (losses_n if counted_n is None else losses_n * counted_n).mean()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden_nc, grad_weight_vc = ctx.saved_tensors
        scale = grad_outputs[0] / len(grad_hidden_nc)
        scaled_vc = torch.empty_like(grad_weight_vc, dtype=grad_hidden_nc.dtype)
        return grad_hidden_nc * scale, torch.mul(grad_weight_vc, scale, out=scaled_vc), None, None, None


def _to_slopes(logits_nv: Tensor, targets_n: Tensor, vocab_size: int) -> Tensor:
    """Return the targets' log-probabilities, [n], and replace the logits by n times the gradient, softmax - one hot."""
    log_probability_nv = _log_softmax(logits_nv, vocab_size)
    picked_n: Tensor = _picked(log_probability_nv, targets_n)
    slopes_nv = log_probability_nv.exp_()
    if torch.compiler.is_compiling():  # a comparison is fused into the kernel, a scatter is not
        is_target_nv = torch.arange(logits_nv.shape[1], device=targets_n.device) == targets_n[:, None]
        slopes_nv.add_(is_target_nv, alpha=-1)
    else:
        slopes_nv.scatter_add_(1, targets_n[:, None], slopes_nv.new_full((len(targets_n), 1), -1))
    logits_nv.copy_(slopes_nv)
    return picked_n


def _log_softmax(logits_nv: Tensor, vocab_size: int) -> Tensor:
    logits_nv[:, vocab_size:] = -torch.inf
    return torch.log_softmax(logits_nv, dim=1, dtype=sum_dtype(logits_nv))


def sum_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which such numbers are summed: float32 or wider."""
    return torch.promote_types(x.dtype, torch.float32)


def chunk_rows(n: int, weight_vc: Tensor) -> Iterator[slice]:
    """Divide n rows into few slices of LOGITS_PER_CHUNK or an eighth: equal ones if possible, to compile one shape."""
    most = max(LOGITS_PER_CHUNK // len(weight_vc), math.ceil(n / MOST_CHUNKS))
    fewest = math.ceil(n / most) or 1
    n_chunks = next((k for k in range(fewest, 2 * fewest) if n % k == 0), fewest)
    return _slices(n, math.ceil(n / n_chunks) or 1)


def _blocks(logits_nv: Tensor, compiled: bool) -> Iterator[slice]:
    n, v = logits_nv.shape
    divides = logits_nv.device.type == "cpu" and not compiled
    return _slices(n, max(1, LOGITS_PER_BLOCK // v) if divides else n)


def _slices(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _picked(log_probability_nv: Tensor, targets_n: Tensor) -> Tensor:
    return log_probability_nv.gather(1, targets_n[:, None])[:, 0]
