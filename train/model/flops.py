"""Floating-point operations per token. Needs no torch."""

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
