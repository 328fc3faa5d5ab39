"""Floating-point operations of a token: the model's own, and what activation checkpointing computes once more; without torch."""

from __future__ import annotations

from webtext.train.shape import GPT2Config


def flops_per_token(config: GPT2Config) -> int:
    """Floating-point operations of one token's forward and backward pass: 6 N + 12 L H Q T.

    Chowdhery et al. 2022 (PaLM), appendix B, which defines MFU by it: N parameters that multiply (here all but the
    positions, which are added; the shared embedding multiplies once, as the output layer), L layers, H heads of Q channels,
    T positions, the masked half of attention counted too. Kaplan et al. 2020 leave the second term out (6 N D).

    >>> flops_per_token(GPT2Config.named("124M"))
    855166464
    """
    multiplied = config.n_parameters - config.context * config.n_embd
    return 6 * multiplied + 12 * config.n_layer * config.n_embd * config.context


def recomputed_flops_per_token(config: GPT2Config, activation_checkpointing: str) -> int:
    """What activation checkpointing adds: blocks forward once more, 2 FLOPs a weight and 4 L H Q T of attention.

    A block's last product, a third of its weights, is asked for again by the dropout behind it alone. Selective adds no product,
    but with dropout that of attention. MFU does not count it (PaLM, appendix B), so checkpointing shows as a lower MFU.
    """
    is_full = activation_checkpointing == "full"
    is_selective = activation_checkpointing == "selective"
    weights = (12 if config.dropout else 8) * config.n_layer * config.n_embd**2 * is_full
    attention = 4 * config.n_layer * config.n_embd * config.context
    return 2 * weights + attention * (is_full or (is_selective and config.dropout > 0))
