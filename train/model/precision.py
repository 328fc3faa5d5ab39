"""Mixed precision: parameters are kept and updated in float32, and a step works on copies in its own dtype.

The copies are made once per step, not at each use. Activations, norms and the residual stream have their dtype too.
Gradients flow back through the copies and are summed in float32, so the optimizer and checkpoints see only float32
parameters. (In a run of several processes the mixed-precision policy of `parallel/parallelize.py` makes the copies.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import cast

import torch
from torch import nn

MIN_BFLOAT16_WIDTH_ON_CPU = 128
"""Measured time of a step, float32 / bfloat16: 1.3 at width 128, 1.5 at 256 (both 2 layers, 4,096 tokens), 1.6 at 6
layers of 384."""


def compute_dtype(setting: str, device: torch.device, n_embd: int) -> torch.dtype:
    """Return the dtype of a step: 'auto' is bfloat16 if the machine multiplies it faster than float32."""
    if setting != "auto":
        return torch.bfloat16 if setting == "bfloat16" else torch.float32
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = n_embd >= MIN_BFLOAT16_WIDTH_ON_CPU and torch.cpu.get_capabilities().get("avx512_bf16", False)
    return torch.bfloat16 if fast else torch.float32


@contextlib.contextmanager
def cast_parameters(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Replace the parameters of `model` by copies in `dtype` inside the block; gradients reach the original parameters.

    The backward pass has to be inside the block too, because activation checkpointing uses the parameters again. The
    block may contain any number of backward passes.
    """
    parameters = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dtype != dtype
    ]
    try:
        for module, name, parameter in parameters:
            module._parameters[name] = cast(nn.Parameter, parameter.to(dtype))
        yield
    finally:
        for module, name, parameter in parameters:
            module._parameters[name] = parameter
