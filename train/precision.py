"""In which dtype a model computes: float32 parameters are kept and updated, and a step works on copies of them.

The copies are made once a step, not at each use, and activations, norms and the residual stream are in their dtype too;
gradients come back through the copies and are summed up in float32. So whatever looks at the parameters sees float32 ones:
optimizer, checkpoint. (Over several processes the mixed-precision policy of `parallel/parallelize.py` makes the copies.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import cast

import torch
from torch import nn

MIN_BFLOAT16_WIDTH_ON_CPU = 128
"""One step of 2 layers, 4,096 tokens: float32 / bfloat16 = 1.3 at width 128, 1.5 at 256, 1.6 at 6 layers of 384."""


def compute_dtype(setting: str, device: torch.device, n_embd: int) -> torch.dtype:
    """The dtype of a step: 'auto' is bfloat16 where the machine multiplies it faster than float32."""
    if setting != "auto":
        return torch.bfloat16 if setting == "bfloat16" else torch.float32
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = n_embd >= MIN_BFLOAT16_WIDTH_ON_CPU and torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if fast else torch.float32


@contextlib.contextmanager
def cast_parameters(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Within, the modules of `model` hold copies of its parameters in `dtype`; their gradients reach the parameters.

    It must hold until the backward pass is over: activation checkpointing computes with the parameters once more. Any
    number of backward passes may follow one another.
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
