"""Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): orthogonalized momentum for the hidden matrices.

Newton-Schulz steps in bfloat16 bring the singular values of the momentum, with Nesterov look-ahead, close to 1. An
update is scaled by 0.2 sqrt(max(rows, columns)) to the size of AdamW's updates, so that one learning rate and one weight
decay serve both (Liu et al. 2025, arXiv 2502.16982, section 2.2). `torch.optim.Muon` computes the same, one matrix
after another.

Here elementwise work is one operation for all matrices, and products are one for all matrices of equal shape, so the
number of operations doesn't depend on the number of layers. On a mesh each process orthogonalizes a share of the
matrices: if they are split, it first receives their pieces; then all processes receive what they need of the updates.

Shape suffixes: n matrices, r rows, c columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

A, B, C = 3.4445, -4.7750, 2.0315  # of the quintic polynomial in Jordan's post, which is as steep as possible at 0
MOMENTUM, STEPS = 0.95, 5  # decay of the mean gradient, and Newton-Schulz steps: Jordan's, and torch's defaults
NO_ZERO = 1e-7
RMS_OF_ADAMW = 0.2  # root mean square of the entries of AdamW's updates, divided by the learning rate

_Move = tuple[DeviceMesh, Placement, list[int]]


class _Split(NamedTuple):
    """An axis of a mesh, and the dimension of [r, c] that it splits, of `size`; None if each process has all of it."""

    axis: DeviceMesh
    dim: int | None
    size: int


class _Stack(NamedTuple):
    """Matrices of equal shape that are split alike, in the order of axes in which their pieces are put together."""

    matrices: list[nn.Parameter]
    splits: tuple[_Split, ...]


class Muon(torch.optim.SGD):
    """A step of torch's fused SGD that takes the orthogonalized updates for gradients.

    `grad_scale` and `found_inf` are obeyed as by torch's fused optimizers. `stored` returns a DTensor for a matrix of
    which this process has a piece; `zeros_like` allocates the momentum.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        group: Mapping[str, Any],
        *,
        stored: Callable[[str, Tensor], Tensor],
        zeros_like: Callable[[Tensor], Tensor],
    ) -> None:
        self._look_ahead, self._orthogonalized = _look_ahead, _orthogonalized
        stacks: dict[Any, _Stack] = {}
        groups: dict[float, dict[str, Any]] = {}
        for name, parameter in parameters.items():
            whole = stored(name, parameter.detach())
            splits = _splits(whole)
            stacks.setdefault((whole.shape, splits), _Stack([], splits)).matrices.append(parameter)
            size = RMS_OF_ADAMW * math.sqrt(max(whole.shape))  # of the update; SGD multiplies the decay by it, too
            scaled = {"rate_ratio": size * group["rate_ratio"], "weight_decay": group["weight_decay"] / size}
            groups.setdefault(size, {**group, **scaled, "params": []})["params"].append(parameter)
        super().__init__(list(groups.values()), fused=True)
        self._stacks = list(stacks.values())
        self._matrices = [matrix for stack in self._stacks for matrix in stack.matrices]
        self._momentum = zeros_like(self._matrices[0].detach().new_empty(sum(p.numel() for p in self._matrices)))
        for matrix, buffer in zip(self._matrices, self._unpacked(self._momentum), strict=True):
            self.state[matrix]["momentum_buffer"] = buffer
        self.grad_scale: Tensor | None = self._momentum.new_ones(())
        self.found_inf = self._momentum.new_zeros(())

    def compile(self) -> None:
        """Run what is between the steps' kernels through torch.compile."""
        self._look_ahead = torch.compile(_look_ahead, dynamic=False)
        self._orthogonalized = torch.compile(_orthogonalized, dynamic=False)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all matrices from their gradients, which remain as they are."""
        assert closure is None
        assert self.grad_scale is not None
        scale, self.grad_scale = self.grad_scale, None  # SGD would divide the updates by it
        gradients = [p.grad for p in self._matrices if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        ahead = self._look_ahead(flat, self._momentum, scale, self.found_inf, MOMENTUM)
        stacks = zip(self._stacked(ahead), self._stacks, strict=True)
        gathered = [_gathered(x_nrc, stack.splits) for x_nrc, stack in stacks]
        updates = self._orthogonalized([x_nrc for x_nrc, _ in gathered], STEPS)
        for target_nrc, x_nrc, (_, moves) in zip(self._stacked(flat), updates, gathered, strict=True):
            target_nrc.copy_(_scattered(x_nrc, moves))
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


def _look_ahead(flat: Tensor, momentum: Tensor, scale: Tensor, fault: Tensor, decay: float) -> Tensor:
    """Add the gradients `flat` / `scale` to the momentum, unless `fault` is 1; return Nesterov's look-ahead.

    It is in bfloat16, but in float64 if `flat` is, so that a mesh can be compared with one process.
    """
    gradient = torch.where(fault > 0, momentum, flat / scale)  # the mean of the momentum and itself is itself
    momentum.lerp_(gradient, 1 - decay)
    ahead = gradient.lerp(momentum, decay)
    return ahead if flat.dtype == torch.float64 else ahead.bfloat16()


def newton_schulz(x_nrc: Tensor, n_steps: int) -> Tensor:
    """Return matrices with the singular vectors of `x_nrc`, r <= c, and singular values of about 0.7 to 1.2."""
    x_nrc = x_nrc / torch.linalg.vector_norm(x_nrc, dim=(1, 2), keepdim=True).clamp(min=NO_ZERO)
    for _ in range(n_steps):
        gram_nrr = torch.bmm(x_nrc, x_nrc.mT)
        factor_nrr = torch.baddbmm(gram_nrr, gram_nrr, gram_nrr, beta=B, alpha=C)
        x_nrc = torch.baddbmm(x_nrc, factor_nrr, x_nrc, beta=A)
    return x_nrc


def _orthogonalized(stacks: Sequence[Tensor], n_steps: int) -> list[Tensor]:
    """Apply `newton_schulz` to stacks [n, r, c], in one batch if they have equal shapes after transposing tall ones."""
    wide = [x_nrc.mT if x_nrc.shape[1] > x_nrc.shape[2] else x_nrc for x_nrc in stacks]
    done: dict[torch.Size, Iterator[Tensor]] = {}
    for shape in {x_nrc.shape[1:] for x_nrc in wide}:
        equal = [x_nrc for x_nrc in wide if x_nrc.shape[1:] == shape]
        batch_nrc = newton_schulz(torch.cat(equal) if len(equal) > 1 else equal[0], n_steps)
        done[shape] = iter(torch.split(batch_nrc, [len(x_nrc) for x_nrc in equal]))
    results = [next(done[x_nrc.shape[1:]]) for x_nrc in wide]
    return [y.mT if y.shape != x.shape else y for x, y in zip(stacks, results, strict=True)]


def _splits(whole: Tensor) -> tuple[_Split, ...]:
    """Return how a matrix is split, beginning with the axis that split it last."""
    if not isinstance(whole, DTensor):
        return ()
    mesh, sizes = whole.device_mesh, list(whole.shape)
    splits: list[_Split] = []
    for axis, placement in zip(mesh.mesh_dim_names or (), whole.placements, strict=True):
        dim, n = placement.dim if isinstance(placement, Shard) else None, mesh[axis].size()
        splits.insert(0, _Split(mesh[axis], dim, 0 if dim is None else sizes[dim]))
        if dim is not None:
            sizes[dim] = -(-sizes[dim] // n)
    return tuple(split for split in splits if split.axis.size() > 1)


def _gathered(x_nrc: Tensor, splits: Sequence[_Split]) -> tuple[Tensor, list[_Move]]:
    """Return this process's share of the complete matrices, and what `_scattered` needs to undo it."""
    moves: list[_Move] = []
    for axis, dim, size in splits:
        shape, placement = list(x_nrc.shape), Replicate() if dim is None else Shard(dim + 1)
        if dim is not None:
            shape[dim + 1] = size
        moves.append((axis, placement, shape))
        x_nrc = _moved(x_nrc, axis, shape, placement, Shard(0))
    return x_nrc, moves


def _scattered(x_nrc: Tensor, moves: Sequence[_Move]) -> Tensor:
    for axis, placement, shape in reversed(moves):
        x_nrc = _moved(x_nrc, axis, shape, Shard(0), placement)
    return x_nrc


def _moved(x_nrc: Tensor, axis: DeviceMesh, shape: Sequence[int], here: Placement, there: Placement) -> Tensor:
    """Return what this process has of a tensor of `shape` that was placed as `here` and is to be as `there`."""
    stride = (shape[1] * shape[2], shape[2], 1)
    whole = DTensor.from_local(
        x_nrc.contiguous(), axis, [here], run_check=False, shape=torch.Size(shape), stride=stride
    )
    return whole.redistribute(placements=[there]).to_local()
