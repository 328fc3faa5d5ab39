"""Activation checkpointing: what a block keeps for its backward pass and what it recomputes.

full       keeps only the block's input (Chen et al. 2016) and repeats the forward pass
selective  also keeps the outputs of the matrix products and of attention (Korthikanti et al. 2022, section 5: recompute
           what is large but cheap), so norms, GELU and sums are recomputed. Flash attention never keeps scores
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import webtext.train.model.attention  # noqa: F401 - registers its operators

_ATEN = torch.ops.aten
_PRODUCTS = {_ATEN.mm.default, _ATEN.addmm.default}
_ATTENTION = {
    _ATEN._scaled_dot_product_flash_attention.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    _ATEN._scaled_dot_product_efficient_attention.default,
    _ATEN._scaled_dot_product_cudnn_attention.default,
    torch.ops.webtext.blocked_attention.default,
    torch.ops.higher_order.flex_attention,
}
PRODUCTS_PER_BLOCK = 6


def checkpointed(compute: Callable[..., Tensor], how: str, x_btc: Tensor, mask_b1tt: Any, dropout: float) -> Tensor:
    """Return `compute(x_btc, None, mask_b1tt)`, bit-equal, keeping only what `how` ("selective" or "full") keeps."""
    how_to: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": dropout > 0}
    if how == "selective":  # torch.compile takes a module's function, but no lambda
        how_to["context_fn"] = partial(_selective_contexts, dropout)
    y_btc: Tensor = checkpoint(compute, x_btc, None, mask_b1tt, **how_to)
    return y_btc


def _selective_contexts(dropout: float) -> Any:
    contexts: Any = create_selective_checkpoint_contexts  # untyped in torch
    return contexts(_Selective(dropout))


class _Selective:
    """Policy that decides which outputs of one block's forward pass are kept."""

    def __init__(self, dropout: float) -> None:
        # Only the dropout after the last product needs its output again. Without dropout torch stops before it.
        self._kept_products = PRODUCTS_PER_BLOCK if dropout else PRODUCTS_PER_BLOCK - 1
        # Attention with dropout draws random numbers. If it were not recomputed, later dropouts would draw them.
        self._keeps_attention = not dropout
        self._products = 0

    def __call__(self, context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if operator in _PRODUCTS:
            self._products += 1
            keeps = self._products <= self._kept_products
        else:
            keeps = self._keeps_attention and operator in _ATTENTION
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE
