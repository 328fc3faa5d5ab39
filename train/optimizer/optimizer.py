"""The update of a step, and the optimizers: AdamW for all parameters, or Muon for the hidden matrices and AdamW for the rest.

The device itself decides whether to update. The host queues a copy of the numbers that it wants to know (`Reading`) and
reads them when the next step is already queued.

AdamW (Loshchilov & Hutter 2019) is torch's, fused. Weight decay applies to "all non bias or gain weights" (Radford et
al. 2018, section 4.1): to every matrix, including the embeddings, but to no bias and no norm. With Muon (`muon.py`), AdamW
is kept for embeddings, biases and norms, as Muon's authors recommend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from webtext.train.optimizer.muon import Muon
from webtext.train.settings import TrainSettings

BETAS = 0.9, 0.95  # Brown et al. 2020, appendix B


class Together(torch.optim.Optimizer):
    """Several optimizers of different parameters as one, with the groups and states of all; a step updates all."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        for part in parts:
            self.state.update(part.state)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None
        for part in self.parts:
            part.step()


def make_optimizer(
    parameters: Mapping[str, nn.Parameter],
    settings: TrainSettings,
    stored: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor,
) -> torch.optim.Optimizer:
    """Return a run's optimizer for parameters, by their names. Call `set_learning_rate` before every step.

    `stored` is that of an Engine.
    """
    chosen, decay = settings.optimizer, settings.optimizer.weight_decay
    hidden = {name: p for name, p in parameters.items() if p.dim() >= 2 and "embedding" not in name}
    by_muon = hidden if chosen.optimizer == "muon" else {}
    rest = [p for name, p in parameters.items() if name not in by_muon]
    groups = [
        {"params": [p for p in rest if p.dim() >= 2], "weight_decay": decay, "rate_ratio": 1.0},
        {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0, "rate_ratio": 1.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=BETAS, fused=True)
    for p in rest:
        moments = {kind: torch.zeros_like(p.detach()) for kind in ("exp_avg", "exp_avg_sq")}
        adamw.state[p] = {"step": torch.zeros((), device=p.device), **moments}
    if not by_muon:
        return adamw
    ratio = (chosen.muon_learning_rate or settings.learning_rate) / settings.learning_rate
    muon = Muon(by_muon, {"weight_decay": decay, "rate_ratio": ratio}, stored=stored)
    optimizer = Together(adamw, muon)
    set_learning_rate(optimizer, settings.learning_rate)
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set each group's learning rate to its `rate_ratio` times `rate`, which is AdamW's."""
    for group in optimizer.param_groups:
        group["lr"] = group["rate_ratio"] * rate


def optimizer_tensors(
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    stored: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor,
) -> dict[str, Tensor]:
    """Return the tensors of the optimizer's state, named "PARAMETER.KIND", so that the order of groups doesn't matter.

    Tensors shaped like their parameter go through `stored` (of an Engine).
    """
    return {
        f"{name}.{kind}": stored(name, tensor) if tensor.shape == parameter.shape else tensor
        for name, parameter in parameters.items()
        for kind, tensor in optimizer.state[parameter].items()
    }


NO_ZERO = 1e-6  # added to the norm, as torch.nn.utils.clip_grad_norm_ does


class Reading:
    """Numbers that a device is still computing, copied to the host after its work and waited for only when read."""

    def __init__(self, values: Tensor) -> None:
        self._values, self._copied = values, None
        if values.is_cuda:
            self._values = values.to("cpu", non_blocking=True)  # to pinned memory
            self._copied = torch.cuda.current_stream().record_event()

    def read(self) -> list[float]:
        if self._copied is not None:
            self._copied.synchronize()
        return [float(value) for value in self._values.tolist()]


def gradient_norm(model: nn.Module) -> Tensor:
    """Return the Euclidean norm of all gradients together, a scalar on their device."""
    return nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])


def is_fault(loss: Tensor, norm: Tensor, limits: tuple[float, float]) -> Tensor:
    """Return 1.0 if loss or norm is not finite or exceeds its limit, else 0.0: a float32 scalar on their device."""
    of_loss, of_norm = (min(limit, torch.finfo(x.dtype).max) for limit, x in zip(limits, (loss, norm), strict=True))
    return torch.where((loss.abs() <= of_loss) & (norm.abs() <= of_norm), 0.0, 1.0)


def update(
    optimizer: torch.optim.Optimizer, norm: Tensor, max_norm: float | None, fault: Tensor, share: Tensor | float = 1.0
) -> None:
    """Make one step of `optimizer` with gradients / `share` clipped to `max_norm`; if `fault` is 1, change nothing.

    `norm` is theirs after that division (`Engine.forward_backward`). Each part divides by `grad_scale` and obeys
    `found_inf` itself, as torch's fused optimizers do (the contract of torch.amp.GradScaler), so the host doesn't wait for
    the decision.
    """
    scale = (((norm + NO_ZERO) / (max_norm or torch.inf)).clamp(min=1.0) * share).float()
    parts: tuple[Any, ...] = getattr(optimizer, "parts", (optimizer,))
    for part in parts:
        part.grad_scale, part.found_inf = scale, fault
        part.step()
