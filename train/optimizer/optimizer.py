"""The optimizers: AdamW for all parameters, or Muon for the hidden matrices and AdamW for the rest.

AdamW (Loshchilov & Hutter 2019) is torch's, fused. Weight decay applies to "all non bias or gain weights" (Radford et
al. 2018, section 4.1): to every matrix, including the embeddings, but to no bias and no norm.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) is torch's too. It brings the singular values of the
momentum, with Nesterov look-ahead, close to 1 by Newton-Schulz steps in bfloat16. Embeddings, biases and norms keep
AdamW, as its authors recommend. An update is scaled by 0.2 sqrt(max(rows, columns)) to the size of AdamW's updates, so
that one learning rate and one weight decay serve both (Liu et al. 2025, arXiv 2502.16982, section 2.2).

Muon needs the entire matrix and its entire gradient. Replicas have them and repeat the same work; if matrices are split
over processes, Muon is rejected (`parallel/refusal.py`). Query, key and value are separate matrices, which suits Muon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from webtext.train.settings import TrainSettings


class Together(torch.optim.Optimizer):
    """Several optimizers of different parameters as one, with the groups and states of all; a step updates all."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        for part in parts:
            part.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters from their gradients."""
        assert closure is None
        for part in self.parts:
            part.step()


def make_optimizer(parameters: Mapping[str, nn.Parameter], settings: TrainSettings) -> torch.optim.Optimizer:
    """Return a run's optimizer for parameters, by their names. Call `set_learning_rate` before every step."""
    by_muon = {name for name, p in parameters.items() if p.dim() >= 2 and "embedding" not in name}
    hidden = [parameters[name] for name in parameters if name in by_muon]
    rest = [p for name, p in parameters.items() if settings.optimizer.optimizer == "adamw" or name not in by_muon]
    groups = [
        {"params": [p for p in rest if p.dim() >= 2], "weight_decay": settings.optimizer.weight_decay},
        {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (settings.optimizer.beta1, settings.optimizer.beta2)
    adamw = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, fused=True)
    if settings.optimizer.optimizer == "adamw" or not hidden:
        return adamw
    muon = torch.optim.Muon(
        hidden,
        lr=settings.optimizer.muon_learning_rate or settings.learning_rate,
        weight_decay=settings.optimizer.weight_decay,
        momentum=settings.optimizer.muon_momentum,
        ns_steps=settings.optimizer.newton_schulz_steps,
        adjust_lr_fn="match_rms_adamw",
    )
    return Together(adamw, muon)


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrainSettings, rate: float) -> None:
    """Set AdamW's learning rate to `rate`, and Muon's to the same share of its own highest rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate
        if "ns_steps" in group and settings.optimizer.muon_learning_rate is not None:
            group["lr"] = rate * (settings.optimizer.muon_learning_rate / settings.learning_rate)


def optimizer_tensors(
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    stored: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor,
) -> dict[str, Tensor]:
    """Return the tensors of the optimizer's state, named "PARAMETER.KIND". They are zeros before the first update.

    Names rather than numbers make them independent of the order of the groups. Tensors shaped like their parameter go
    through `stored` (of an Engine).
    """
    if not optimizer.state:
        _make_state(optimizer)
    return {
        f"{name}.{kind}": stored(name, tensor) if tensor.shape == parameter.shape else tensor
        for name, parameter in parameters.items()
        for kind, tensor in optimizer.state[parameter].items()
    }


def _make_state(optimizer: torch.optim.Optimizer) -> None:
    """Create the state by an update with zero gradients at rate 0, which changes no parameter."""
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
