"""The output layer and its cross-entropy together, a chunk of positions at a time.

At GPT-2's vocabulary the logits of one batch are its largest tensor by far. Here they live for one chunk: the forward pass
computes a chunk's logits, its loss and already its gradient, so that nothing is kept or computed twice.

Shape suffixes as in `model.py`: n position, c channel, v vocabulary (padded).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

LOGITS_PER_CHUNK = 2**25
"""128 MiB of float32 logits: large enough for full-speed matrix products, small beside the activations."""
CACHED_ROWS, CACHED_LOGITS = 256, 2**21
"""On a CPU, if so many rows of logits lie in its cache they are the chunk: 1.4x at 4,096 tokens of 256 channels, bfloat16."""


def linear_cross_entropy(hidden_nc: Tensor, weight_vc: Tensor, targets_n: Tensor, vocab_size: int) -> Tensor:
    """Mean over n of -log softmax(hidden @ weight.T)[target], rows of weight from `vocab_size` on left out."""
    if torch.is_grad_enabled():
        loss: Tensor = _LinearCrossEntropy.apply(hidden_nc, weight_vc, targets_n, vocab_size)  # type: ignore[no-untyped-call]
        return loss
    return token_losses(hidden_nc, weight_vc, targets_n, vocab_size).mean()


@torch.no_grad()
def token_losses(hidden_nc: Tensor, weight_vc: Tensor, targets_n: Tensor, vocab_size: int) -> Tensor:
    """-log softmax(hidden @ weight.T)[target] of each position, [n], in float32 or better; without gradient."""
    weight_vc = weight_vc.to(_compute_dtype(hidden_nc))
    dtype = torch.promote_types(hidden_nc.dtype, torch.float32)
    losses_n = torch.empty(len(targets_n), dtype=dtype, device=hidden_nc.device)
    for rows in _chunks(len(targets_n), weight_vc):
        logits_nv = _chunk_logits(hidden_nc[rows], weight_vc, vocab_size)
        losses_n[rows] = -_picked(torch.log_softmax(logits_nv, dim=1), targets_n[rows])
    return losses_n


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_nc: Tensor, weight_vc: Tensor, targets_n: Tensor, vocab_size: int) -> Tensor:
        n = len(targets_n)
        cast_weight_vc = weight_vc.to(_compute_dtype(hidden_nc))
        loss = torch.zeros((), device=hidden_nc.device, dtype=torch.promote_types(hidden_nc.dtype, torch.float32))
        grad_hidden_nc = torch.empty_like(hidden_nc)
        grad_weight_vc = torch.zeros_like(weight_vc)
        minus_one_n1 = torch.full((n, 1), -1, device=hidden_nc.device, dtype=loss.dtype)
        for rows in _chunks(n, weight_vc):
            logits_nv = _chunk_logits(hidden_nc[rows], cast_weight_vc, vocab_size)
            log_probability_nv = torch.log_softmax(logits_nv, dim=1)
            loss -= _picked(log_probability_nv, targets_n[rows]).sum()
            # d loss / d logits = softmax - one hot, all divided by n at the end
            slope_nv = log_probability_nv.exp_()
            slope_nv.scatter_add_(1, targets_n[rows, None], minus_one_n1[: len(slope_nv)])
            slope_nv = slope_nv.to(cast_weight_vc.dtype)
            grad_hidden_nc[rows] = slope_nv @ cast_weight_vc
            grad_weight_vc += slope_nv.T @ hidden_nc[rows].to(cast_weight_vc.dtype)
        ctx.save_for_backward(grad_hidden_nc, grad_weight_vc)
        ctx.n = n
        return loss / n

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden_nc, grad_weight_vc = ctx.saved_tensors
        scale = grad_outputs[0] / ctx.n
        return grad_hidden_nc.mul_(scale), grad_weight_vc.mul_(scale), None, None


def _compute_dtype(hidden_nc: Tensor) -> torch.dtype:
    device = hidden_nc.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_nc.dtype


def _chunks(n: int, weight_vc: Tensor) -> Iterator[slice]:
    n_rows = len(weight_vc)
    fits_cache = weight_vc.device.type == "cpu" and CACHED_ROWS * n_rows <= CACHED_LOGITS
    size = CACHED_ROWS if fits_cache else max(1, LOGITS_PER_CHUNK // n_rows)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _chunk_logits(hidden_nc: Tensor, weight_vc: Tensor, vocab_size: int) -> Tensor:
    logits_nv = hidden_nc.to(weight_vc.dtype) @ weight_vc.T
    logits_nv = logits_nv.to(torch.promote_types(logits_nv.dtype, torch.float32))
    logits_nv[:, vocab_size:] = -torch.inf
    return logits_nv


def _picked(log_probability_nv: Tensor, targets_n: Tensor) -> Tensor:
    return log_probability_nv.gather(1, targets_n[:, None])[:, 0]
