"""Floating-point operations per token: the model's own, and those that activation checkpointing repeats; no torch."""

from __future__ import annotations

from webtext.train.shape import GPT2Config


def flops_per_token(config: GPT2Config) -> int:
    """Return the floating-point operations of one token's forward and backward pass: 6 N + 12 L H Q T.

    Chowdhery et al. 2022 (PaLM), appendix B, define MFU by this formula. N is the number of parameters that multiply:
    all but the positions, which are added; the shared embedding multiplies once, as the output layer. There are L
    layers, H heads of Q channels and T positions, and the masked half of attention counts too. Kaplan et al. 2020 leave
    the second term out (6 N D).

    >>> flops_per_token(GPT2Config.named("124M"))
    855166464
    """
    multiplied = config.n_parameters - config.context * config.n_embd
    return 6 * multiplied + 12 * config.n_layer * config.n_embd * config.context


def recomputed_flops_per_token(config: GPT2Config, activation_checkpointing: str) -> int:
    """Return the operations that activation checkpointing adds: another forward pass of the blocks.

    It costs 2 FLOPs per weight and 4 L H Q T for attention. A block's last product, a third of its weights, is repeated
    only with dropout. Selective checkpointing repeats no product, but with dropout it repeats attention. MFU does not
    count these operations (PaLM, appendix B), so checkpointing shows as a lower MFU.
    """
    is_full = activation_checkpointing == "full"
    is_selective = activation_checkpointing == "selective"
    weights = (12 if config.dropout else 8) * config.n_layer * config.n_embd**2 * is_full
    attention = 4 * config.n_layer * config.n_embd * config.context
    return 2 * weights + attention * (is_full or (is_selective and config.dropout > 0))
