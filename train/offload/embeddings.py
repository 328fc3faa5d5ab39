"""Embeddings before the first layer, and norm and output layer after the last, as a module without memory."""

from __future__ import annotations

import dataclasses
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from webtext.train.model.cross_entropy import linear_cross_entropy, token_losses
from webtext.train.model.gpt2 import GPT2
from webtext.train.shape import GPT2Config

NAMES = ("token_embedding", "position_embedding", "final_norm")


class Embeddings(nn.Module):
    """A model's parts outside its layers. Methods take `parameters`: those of the modules `NAMES`, by name."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        with torch.device("meta"):
            self.model = GPT2(dataclasses.replace(config, n_layer=1))

    def forward(self, name: str, *arguments: Tensor | int | None) -> Tensor:
        return cast(Tensor, getattr(self, f"_{name}")(*arguments))

    def embed(self, parameters: dict[str, Tensor], tokens_bt: Tensor) -> Tensor:
        """Return the first layer's input, [b, t, c]."""
        return self._call(parameters, "embed", tokens_bt)

    def loss(
        self, parameters: dict[str, Tensor], x_btc: Tensor, targets_bt: Tensor, counted_bt: Tensor | None
    ) -> Tensor:
        """Return the mean loss of the last layer's output, as in `TrainingLoss`; a scalar."""
        return self._call(parameters, "loss", x_btc, targets_bt, counted_bt)

    def token_losses(self, parameters: dict[str, Tensor], x_btc: Tensor, targets_bt: Tensor) -> Tensor:
        """Return the loss of each of the last targets, [b, n] like `targets_bt`."""
        return self._call(parameters, "token_losses", x_btc, targets_bt)

    def _call(self, parameters: dict[str, Tensor], name: str, *arguments: Tensor | None) -> Tensor:
        own = {f"model.{key}": tensor for key, tensor in parameters.items()}
        return cast(Tensor, functional_call(self, own, (name, *arguments)))

    def _embed(self, tokens_bt: Tensor) -> Tensor:
        return self.model.embed(tokens_bt)

    def _loss(self, x_btc: Tensor, targets_bt: Tensor, counted_bt: Tensor | None) -> Tensor:
        hidden_nc = self.model.final_norm(x_btc).flatten(0, 1)
        counted_n = None if counted_bt is None else counted_bt.flatten()
        weight_vc, vocab_size = self.model.token_embedding.weight, self.model.config.vocab_size
        loss = linear_cross_entropy(hidden_nc, weight_vc, targets_bt.flatten(), vocab_size, counted_n)
        return loss if counted_bt is None else loss * counted_bt.float().mean()

    def _token_losses(self, x_btc: Tensor, targets_bt: Tensor) -> Tensor:
        hidden_nc = self.model.final_norm(x_btc)[:, -targets_bt.shape[1] :].flatten(0, 1)
        weight_vc, vocab_size = self.model.token_embedding.weight, self.model.config.vocab_size
        return token_losses(hidden_nc, weight_vc, targets_bt.flatten(), vocab_size).view(targets_bt.shape)
