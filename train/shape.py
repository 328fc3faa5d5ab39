"""The shape of a GPT-2, and the paper's four sizes (Radford et al. 2019, table 2). Needs no torch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from webtext.base.errors import ConfigError, did_you_mean

VOCAB_MULTIPLE = 128  # rows of the embedding matrix: whole tiles for matrix units

# Table 2 of the paper, by its own names, and by the names in use since then (true parameter counts).
_SHAPES = {"117M": (12, 12, 768), "345M": (24, 16, 1024), "762M": (36, 20, 1280), "1542M": (48, 25, 1600)}
_ALIASES = {"124M": "117M", "355M": "345M", "774M": "762M", "1558M": "1542M"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GPT2Config:
    """The shape of a model. It has no dropout, unlike GPT-1: in few passes over the data that only costs."""

    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    context: int = 1024
    vocab_size: int = 50257

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}", "it must be a whole number of at least 1")
        if self.n_embd % self.n_head:
            raise ConfigError(
                f"n_embd {self.n_embd} is not a multiple of n_head {self.n_head}", "each head takes an equal share"
            )

    @classmethod
    def named(cls, name: str, **changes: Any) -> GPT2Config:
        """Return one of the paper's sizes, 117M (or 124M), 345M (355M), 762M (774M), 1542M (1558M), with `changes`.

        >>> GPT2Config.named("124M").n_parameters
        124439808
        """
        shape = _SHAPES.get(_ALIASES.get(name, name))
        if shape is None:
            raise ConfigError(f"unknown model size '{name}'", did_you_mean(name, [*_SHAPES, *_ALIASES]))
        return cls(**dict(zip(("n_layer", "n_head", "n_embd"), shape, strict=True)) | changes)

    @property
    def n_parameters(self) -> int:
        """Number of parameters, the shared embedding counted once and without its padding."""
        block = 12 * self.n_embd**2 + 13 * self.n_embd
        return (self.vocab_size + self.context) * self.n_embd + self.n_layer * block + 2 * self.n_embd

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding matrix; the rows from `vocab_size` on are zero and stay zero."""
        return math.ceil(self.vocab_size / VOCAB_MULTIPLE) * VOCAB_MULTIPLE

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations of one token's forward and backward pass: 6 N + 12 L H Q T.

        Chowdhery et al. 2022 (PaLM), appendix B, define MFU by this formula. N is the number of parameters that
        multiply: all but the positions; the shared embedding multiplies once, as the output layer. There are L layers, H
        heads of Q channels and T positions, and the masked half of attention counts too.

        >>> GPT2Config.named("124M").flops_per_token
        855166464
        """
        multiplied = self.n_parameters - self.context * self.n_embd
        return 6 * multiplied + 12 * self.n_layer * self.n_embd * self.context
