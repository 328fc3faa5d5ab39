"""An optimizer for each layer and one for the ends, which step on the host one after another beside the device's computing.

They are the run's own (`optimizer.py`), so an update is the same; their moments lie where the parameters do. A step of one
layer is a call of torch's fused kernel, all threads of torch together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from webtext.train.offload.host_memory import HostMemory
from webtext.train.optimizer import Together, make_optimizer, set_learning_rate
from webtext.train.settings import TrainSettings
from webtext.train.update import update


class HostOptimizers:
    """`whole` has all groups and states under the names that checkpoints know; `step` updates one of `modules`."""

    def __init__(self, modules: Sequence[nn.Module], settings: TrainSettings, memory: HostMemory) -> None:
        self._settings = settings
        self._of_module = [_parts(make_optimizer(module, settings)) for module in modules]
        self.whole = Together(*(part for parts in self._of_module for part in parts))
        for parts in self._of_module:
            for part in parts:
                _begin_at_zero(part, memory)

    def step(self, i: int, rate: float, norm: Tensor, fault: Tensor) -> None:
        """Update module `i` by its gradients, at this learning rate; as `update.update`."""
        for part in self._of_module[i]:
            set_learning_rate(part, self._settings, rate)
            update(part, norm, self._settings.max_grad_norm, fault)


def _parts(optimizer: torch.optim.Optimizer) -> tuple[torch.optim.Optimizer, ...]:
    return optimizer.parts if isinstance(optimizer, Together) else (optimizer,)


def _begin_at_zero(optimizer: torch.optim.Optimizer, memory: HostMemory) -> None:
    """Make the state that torch would make at the first step, in `memory`."""
    is_muon = isinstance(optimizer, torch.optim.Muon)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    sizes = [p.numel() for p in parameters]
    for kind in ("momentum_buffer",) if is_muon else ("exp_avg", "exp_avg_sq"):
        flat = memory.zeros((sum(sizes),), parameters[0].dtype)
        for parameter, moments in zip(parameters, torch.split(flat, sizes), strict=True):
            optimizer.state[parameter][kind] = moments.view(parameter.shape)
    if not is_muon:
        for parameter in parameters:
            optimizer.state[parameter]["step"] = torch.zeros(())
