"""The last part of a step, decided on the device: clip and judge the gradients, then update the parameters or don't.

The host waits for nothing here. It queues a copy of the numbers that it wants to know (`Reading`) and reads them when
the next step is already queued.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

NO_ZERO = 1e-6  # added to the norm, as torch.nn.utils.clip_grad_norm_ does


class Reading:
    """Numbers that a device is still computing, copied to the host after its work and waited for only when read."""

    def __init__(self, values: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._values = values
        if values.is_cuda:
            self._values = torch.empty_like(values, device="cpu", pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def read(self) -> list[float]:
        """Wait for the numbers and return them."""
        if self._event is not None:
            self._event.synchronize()
        return [float(value) for value in self._values.tolist()]


def gradient_norm(model: nn.Module) -> Tensor:
    """Return the Euclidean norm of all gradients together, a scalar on their device."""
    return nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])


def is_fault(loss: Tensor, norm: Tensor, limits: tuple[float, float]) -> Tensor:
    """Return 1.0 if loss or norm is not finite or exceeds its limit, else 0.0: a float32 scalar on their device."""
    of_loss, of_norm = (min(limit, torch.finfo(x.dtype).max) for limit, x in zip(limits, (loss, norm), strict=True))
    return torch.where((loss.abs() <= of_loss) & (norm.abs() <= of_norm), 0.0, 1.0)


def update(optimizer: torch.optim.Optimizer, norm: Tensor, max_norm: float | None, fault: Tensor) -> None:
    """Make one step of `optimizer` with gradients clipped to `max_norm`; if `fault` is 1, change nothing.

    Each part divides by `grad_scale` and obeys `found_inf` itself, as torch's fused optimizers do (the contract of
    torch.amp.GradScaler), so the host doesn't wait for the decision.
    """
    scale = ((norm + NO_ZERO) / (max_norm or torch.inf)).clamp(min=1.0).float()
    parts: tuple[Any, ...] = getattr(optimizer, "parts", (optimizer,))
    for part in parts:
        part.grad_scale, part.found_inf = scale, fault
        part.step()
