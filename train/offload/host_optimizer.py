"""One optimizer for each layer and one for the ends, which step on the host in turn while the device computes.

They are the run's optimizer (`optimizer.py`), so an update is the same. Their moments are stored like the parameters. A
step of one layer is one call of torch's fused kernel, which uses all threads of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from webtext.train.offload.host_memory import HostMemory
from webtext.train.optimizer.optimizer import Together, make_optimizer
from webtext.train.optimizer.update import update
from webtext.train.settings import TrainSettings


class HostOptimizers:
    """`whole` has all groups and states, like a run's single optimizer; `step` updates the parameters of one layer.

    `layer_of` returns the layer of a parameter, given its name; -1 for the ends.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        layer_of: Callable[[str], int],
        settings: TrainSettings,
        memory: HostMemory,
    ) -> None:
        of_layers: dict[int, dict[str, nn.Parameter]] = {}
        for name, parameter in parameters.items():
            of_layers.setdefault(layer_of(name), {})[name] = parameter
        self._of_layer = {layer: _parts(make_optimizer(own, settings)) for layer, own in of_layers.items()}
        self.whole = Together(*(part for parts in self._of_layer.values() for part in parts))
        for part in self.whole.parts:
            _begin_at_zero(part, memory)

    def step(self, layer: int, max_norm: float | None, norm: Tensor, fault: Tensor) -> None:
        """Update the parameters of a layer by their gradients, like `update.update`."""
        for part in self._of_layer[layer]:
            update(part, norm, max_norm, fault)


def _parts(optimizer: torch.optim.Optimizer) -> tuple[torch.optim.Optimizer, ...]:
    return optimizer.parts if isinstance(optimizer, Together) else (optimizer,)


def _begin_at_zero(optimizer: torch.optim.Optimizer, memory: HostMemory) -> None:
    """Allocate in `memory` the state that torch would make at the first step."""
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
