"""AdamW (Loshchilov & Hutter 2019), fused, and its state as named tensors for a checkpoint.

Weight decay applies to "all non bias or gain weights" (Radford et al. 2018, section 4.1), so to every matrix, the
embeddings among them, and to no bias and no norm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from webtext.train.settings import TrainSettings

_STATE = ("step", "exp_avg", "exp_avg_sq")


def make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """The optimizer of a run; the learning rate is set at every step."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, fused=True)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state, each tensor named "PARAMETER.KIND"."""
    return {
        f"{name}.{kind}": optimizer.state[parameter][kind].detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        for kind in _STATE
    }


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`; the learning rate is no part of it."""
    for name, parameter in model.named_parameters():
        state = {kind: tensors[f"{name}.{kind}"].to(parameter.device).clone() for kind in _STATE}
        optimizer.state[parameter] = state
