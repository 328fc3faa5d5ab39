"""The Engine of an offloaded run: `OffloadedModel`, fitted to its device, with one optimizer per layer.

The optimizers step on the host in turn while the device computes. They are the run's optimizer (`optimizer.py`), so an
update is the same. Their moments are stored like the parameters. A step of one layer is one call of torch's fused
kernel, which uses all threads of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from webtext.train.data.windows import Windows, total_loss
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.initialization import Values, initialize
from webtext.train.model.loss import MaskedLikelihood, WindowRules
from webtext.train.offload.device_memory import device_memory
from webtext.train.offload.fit import fit
from webtext.train.offload.host_memory import HostMemory
from webtext.train.offload.link import CudaLink, ThreadLink
from webtext.train.offload.offloaded import ENDS, OffloadedModel
from webtext.train.optimizer.optimizer import Together, make_optimizer
from webtext.train.optimizer.update import gradient_norm, update
from webtext.train.resilience.distributed import World
from webtext.train.settings import TrainSettings


class OffloadedEngine:
    """One process, or one of several replicas, each with its own device and host memory.

    `model` has no values yet; they are written into rows of pinned memory or of files on the host.
    """

    stages: Mapping[int, nn.Module] = MappingProxyType({})

    def __init__(
        self,
        model: GPT2,
        settings: TrainSettings,
        rules: WindowRules,
        world: World,
        dtype: torch.dtype,
        values: Values,
    ) -> None:
        self.model, self.rules, self.world, self.device = model, rules, world, world.device
        self.data_rank, self.n_data = world.rank, world.size
        device = world.device
        self.folder = None if settings.machine.offload_folder is None else Path(settings.machine.offload_folder)
        self.memory = device_memory(settings, device)
        link = CudaLink(device) if device.type == "cuda" else ThreadLink()
        self.offloaded = OffloadedModel(model, link, device, dtype=dtype, folder=self.folder, rules=rules)
        initialize(model, values)
        self.offloaded.refresh()
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        microbatch, accumulation = settings.accumulation(self.n_data)
        tokens_bt = torch.zeros(microbatch, settings.context + 1, dtype=torch.long, device=device)
        with self.memory.within():
            self.costs = fit(self.offloaded, tokens_bt, accumulation, self.memory)
        if world.size > 1:
            # A separate group, because a thread uses it; gloo, because gradients are on the host.
            group = distributed.new_group(backend="gloo")
            self.offloaded.share = partial(_average, group=group, n=world.size)

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """Compute groups of microbatches layer after layer, waiting for a layer's update if it is still in progress."""
        batches = list(microbatches)
        with self.memory.within():
            loss = self.offloaded.forward_backward(batches)
        share = torch.zeros((), device=self.device)
        for tokens_bt in batches:
            share += self.rules.counted_share(tokens_bt[:, :-1])
        share /= n_microbatches
        if self.n_data > 1:
            loss, share = self.world.sum(torch.stack([loss, share.to(loss.dtype)]).double()) / self.n_data
        return self.rules.mean_over_counted(loss, share, (p.grad for p in self.parameters.values()))

    def make_optimizer(self, settings: TrainSettings) -> Optimizer:
        """Return one optimizer that consists of one for each layer and one for the ends."""
        memory = HostMemory(folder=self.folder)
        self._optimizers = HostOptimizers(self.parameters, _layer_of, settings, memory)
        return self._optimizers.whole

    def gradient_norm(self) -> Tensor:
        """Return the norm as `nn.utils.clip_grad_norm_` computes it, on the host, where the gradients are."""
        return gradient_norm(self.model).to(self.device)

    def update(self, optimizer: Optimizer, max_norm: float | None, norm: Tensor, fault: Tensor) -> None:
        """Update on the host, layer by layer, while the next step's first layers are computed."""
        assert optimizer is self._optimizers.whole
        norm, fault = norm.cpu(), fault.cpu()
        self.offloaded.update(lambda layer: self._optimizers.step(layer, max_norm, norm, fault))

    def parameters_changed(self) -> None:
        """Refresh the copies of the parameters that steps compute with."""
        self.offloaded.refresh()

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """Return the tensor itself, after all updates."""
        self.offloaded.wait()
        return tensor

    def total_loss(self, windows: Windows, batch_size: int) -> tuple[float, int]:
        """Compute as in a step, each batch through all layers."""
        judge = MaskedLikelihood(self.offloaded, self.rules.eot_id) if self.rules.masks else self.offloaded
        with self.memory.within():
            return total_loss(judge, windows, batch_size, self.world)

    def full_model(self) -> GPT2:
        """Return the model on the host, after all updates: the CPU draws texts."""
        self.offloaded.wait()
        return self.model


def _average(row: Tensor, *, group: distributed.ProcessGroup, n: int) -> None:
    """Average a row of gradients over all processes, to the same bits in each."""
    distributed.all_reduce(row, group=group)
    row.div_(n)


def _layer_of(name: str) -> int:
    kind, _, rest = name.partition(".")
    return int(rest.partition(".")[0]) if kind == "blocks" else ENDS


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
