"""The ends of a model: embeddings before the first layer, and norm and output layer after the last."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from webtext.train.model.cross_entropy import token_losses
from webtext.train.model.gpt2 import GPT2
from webtext.train.shape import GPT2Config

NAMES = ("token_embedding", "position_embedding", "final_norm")


class Ends(GPT2):
    """A model without its layers and without memory, for `functional_call` with the parameters of the modules NAMES."""

    def __init__(self, config: GPT2Config) -> None:
        with torch.device("meta"):
            super().__init__(dataclasses.replace(config, n_layer=1))

    def forward(self, compute: Callable[..., Tensor], *arguments: Tensor | None) -> Tensor:  # type: ignore[override]
        return compute(*arguments)

    def training_loss(self, x_btc: Tensor, targets_bt: Tensor, counted_bt: Tensor | None) -> Tensor:
        """Return the mean loss of the last layer's output, as in `TrainingLoss`; a scalar."""
        loss = self.mean_loss(self.final_norm(x_btc), targets_bt, counted_bt)
        return loss if counted_bt is None else loss * counted_bt.float().mean()

    def token_losses(self, x_btc: Tensor, targets_bt: Tensor) -> Tensor:
        """Return the loss of each of the last targets, [b, n] like `targets_bt`."""
        hidden_nc = self.final_norm(x_btc)[:, -targets_bt.shape[1] :].flatten(0, 1)
        losses_n = token_losses(hidden_nc, self.token_embedding.weight, targets_bt.flatten(), self.vocab_size)
        return losses_n.view(targets_bt.shape)
