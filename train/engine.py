"""Engine: the part of a run that keeps the model's parameters and computes a step's gradients and held-out losses.

The trainer knows only this interface. `Engine` itself is the plain model in one process, `ParallelModel` (parallel/) is
split over several processes, and `OffloadedEngine` (offload/) keeps one process's model on the host.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from webtext.train.data.windows import WindowRules, Windows, total_loss
from webtext.train.distributed import World
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.precision import cast_parameters
from webtext.train.optimizer.optimizer import gradient_norm, make_optimizer, update
from webtext.train.settings import TrainSettings


class Engine:
    """A model of which this process has all or a part: here all of it, on `device`, and computed in `dtype`."""

    data_rank, n_data = 0, 1
    """Which of the shares of a batch this process reads, and their number. Processes sharing a model read the same one."""
    share: Tensor
    """The share of the last step's targets that count. Gradients are means over all targets until they are used."""

    def __init__(self, model: GPT2, rules: WindowRules, device: torch.device, dtype: torch.dtype) -> None:
        self.model, self.rules, self.device, self.dtype = model, rules, device, dtype
        self.home = device
        """Where the parameters are updated."""
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        """The parameters that this process updates, by their names in the complete model: shards of split ones, plain tensors."""

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """Set the parameters' `grad` and return the loss of a step, the same in all processes.

        The loss is the mean over the counted targets of all `microbatches` (windows [b, t + 1]) of all processes together,
        `grad` a mean over all targets, of which those are a `share`. Each microbatch is freed before the next one is read.
        """
        loss = share = torch.zeros((), device=self.device)
        with cast_parameters(self.model, self.dtype):
            for tokens_bt in microbatches:
                inputs_bt = tokens_bt[:, :-1]
                how = self.rules.documents(inputs_bt), self.rules.counted(inputs_bt)
                part = self.model.loss(inputs_bt, tokens_bt[:, 1:], *how) / n_microbatches
                part.backward()  # type: ignore[no-untyped-call]
                loss = loss + part.detach()
                share = share + self.rules.counted_share(inputs_bt)
        self.share = share / n_microbatches
        return loss / self.share

    def make_optimizer(self, settings: TrainSettings) -> Optimizer:
        """Return the parameters' optimizer, whose groups take the learning rate (`optimizer.set_learning_rate`)."""
        return make_optimizer(self.parameters, settings, self.stored)

    def gradient_norm(self) -> Tensor:
        """Return the Euclidean norm of the loss's complete gradient, a scalar, the same in all processes."""
        return gradient_norm(self.model) / self.share

    def update(self, optimizer: Optimizer, max_norm: float | None, norm: Tensor, fault: Tensor) -> None:
        """Begin `optimizer.update` of all parameters, which frees their gradients. Later calls wait for it."""
        norm, fault, share = (scalar.to(self.home) for scalar in (norm, fault, self.share))
        update(optimizer, norm, max_norm, fault, share)
        optimizer.zero_grad(set_to_none=True)

    def parameters_changed(self) -> None:
        """Recompute everything derived from the parameters; called after a checkpoint was read."""

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """Return `tensor`, shaped as the parameter `name` here, with its place in the complete tensor, for a checkpoint.

        Waits until updates that were begun are done.
        """
        return tensor

    def total_loss(self, windows: Windows, batch_size: int) -> tuple[float, int]:
        """Return the sum of -log p (nats) over the windows' scored tokens and their number, as in a step but uncompiled."""
        with torch.no_grad(), cast_parameters(self.model, self.dtype), torch.compiler.set_stance("force_eager"):
            return total_loss(self.model, windows, batch_size, World(0, 1, self.device), rules=self.rules)
