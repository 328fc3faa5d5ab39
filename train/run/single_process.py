"""The engine of a run in one process: gradient accumulation over a step, and the loss of held-out windows."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from webtext.train.data.windows import Windows, total_loss
from webtext.train.model.compilation import as_it_stands
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.loss import MaskedLikelihood, TrainingLoss, WindowRules
from webtext.train.model.precision import cast_parameters
from webtext.train.optimizer.optimizer import make_optimizer
from webtext.train.optimizer.update import gradient_norm, update
from webtext.train.resilience.distributed import World
from webtext.train.settings import TrainSettings


class SingleProcessModel:
    """The Engine of a run of one process; `model` is on `device` and computes in `dtype`."""

    data_rank, n_data, updates_early = 0, 1, False

    def __init__(self, model: GPT2, rules: WindowRules, device: torch.device, dtype: torch.dtype) -> None:
        self.model, self.rules, self.device, self.dtype = model, rules, device, dtype
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        self._loss = TrainingLoss(model, rules)

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """Process one microbatch after another, and free each before the next is read."""
        loss, share = torch.zeros((2,), device=self.device)
        with cast_parameters(self.model, self.dtype):
            for tokens_bt in microbatches:
                part: Tensor = self._loss(tokens_bt[:, :-1], tokens_bt[:, 1:]) / n_microbatches
                part.backward()  # type: ignore[no-untyped-call]
                loss = loss + part.detach()
                share += self.rules.counted_share(tokens_bt[:, :-1])
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
        judge = MaskedLikelihood(self.model, self.rules.eot_id) if self.rules.masks else self.model
        self.model.eval()
        with torch.no_grad(), cast_parameters(self.model, self.dtype), as_it_stands():
            found = total_loss(judge, windows, batch_size, World(0, 1, self.device))
        self.model.train()
        return found
