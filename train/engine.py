"""What a run trains by: whoever holds the model's parameters and makes a step's gradients.

`WholeModel` is the plain model in one process, `ParallelModel` (parallel/) a model spread over several, `OffloadedEngine`
(offload/) one that lies on the host. `make_engine` chooses; the trainer knows this interface alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from webtext.train.distributed import World
from webtext.train.evaluate.windows import Windows
from webtext.train.initialization import initialize
from webtext.train.loss import WindowRules
from webtext.train.model import GPT2
from webtext.train.settings import TrainSettings
from webtext.train.whole import WholeModel


class Engine(Protocol):
    """Holds a model of which this process has all or a part."""

    @property
    def data_rank(self) -> int:
        """Which of the `n_data` shares of a batch this process reads; several read the same where they share a model."""

    @property
    def n_data(self) -> int:
        """Shares into which a batch is divided."""

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """What this process updates, under the names in the whole model: plain tensors, of a split parameter its piece."""

    @property
    def stages(self) -> Mapping[int, nn.Module]:
        """Of one process among several: the modules that its forward passes call, by their place in the model."""

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """Set the parameters' `grad` to the gradient of a step; returns its loss, the same in all processes.

        Both are means over the counted targets of all `microbatches`, windows [b, t + 1], of all processes together.
        """

    def make_optimizer(self, settings: TrainSettings) -> Optimizer:
        """What updates the parameters; its groups take the learning rate (`optimizer.set_learning_rate`)."""

    def gradient_norm(self) -> Tensor:
        """The Euclidean norm of the whole model's gradient, a scalar, the same in all processes."""

    def update(self, optimizer: Optimizer, max_norm: float | None, norm: Tensor, fault: Tensor) -> None:
        """Begin `update.update` of all parameters, whose gradients are then gone; all that is asked for next waits for it."""

    def parameters_changed(self) -> None:
        """Follows the reading of a checkpoint: what is derived from the parameters is made anew."""

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """`tensor`, shaped as the parameter `name` here, as a checkpoint takes it: it knows its place in the whole.

        Updates that were begun are over.
        """

    def total_loss(self, windows: Windows, batch_size: int) -> tuple[float, int]:
        """Sum of -log p in nats over the windows' scored tokens, and how many they are; the same in all processes."""

    def whole_model(self) -> GPT2 | None:
        """The model itself, to draw texts from; None where no process holds all of it."""


def make_engine(model: GPT2, settings: TrainSettings, rules: WindowRules, world: World, dtype: torch.dtype) -> Engine:
    """What trains `model`, which has no values yet: this process alone, or all of the run's, each a part of it."""
    if settings.offload is not None:
        from webtext.train.offload.engine import OffloadedEngine

        return OffloadedEngine(model, settings, rules, world, dtype)
    if world.size == 1:
        initialize(model.to_empty(device=world.device), model.config, settings.seed)
        return WholeModel(model, rules, world.device, dtype)
    from webtext.train.parallel.parallelize import ParallelModel

    shape, schedule = settings.mesh_shape(world.size), settings.pipeline_schedule
    return ParallelModel(
        model,
        shape,
        world.device,
        rules=rules,
        dtype=dtype,
        schedule=schedule,
        seed=settings.seed,
        advance=world.advance,
    )
