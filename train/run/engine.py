"""Engine: the part of a run that keeps the model's parameters and computes a step's gradients and held-out losses.

`SingleProcessModel` is the plain model in one process, `ParallelModel` (parallel/) a model split over several processes,
and `OffloadedEngine` (offload/) one that is kept on the host. `make_engine` chooses; the trainer knows only this
interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from webtext.train.data.sources import Source
from webtext.train.data.windows import WindowRules, Windows, total_loss
from webtext.train.distributed import World
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.initialization import Values, initialize
from webtext.train.model.precision import cast_parameters
from webtext.train.optimizer.optimizer import gradient_norm, make_optimizer, update
from webtext.train.settings import TrainSettings


class Engine(Protocol):
    """A model, of which this process has all or a part."""

    @property
    def data_rank(self) -> int:
        """Which of the `n_data` shares of a batch this process reads. Processes sharing a model read the same one."""

    @property
    def n_data(self) -> int:
        """Number of shares into which a batch is divided."""

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The parameters that this process updates, by their names in the complete model.

        They are plain tensors; of a split parameter, this process's piece.
        """

    @property
    def updates_early(self) -> bool:
        """Whether `forward_backward` updates each parameter once its gradient is complete, and `update` does nothing."""

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """Set the parameters' `grad` to the gradient of a step and return its loss, the same in all processes.

        Both are means over the counted targets of all `microbatches` (windows [b, t + 1]) of all processes together.
        """

    def make_optimizer(self, settings: TrainSettings) -> Optimizer:
        """Return the parameters' optimizer, whose groups take the learning rate (`optimizer.set_learning_rate`)."""

    def gradient_norm(self) -> Tensor:
        """Return the Euclidean norm of the complete model's gradient, a scalar, the same in all processes."""

    def update(self, optimizer: Optimizer, max_norm: float | None, norm: Tensor, fault: Tensor) -> None:
        """Begin `update.update` of all parameters, which frees their gradients. Later calls wait for it."""

    def parameters_changed(self) -> None:
        """Recompute what is derived from the parameters; called after a checkpoint was read."""

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """Return `tensor`, shaped as the parameter `name` here, in the form that a checkpoint stores.

        That form knows its place in the complete tensor. Waits until updates that were begun are done.
        """

    def total_loss(self, windows: Windows, batch_size: int) -> tuple[float, int]:
        """Return the sum of -log p in nats over the windows' scored tokens and their number, equal in all processes."""


def make_engine(
    model: GPT2, settings: TrainSettings, rules: WindowRules, world: World, dtype: torch.dtype, values: Values
) -> Engine:
    """Return the engine for `model`, which gets its `values` there: this process trains all of it, or a part of it."""
    if settings.machine.offload is not None:
        from webtext.train.offload.engine import OffloadedEngine

        return OffloadedEngine(model, settings, rules, world, dtype, values)
    if world.size == 1:
        initialize(model.to_empty(device=world.device), values)
        return SingleProcessModel(model, rules, world.device, dtype)
    from webtext.train.parallel.parallelize import ParallelModel

    shape, schedule = settings.machine.mesh_shape(world.size), settings.machine.pipeline_schedule
    return ParallelModel(model, shape, world.device, rules=rules, dtype=dtype, schedule=schedule, values=values)


class HeldOut:
    """`eval_windows` held-out windows of each source. Each source weighs as much as in training."""

    def __init__(self, sources: Sequence[Source], parts: Sequence[int], settings: TrainSettings) -> None:
        self._windows: dict[str, Windows] = {}
        self._parts: dict[str, int] = {}
        for source, part in zip(sources, parts, strict=True):
            held = source.validation
            context, limit = settings.context, settings.monitor.eval_windows
            windows = Windows(held.streams(), context=context, stride=None, limit=limit)
            if len(windows):
                self._windows[source.name], self._parts[source.name] = windows, part

    def losses(self, engine: Engine, batch_size: int) -> dict[str, float]:
        """Return the mean loss per token of each source with held-out windows, the same in all processes."""
        totals = {name: engine.total_loss(windows, batch_size) for name, windows in self._windows.items()}
        return {name: loss / n_tokens for name, (loss, n_tokens) in totals.items()}

    def mean(self, losses: dict[str, float]) -> float:
        """Return the mean of the sources' losses, weighted as in the mixture."""
        return sum(self._parts[name] * loss for name, loss in losses.items()) / sum(self._parts.values())


class SingleProcessModel:
    """The Engine of a run of one process; `model` is on `device` and computes in `dtype`."""

    data_rank, n_data, updates_early = 0, 1, False

    def __init__(self, model: GPT2, rules: WindowRules, device: torch.device, dtype: torch.dtype) -> None:
        self.model, self.rules, self.device, self.dtype = model, rules, device, dtype
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """Process one microbatch after another, and free each before the next is read."""
        loss, share = torch.zeros((2,), device=self.device)
        with cast_parameters(self.model, self.dtype):
            for tokens_bt in microbatches:
                inputs_bt = tokens_bt[:, :-1]
                how = self.rules.documents(inputs_bt), self.rules.counted(inputs_bt)
                part = self.model.loss(inputs_bt, tokens_bt[:, 1:], *how) / n_microbatches
                part.backward()  # type: ignore[no-untyped-call]
                loss = loss + part.detach()
                share += self.rules.counted_share(inputs_bt)
        return self.rules.mean_over_counted(loss, share / n_microbatches, (p.grad for p in self.parameters.values()))

    def make_optimizer(self, settings: TrainSettings) -> Optimizer:
        return make_optimizer(self.parameters, settings)

    def gradient_norm(self) -> Tensor:
        return gradient_norm(self.model)

    def update(self, optimizer: Optimizer, max_norm: float | None, norm: Tensor, fault: Tensor) -> None:
        update(optimizer, norm, max_norm, fault)
        optimizer.zero_grad(set_to_none=True)

    def parameters_changed(self) -> None:
        """Do nothing, because nothing is derived from the parameters."""

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """Return the tensor itself, which is complete."""
        return tensor

    def total_loss(self, windows: Windows, batch_size: int) -> tuple[float, int]:
        """Compute the loss as a step does, but uncompiled."""
        self.model.eval()
        with torch.no_grad(), cast_parameters(self.model, self.dtype), torch.compiler.set_stance("force_eager"):
            found = total_loss(self.model, windows, batch_size, World(0, 1, self.device), rules=self.rules)
        self.model.train()
        return found
