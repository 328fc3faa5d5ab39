"""Mixed precision: parameters are kept and updated in float32, and a step works on copies in its own dtype.

The copies are made once per step, not at each use. Activations, norms and the residual stream have their dtype too.
Gradients flow back through the copies and are summed in float32, so the optimizer and checkpoints see only float32
parameters. All are cast in one operation, and with `compiled` a block's gradients are added in one: one by one, a
124M model's were 600 launches for two microbatches. (In a run of several processes the mixed-precision policy of
`parallel/parallelize.py` makes the copies.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

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
def cast_parameters(model: nn.Module, dtype: torch.dtype, *, compiled: bool = False) -> Iterator[None]:
    """Replace the parameters of `model` by copies in `dtype` inside the block; gradients reach the original parameters.

    The backward pass has to be inside the block too, because activation checkpointing uses the parameters again. The
    block may contain any number of backward passes. `compiled` sums their gradients through torch.compile.
    """
    places: list[tuple[nn.Module, str, nn.Parameter]] = []
    groups: dict[str, list[int]] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.dtype != dtype:
                blocks, number, *_ = f"{path}..".split(".")
                groups.setdefault(f"{blocks}.{number or name}", []).append(len(places))
                places.append((module, name, parameter))
    if not places:
        yield
        return
    with torch.no_grad():
        copies = [torch.empty_like(parameter, dtype=dtype) for _, _, parameter in places]
        torch._foreach_copy_(copies, [parameter for _, _, parameter in places])
    add = torch.compile(_add, dynamic=False) if compiled else _add
    try:
        for group in groups.values():
            parameters = [places[i][2] for i in group]
            linked = _Copies.apply(add if len(group) > 1 else _add, [copies[i] for i in group], *parameters)  # type: ignore[no-untyped-call]
            for i, copy in zip(group, linked, strict=True):
                module, name, _ = places[i]
                module._parameters[name] = copy
        yield
    finally:
        for module, name, parameter in places:
            module._parameters[name] = parameter


class _Copies(torch.autograd.Function):
    """Links copies with their parameters: adds their gradients to the parameters' own when all of them are there."""

    @staticmethod
    def forward(
        ctx: Any, add: Callable[..., None], copies: list[Tensor], *parameters: nn.Parameter
    ) -> tuple[Tensor, ...]:
        ctx.add, ctx.parameters = add, parameters
        ctx.set_materialize_grads(False)
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, ...]:
        pairs = [(p, gradient) for p, gradient in zip(ctx.parameters, gradients, strict=True) if gradient is not None]
        sums = [(parameter.grad, gradient) for parameter, gradient in pairs if parameter.grad is not None]
        new = [(parameter, gradient) for parameter, gradient in pairs if parameter.grad is None]
        if sums:
            ctx.add(*map(list, zip(*sums, strict=True)))
        if new:
            cast = [torch.empty_like(parameter) for parameter, _ in new]
            torch._foreach_copy_(cast, [gradient for _, gradient in new])
            for (parameter, _), gradient in zip(new, cast, strict=True):
                parameter.grad = gradient
        return (None, None, *(None for _ in gradients))


def _add(sums: list[Tensor], gradients: list[Tensor]) -> None:
    torch._foreach_add_(sums, gradients)
