"""Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): orthogonalized momentum for the hidden matrices.

Newton-Schulz steps in bfloat16 bring the singular values of the momentum, with Nesterov look-ahead, close to 1. An
update is scaled by 0.2 sqrt(max(rows, columns)) to the size of AdamW's updates, so that one learning rate and one weight
decay serve both (Liu et al. 2025, arXiv 2502.16982, section 2.2). `torch.optim.Muon` computes the same, one matrix
after another.

Here elementwise work is one operation for all matrices, and products are one for all matrices of equal shape, so the
number of operations doesn't depend on the number of layers. On a mesh each process orthogonalizes a share of the
matrices, for which it receives their pieces first; then all processes receive their parts of the updates.

Shape suffixes: n matrices, r rows, c columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Placement, Shard

A, B, C = 3.4445, -4.7750, 2.0315  # of the quintic polynomial in Jordan's post, which is as steep as possible at 0
MOMENTUM, STEPS = 0.95, 5  # decay of the mean gradient, and Newton-Schulz steps: Jordan's, and torch's defaults
NO_ZERO = 1e-7
RMS_OF_ADAMW = 0.2  # root mean square of the entries of AdamW's updates, divided by the learning rate


class _Stack(NamedTuple):
    """Matrices of equal shape that are split alike; `whole` is like one of them, a DTensor if this process has a piece."""

    matrices: list[nn.Parameter]
    whole: Tensor


class Muon(torch.optim.SGD):
    """A step of torch's fused SGD that takes the orthogonalized updates for gradients.

    It obeys `grad_scale` and `found_inf`, as torch's fused optimizers do. `stored` returns a DTensor for a matrix of which
    this process has a piece.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        group: Mapping[str, Any],
        *,
        stored: Callable[[str, Tensor], Tensor],
    ) -> None:
        stacks: dict[Any, _Stack] = {}
        groups: dict[float, dict[str, Any]] = {}
        for name, parameter in parameters.items():
            whole = stored(name, torch.empty_like(parameter, device="meta"))
            placements = getattr(whole, "placements", None)
            stacks.setdefault((whole.shape, placements), _Stack([], whole)).matrices.append(parameter)
            size = RMS_OF_ADAMW * math.sqrt(max(whole.shape))  # of the update; SGD multiplies the decay by it, too
            scaled = {"rate_ratio": size * group["rate_ratio"], "weight_decay": group["weight_decay"] / size}
            groups.setdefault(size, {**group, **scaled, "params": []})["params"].append(parameter)
        super().__init__(list(groups.values()), fused=True)
        self._stacks = list(stacks.values())
        self._matrices = [matrix for stack in self._stacks for matrix in stack.matrices]
        self._momentum = self._matrices[0].detach().new_zeros(sum(p.numel() for p in self._matrices))
        for matrix, buffer in zip(self._matrices, self._unpacked(self._momentum), strict=True):
            self.state[matrix]["momentum_buffer"] = buffer
        self.grad_scale: Tensor | None = self._momentum.new_ones(())
        self.found_inf = self._momentum.new_zeros(())

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all matrices from their gradients, which remain as they are."""
        assert closure is None
        assert self.grad_scale is not None
        scale, self.grad_scale = self.grad_scale, None  # SGD would divide the updates by it
        gradients = [p.grad for p in self._matrices if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        ahead = _look_ahead(flat, self._momentum, scale, self.found_inf)
        pieces = zip(self._stacked(ahead), self._stacks, strict=True)
        updates = _orthogonalized([_moved(x_nrc, stack, to_shares=True) for x_nrc, stack in pieces])
        for target_nrc, x_nrc, stack in zip(self._stacked(flat), updates, self._stacks, strict=True):
            target_nrc.copy_(_moved(x_nrc, stack, to_shares=False))
        for matrix, update in zip(self._matrices, self._unpacked(flat), strict=True):
            matrix.grad = update
        super().step()
        for matrix, gradient in zip(self._matrices, gradients, strict=True):
            matrix.grad = gradient
        self.grad_scale = scale

    def _stacked(self, flat: Tensor) -> list[Tensor]:
        """Return the views [n, r, c] of `flat` as the stacks of this process's pieces."""
        shapes = [(len(stack.matrices), *stack.matrices[0].shape) for stack in self._stacks]
        parts = torch.split(flat, [math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _unpacked(self, flat: Tensor) -> list[Tensor]:
        """Return the views [r, c] of `flat` as this process's pieces of all matrices."""
        return [matrix for stack_nrc in self._stacked(flat) for matrix in stack_nrc]


def _look_ahead(flat: Tensor, momentum: Tensor, scale: Tensor, fault: Tensor) -> Tensor:
    """Add the gradients `flat` / `scale` to the momentum, unless `fault` is 1; return Nesterov's look-ahead.

    It is in bfloat16, but in float64 if `flat` is, so that a mesh can be compared with one process.
    """
    gradient = torch.where(fault > 0, momentum, flat / scale)  # the mean of the momentum and itself is itself
    momentum.lerp_(gradient, 1 - MOMENTUM)
    ahead = gradient.lerp(momentum, MOMENTUM)
    return ahead if flat.dtype == torch.float64 else ahead.bfloat16()


def newton_schulz(x_nrc: Tensor) -> Tensor:
    """Return matrices with the singular vectors of `x_nrc`, r <= c, and singular values of about 0.7 to 1.2."""
    x_nrc = x_nrc / torch.linalg.vector_norm(x_nrc, dim=(1, 2), keepdim=True).clamp(min=NO_ZERO)
    for _ in range(STEPS):
        gram_nrr = torch.bmm(x_nrc, x_nrc.mT)
        factor_nrr = torch.baddbmm(gram_nrr, gram_nrr, gram_nrr, beta=B, alpha=C)
        x_nrc = torch.baddbmm(x_nrc, factor_nrr, x_nrc, beta=A)
    return x_nrc


def _orthogonalized(stacks: Sequence[Tensor]) -> list[Tensor]:
    """Apply `newton_schulz` to stacks [n, r, c], in one batch if they have equal shapes after transposing tall ones."""
    wide = [x_nrc.mT if x_nrc.shape[1] > x_nrc.shape[2] else x_nrc for x_nrc in stacks]
    done: dict[torch.Size, Iterator[Tensor]] = {}
    for shape in {x_nrc.shape[1:] for x_nrc in wide}:
        equal = [x_nrc for x_nrc in wide if x_nrc.shape[1:] == shape]
        batch_nrc = newton_schulz(torch.cat(equal) if len(equal) > 1 else equal[0])
        done[shape] = iter(torch.split(batch_nrc, [len(x_nrc) for x_nrc in equal]))
    results = [next(done[x_nrc.shape[1:]]) for x_nrc in wide]
    return [y.mT if y.shape != x.shape else y for x, y in zip(stacks, results, strict=True)]


def _moved(x_nrc: Tensor, stack: _Stack, *, to_shares: bool) -> Tensor:
    """Turn this process's pieces of all matrices of a stack into its share of the complete matrices, or back."""
    if not isinstance(stack.whole, DTensor):
        return x_nrc
    (r, c), n, mesh = stack.whole.shape, len(stack.matrices), stack.whole.device_mesh
    pieces = [Shard(each.dim + 1) if isinstance(each, Shard) else each for each in stack.whole.placements]
    moves: list[Sequence[Placement]] = [pieces, [Shard(0)] * mesh.ndim]
    here, there = moves if to_shares else reversed(moves)
    whole = DTensor.from_local(
        x_nrc.contiguous(), mesh, here, run_check=False, shape=torch.Size((n, r, c)), stride=(r * c, c, 1)
    )
    return whole.redistribute(placements=there).to_local()
