"""The Engine of a run whose model lies on the host: `OffloadedModel`, fitted to its device, with an optimizer a layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from webtext.train.distributed import World
from webtext.train.evaluate.perplexity import total_loss
from webtext.train.evaluate.windows import Windows
from webtext.train.initialization import initialize
from webtext.train.loss import MaskedLikelihood, WindowRules
from webtext.train.model import GPT2
from webtext.train.offload.device_memory import device_memory
from webtext.train.offload.fit import fit
from webtext.train.offload.host_memory import HostMemory
from webtext.train.offload.host_optimizer import HostOptimizers
from webtext.train.offload.link import CudaLink, ThreadLink
from webtext.train.offload.offloaded import ENDS, OffloadedModel
from webtext.train.settings import TrainSettings
from webtext.train.update import gradient_norm


class OffloadedEngine:
    """One process, or one of several replicas, each with a device and a host's memory of its own.

    `model`, which has no values yet, gets them on the host, as rows of pinned memory or of files.
    """

    stages: Mapping[int, nn.Module] = MappingProxyType({})

    def __init__(
        self, model: GPT2, settings: TrainSettings, rules: WindowRules, world: World, dtype: torch.dtype
    ) -> None:
        self.model, self.rules, self.world, self.device = model, rules, world, world.device
        self.data_rank, self.n_data = world.rank, world.size
        device = world.device
        self.folder = None if settings.offload_folder is None else Path(settings.offload_folder)
        self.memory = device_memory(settings, device)
        link = CudaLink(device) if device.type == "cuda" else ThreadLink()
        self.offloaded = OffloadedModel(model, link, device, dtype=dtype, folder=self.folder, rules=rules)
        initialize(model, model.config, settings.seed)
        self.offloaded.refresh()
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        microbatch, accumulation = settings.accumulation(self.n_data)
        tokens_bt = torch.zeros(microbatch, settings.context + 1, dtype=torch.long, device=device)
        with self.memory.within():
            self.costs = fit(self.offloaded, tokens_bt, accumulation, self.memory)
        if world.size > 1:
            # Of its own, as it is used by a thread; gloo, as gradients lie on the host.
            group = distributed.new_group(backend="gloo")
            self.offloaded.share = partial(_average, group=group, n=world.size)

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """In groups of microbatches, layer after layer; parameters whose update is under way are waited for one by one."""
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
        """One for each layer and one for the ends, as one to those who look at it."""
        memory = HostMemory(folder=self.folder)
        self._optimizers = HostOptimizers(self.parameters, _layer_of, settings, memory)
        return self._optimizers.whole

    def gradient_norm(self) -> Tensor:
        """As `nn.utils.clip_grad_norm_` takes it, on the host, where the gradients are."""
        return gradient_norm(self.model).to(self.device)

    def update(self, optimizer: Optimizer, max_norm: float | None, norm: Tensor, fault: Tensor) -> None:
        """On the host, layer by layer, while the next step's first layers are computed."""
        assert optimizer is self._optimizers.whole
        norm, fault = norm.cpu(), fault.cpu()
        self.offloaded.update(lambda layer: self._optimizers.step(layer, max_norm, norm, fault))

    def parameters_changed(self) -> None:
        """Make the copies anew that are computed with."""
        self.offloaded.refresh()

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor itself, where all updates are over."""
        self.offloaded.wait()
        return tensor

    def total_loss(self, windows: Windows, batch_size: int) -> tuple[float, int]:
        """Computed as a step computes, a batch through all layers after another."""
        judge = MaskedLikelihood(self.offloaded, self.rules.eot_id) if self.rules.masks else self.offloaded
        with self.memory.within():
            return total_loss(judge, windows, batch_size, self.world)

    def whole_model(self) -> GPT2:
        """The model on the host, where all updates are over: texts are drawn by the CPU."""
        self.offloaded.wait()
        return self.model


def _average(row: Tensor, *, group: distributed.ProcessGroup, n: int) -> None:
    """Make a row of gradients the mean of all processes', the same bits in each."""
    distributed.all_reduce(row, group=group)
    row.div_(n)


def _layer_of(name: str) -> int:
    kind, _, rest = name.partition(".")
    return int(rest.partition(".")[0]) if kind == "blocks" else ENDS
