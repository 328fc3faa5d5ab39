"""A model's initial values: each parameter is drawn separately, as a function of the seed and its name.

So they don't depend on order, device, mesh or stage: each process draws only its part of the model, one parameter at a
time, and the first loss of a run is the same however the run is distributed. All values are drawn on the CPU.

weights          N(0, 0.02)                    GPT-2's published code (openai/gpt-2 src/model.py), as in GPT-1
residual layers  N(0, 0.02 / sqrt(2 n_layer))  Radford et al. 2019, section 2.3; a block has two of them
positions        N(0, 0.01)                    the same code
biases, padding  0
norms            1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from webtext.base.parts.recipe import sha256_json
from webtext.train.shape import GPT2Config

TOKEN_EMBEDDING, POSITION_EMBEDDING = "token_embedding.weight", "position_embedding.weight"
WEIGHT_STD, POSITION_STD = 0.02, 0.01
Values = Callable[[str, Sequence[int]], Tensor]
"""Returns a complete parameter by its name and shape, on the CPU in float32: drawn, or read from given weights."""
_RESIDUAL = (".projection.weight", ".contract.weight")


def drawn(config: GPT2Config, seed: int) -> Values:
    """Return the initial values of a model that are drawn from a seed."""

    def values(name: str, shape: Sequence[int]) -> Tensor:
        tensor = torch.empty(*shape, dtype=torch.float32, device="cpu")
        if name.endswith("norm.weight"):
            return tensor.fill_(1)
        if name.endswith(".bias"):
            return tensor.zero_()
        generator = torch.Generator("cpu").manual_seed(int(sha256_json([seed, name])[:15], 16))
        std = POSITION_STD if name == POSITION_EMBEDDING else WEIGHT_STD
        std /= math.sqrt(2 * config.n_layer) if name.endswith(_RESIDUAL) else 1
        tensor.normal_(std=std, generator=generator)
        if name == TOKEN_EMBEDDING:
            tensor[config.vocab_size :] = 0
        return tensor

    return values


@torch.no_grad()
def initialize(model: nn.Module, values: Values) -> None:
    """Set the parameters of a model, which must be allocated, to their initial values."""
    for name, parameter in model.named_parameters():
        parameter.copy_(values(name, parameter.shape))
