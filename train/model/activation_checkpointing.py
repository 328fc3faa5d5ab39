"""Activation checkpointing: what a block keeps for its backward pass and what it recomputes.

full       keeps only the block's input (Chen et al. 2016) and repeats the forward pass
selective  also keeps the outputs of the matrix products and of attention (Korthikanti et al. 2022, section 5: recompute
           what is large but cheap), so norms, GELU and sums are recomputed. Flash attention never keeps scores
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

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
    # Only the dropout after the last product needs its output again. Without dropout torch stops before it.
    n_kept = PRODUCTS_PER_BLOCK if dropout else PRODUCTS_PER_BLOCK - 1
    # Attention with dropout draws random numbers. If it were not recomputed, later dropouts would draw them.
    attention = set() if dropout else _ATTENTION
    products = itertools.count(1)

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        """Return whether the output of an operator of one block's forward pass is kept."""
        keeps = next(products) <= n_kept if operator in _PRODUCTS else operator in attention
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]
