"""Mixed precision: parameters are kept and updated in float32, and a step works on copies in its own dtype.

The copies are made once per step, not at each use. Activations, norms and the residual stream have their dtype too.
Gradients flow back through the copies and are summed in float32, so the optimizer and checkpoints see only float32
parameters. All are cast in one operation, and with `compiled` a block's gradients are added in one: one by one, a
124M model's were 600 launches for two microbatches. (Of parameters that a mesh shards, FSDP2 makes the copies.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from webtext.train.model.gpt2 import GPT2

MIN_BFLOAT16_WIDTH_ON_CPU = 128
"""Measured time of a step, float32 / bfloat16: 1.3 at width 128, 1.5 at 256 (both 2 layers, 4,096 tokens), 1.6 at 6
layers of 384."""

WhenSummed = Callable[[Tensor], None]
Pairs = Sequence[tuple[nn.Parameter, nn.Parameter]]


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
def cast_parameters(
    model: GPT2, dtype: torch.dtype, n_passes: int = 0, when_summed: WhenSummed | None = None
) -> Iterator[None]:
    """Replace the parameters of `model` by copies in `dtype` inside the block; set the original parameters' gradients.

    The backward passes have to be inside too, because activation checkpointing uses the parameters again. Each of the
    model's blocks has its sums in one tensor, and so have its ends. `when_summed` gets it after `n_passes` backward passes,
    while other gradients are computed, or at the end if there were fewer.
    """
    places: list[tuple[nn.Module, str, nn.Parameter]] = []
    groups: dict[str, list[nn.Parameter]] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.dtype != dtype or when_summed is not None:
                places.append((module, name, parameter))
                groups.setdefault(path.split(".")[1] if path.startswith("blocks.") else "ends", []).append(parameter)
    if not places:
        yield
        return
    own: list[Tensor] = [parameter for _, _, parameter in places]
    with torch.no_grad():
        values = [torch.empty_like(parameter, dtype=dtype) for parameter in own]
        torch._foreach_copy_(values, own)
    copies = dict(zip(own, map(nn.Parameter, values), strict=True))
    sums = [
        GradientSums([(p, copies[p]) for p in group], n_passes, when_summed, compiled=model.is_compiled)
        for group in groups.values()
    ]
    try:
        for module, name, parameter in places:
            setattr(module, name, copies[parameter])
        yield
        for one in sums:
            one.finish()
    finally:
        for module, name, parameter in places:
            setattr(module, name, parameter)
        for one in sums:  # let go of the copies: Python's collector doesn't see that their hooks refer to them
            one.pairs = ()


class GradientSums:
    """Sums of the gradients of copies in the dtype of their parameters: `pairs` of parameter and copy.

    A backward pass adds all in one operation when the last of them is there. `finish` gives the parameters their
    gradients; it is called after `n_passes` backward passes.
    """

    def __init__(self, pairs: Pairs, n_passes: int, when_summed: WhenSummed | None, *, compiled: bool) -> None:
        self.pairs, self.n_passes, self.when_summed = pairs, n_passes, when_summed
        self._add = torch.compile(_add, dynamic=False) if compiled and len(pairs) > 1 else _add
        self._flat: Tensor | None = None
        for _, copy in pairs:
            copy.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _take(self, _: Tensor) -> None:
        gradients = [copy.grad for _, copy in self.pairs if copy.grad is not None]
        if len(gradients) < len(self.pairs):
            return
        if self._flat is None:
            sizes, self._n_done = [gradient.numel() for gradient in gradients], 0
            self._flat = gradients[0].new_empty(sum(sizes), dtype=self.pairs[0][0].dtype)
            views = zip(torch.split(self._flat, sizes), gradients, strict=True)
            self._parts = [part.view_as(gradient) for part, gradient in views]
            torch._foreach_copy_(self._parts, gradients)
        else:
            self._add(self._parts, gradients)
        for _, copy in self.pairs:
            copy.grad = None
        self._n_done += 1
        if self._n_done == self.n_passes:
            self.finish()

    def finish(self) -> None:
        """Give the parameters their gradients, unless they have them."""
        if self._flat is not None:
            for (parameter, _), part in zip(self.pairs, self._parts, strict=True):
                parameter.grad = part
            if self.when_summed is not None:
                self.when_summed(self._flat)
            self._flat, self._parts = None, []


def _add(sums: list[Tensor], gradients: list[Tensor]) -> None:
    torch._foreach_add_(sums, gradients)
