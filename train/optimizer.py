"""What updates the parameters: AdamW for all of them, or Muon for the hidden matrices and AdamW for the rest.

AdamW (Loshchilov & Hutter 2019) is torch's, fused. Weight decay applies to "all non bias or gain weights" (Radford et al.
2018, section 4.1), so to every matrix, the embeddings among them, and to no bias and no norm.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) is torch's too: it sets the singular values of the momentum, with
Nesterov's look ahead, near 1 by Newton-Schulz steps in bfloat16. Embeddings, biases and norms keep AdamW, as its authors
say. An update is scaled by 0.2 sqrt(max(rows, columns)), which gives it the size that AdamW's have, so that one learning
rate and one weight decay serve both (Liu et al. 2025, arXiv 2502.16982, section 2.2).

Muon needs the whole matrix and its whole gradient. Replicas have them and do the same work; where matrices are split over
processes it is refused (`parallel/refusal.py`). Query, key and value are matrices of their own, as it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from webtext.train.settings import TrainSettings


class Together(torch.optim.Optimizer):
    """Optimizers of different parameters as one: the groups and the states of all, a step of each."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        for part in parts:
            part.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters by their gradients."""
        assert closure is None
        for part in self.parts:
            part.step()


def make_optimizer(parameters: Mapping[str, nn.Parameter], settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimizer of a run for parameters, by their names; `set_learning_rate` comes before every step."""
    by_muon = {name for name, p in parameters.items() if p.dim() >= 2 and "embedding" not in name}
    hidden = [parameters[name] for name in parameters if name in by_muon]
    rest = [p for name, p in parameters.items() if settings.optimizer == "adamw" or name not in by_muon]
    groups = [
        {"params": [p for p in rest if p.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    adamw = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, fused=True)
    if settings.optimizer == "adamw" or not hidden:
        return adamw
    muon = torch.optim.Muon(
        hidden,
        lr=settings.muon_learning_rate or settings.learning_rate,
        weight_decay=settings.weight_decay,
        momentum=settings.muon_momentum,
        ns_steps=settings.newton_schulz_steps,
        adjust_lr_fn="match_rms_adamw",
    )
    return Together(adamw, muon)


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrainSettings, rate: float) -> None:
    """Make `rate` AdamW's, and Muon's the same share of its own highest."""
    for group in optimizer.param_groups:
        group["lr"] = rate
        if "ns_steps" in group and settings.muon_learning_rate is not None:
            group["lr"] = rate * (settings.muon_learning_rate / settings.learning_rate)


def optimizer_tensors(
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    stored: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor,
) -> dict[str, Tensor]:
    """The optimizer's state, each tensor itself, named "PARAMETER.KIND"; made of zeros where no update was made yet.

    By the parameter's name and not by its number: another order of the groups finds it again. What is shaped as its
    parameter goes through `stored` (of an Engine).
    """
    if not optimizer.state:
        _make_state(optimizer)
    return {
        f"{name}.{kind}": stored(name, tensor) if tensor.shape == parameter.shape else tensor
        for name, parameter in parameters.items()
        for kind, tensor in optimizer.state[parameter].items()
    }


def _make_state(optimizer: torch.optim.Optimizer) -> None:
    """By an update of zero gradients at rate 0, which changes no parameter."""
    rates = [group["lr"] for group in optimizer.param_groups]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
