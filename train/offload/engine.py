"""The Engine of an offloaded run: `OffloadedModel`, fitted to its device, with one optimizer per layer.

The optimizers are the run's (`optimizer.py`), so an update is the same. They step on the host while the device computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from webtext.train.data.windows import WindowRules, Windows, total_loss
from webtext.train.distributed import World
from webtext.train.engine import Engine
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.initialization import Values, initialize
from webtext.train.offload.host import Link
from webtext.train.offload.offloaded import ENDS, OffloadedModel
from webtext.train.optimizer.optimizer import Reading, Together, make_optimizer, update
from webtext.train.settings import TrainSettings

USED_RATIO = 0.95
"""Share of the memory that a run is fitted to: the allocator's blocks don't fill it without gaps."""
INPUTS_PER_MICROBATCH = 3
"""Tensors [b, t, c] in a backward pass: this layer's input, the one before's, and the gradient of the output."""


class OffloadedEngine(Engine):
    """The Engine of one process; several are `ParallelModel`'s. `model` has no values yet."""

    def __init__(
        self,
        model: GPT2,
        settings: TrainSettings,
        rules: WindowRules,
        device: torch.device,
        dtype: torch.dtype,
        values: Values,
    ) -> None:
        self.model, self.rules, self.device = model, rules, device
        microbatch, n = settings.accumulation(self.n_data)
        self.offloaded = OffloadedModel(model, Link(device), dtype, rules)
        self.offloaded.group = n
        initialize(model, values)
        self.parameters_changed()
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        if self.device.type == "cuda":
            tokens_bt = torch.zeros(microbatch, settings.context + 1, dtype=torch.long, device=self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            allowed = torch.cuda.get_per_process_memory_fraction(self.device)
            capacity = int(USED_RATIO * allowed * torch.cuda.get_device_properties(self.device).total_memory)
            fit(self.offloaded, tokens_bt, n, capacity, lambda: torch.cuda.max_memory_reserved(self.device))
        self._norms: dict[str, Tensor] = {}

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """Compute groups of microbatches layer after layer, waiting for a layer's update if it is still in progress."""
        batches = list(microbatches)
        self.share = self.rules.counted_share(torch.cat(batches)[:, :-1])
        return self.offloaded.forward_backward(batches) / self.share

    def make_optimizer(self, settings: TrainSettings) -> Optimizer:
        self.offloaded.on_gradients = self._on_gradients
        self._optimizers = layer_optimizers(self.parameters, settings)
        return Together(*self._optimizers.values())

    def gradient_norm(self) -> Tensor:
        """Return the norm as `nn.utils.clip_grad_norm_` computes it, on the host, where the gradients are."""
        norm: Tensor = torch.linalg.vector_norm(torch.stack([self._norms[name] for name in self.parameters]))
        return norm.to(self.device, non_blocking=True) / self.share

    def update(self, optimizer: Optimizer, max_norm: float | None, norm: Tensor, fault: Tensor) -> None:
        """Update on the host, layer by layer, while the next step's first layers are computed."""
        reading = Reading(torch.stack([norm, fault, self.share]))  # which the thread waits for
        self.offloaded.update(lambda layer: self._step(layer, max_norm, *map(torch.tensor, reading.read())))

    def parameters_changed(self) -> None:
        self.offloaded.wait()
        for layer in (ENDS, *range(self.model.config.n_layer)):
            self.offloaded.refresh(layer)

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        self.offloaded.wait()
        return tensor

    def total_loss(self, windows: Windows, batch_size: int) -> tuple[float, int]:
        return total_loss(self.offloaded, windows, batch_size, World(0, 1, self.device), rules=self.rules)

    def _on_gradients(self, layer: int) -> None:
        """Compute the norms of a layer's gradients, while the device computes earlier layers."""
        for name, parameter in self.parameters.items():
            if layer_of(name) == layer and parameter.grad is not None:
                self._norms[name] = torch.linalg.vector_norm(parameter.grad)

    def _step(self, layer: int, max_norm: float | None, norm: Tensor, fault: Tensor, share: Tensor) -> None:
        update(self._optimizers[layer], norm, max_norm, fault, share)
        self.offloaded.refresh(layer)


def fit(model: OffloadedModel, tokens_bt: torch.Tensor, n: int, capacity: int, peak_bytes: Callable[[], int]) -> None:
    """Set `model.group` so that n microbatches like `tokens_bt`, [b, t + 1], fit into `capacity` bytes.

    A layer that is loaded serves all of a group. A trial step, which sets gradients, measures the memory of one microbatch.
    Raises torch.OutOfMemoryError if that doesn't fit.
    """
    model.group = 1
    model.forward_backward([tokens_bt] * min(2, n))  # the second arrives while gradients leave
    more = INPUTS_PER_MICROBATCH * tokens_bt[:, 1:].numel() * model.model.config.n_embd * model.dtype.itemsize
    most = min(n, 1 + max(0, capacity - peak_bytes()) // more)
    model.group = math.ceil(n / math.ceil(n / most))


def layer_of(name: str) -> int:
    """Return the layer of a parameter, given its name; `ENDS` for those outside of layers."""
    kind, _, rest = name.partition(".")
    return int(rest.partition(".")[0]) if kind == "blocks" else ENDS


def layer_optimizers(parameters: Mapping[str, nn.Parameter], settings: TrainSettings) -> dict[int, Optimizer]:
    """Return a run's optimizer for each layer and for the `ENDS`, by its number."""
    of_layers: dict[int, dict[str, nn.Parameter]] = {}
    for name, parameter in parameters.items():
        of_layers.setdefault(layer_of(name), {})[name] = parameter
    return {layer: make_optimizer(own, settings) for layer, own in of_layers.items()}
