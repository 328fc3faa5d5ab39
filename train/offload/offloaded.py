"""A training step with only a moving window of layers on the device (STRONGHOLD, Sun et al. 2022).

    host: parameters, gradients, moments, each layer's inputs     device: parameters of two layers
                 ── load, one layer ahead ──►
                 ◄── store gradients and each layer's inputs ──

Each layer is computed for all microbatches of a group while it is loaded, so a step moves it twice, however many
microbatches it has. Nothing of a layer remains on the device: in the backward pass it is computed again from its inputs
(Chen et al. 2016), with two modules as the templates of all layers (MegaTrain, arXiv 2604.05091). So memory on the device
doesn't depend on the number of layers. The optimizer steps on the host, layer by layer, while the device computes.

The host queues a layer's computing before it asks for the next layer, whose update it may have to wait for. The load
itself waits only until the row that it fills is free, so it is made while the layer is computed.

With a group of 1 gradients are summed in the order of the plain run, to the same bits. Otherwise the shared embedding
gets its two parts group by group. Shape suffixes as in `gpt2.py`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from webtext.train.data.windows import WindowRules
from webtext.train.model.gpt2 import GPT2, document_mask
from webtext.train.offload.host import Event, GradientRows, HostLayers, Link, MovingWindow, OnGradients

if TYPE_CHECKING:
    from webtext.train.model.attention import Mask

NAMES = ("token_embedding", "position_embedding", "final_norm")  # before the first layer and after the last
ENDS = -1
"""Layer number of the ends: embeddings and final norm, which have one row."""


class OffloadedModel:
    """A model on the host, computed on the device of `link`; a step sets the parameters' `grad`."""

    group = 1
    """Microbatches for which a layer is computed while it is loaded."""
    on_gradients: OnGradients | None = None
    """Called for each layer of a step, always in the same order."""

    def __init__(self, model: GPT2, link: Link, dtype: torch.dtype, rules: WindowRules) -> None:
        self.model, self.dtype, self.rules, self._link = model, dtype, rules, link
        with torch.device("meta"):
            self._template = template = GPT2(dataclasses.replace(model.config, n_layer=2))
        template.is_compiled = model.is_compiled  # the loss; layers run as they are
        template.through_blocks = self._through_layers  # type: ignore[method-assign, assignment]
        self.layers = HostLayers(list(model.blocks), dtype, link)
        self._window = MovingWindow(template.blocks, self.layers, link, self.wait)
        ends, on_device = (nn.ModuleDict({name: getattr(one, name) for name in NAMES}) for one in (model, template))
        self.ends = HostLayers([ends], dtype, link)
        self._ends_row = self.ends.on_device(on_device, link)
        self._ends_parameters = list(on_device.parameters())
        self._gradients = GradientRows(self.layers, link, dtype, n_rows=2)
        self._ends_gradients = GradientRows(self.ends, link, dtype, n_rows=1)
        self._updates: dict[int, Future[None]] = {}
        self._inputs = torch.empty(0)

    def forward_backward(self, batches: Sequence[Tensor]) -> Tensor:
        """Set the gradients of a step's microbatches, [b, t + 1] each; return their mean loss."""
        losses: list[Tensor] = []
        for start in range(0, len(batches), self.group):
            end = start + self.group
            losses += self._sweep(batches[start:end], len(batches), adds=start > 0, ends=end >= len(batches))
        self._gradients.settle()
        self._ends_gradients.settle()
        return cast(Tensor, sum(losses))  # in the order of the plain run

    def log_likelihood(
        self, tokens_bt: Tensor, documents_bt: Tensor | None = None, *, last: int | None = None
    ) -> Tensor:
        """Like `GPT2.log_likelihood`, layer by layer for the complete batch."""
        self._begin()
        return self._template.log_likelihood(tokens_bt, documents_bt, last=last)

    def _through_layers(self, x_btc: Tensor, _: None, mask_b1tt: Mask | None) -> Tensor:
        """Return the output of the last layer, [b, t, c]: `GPT2.through_blocks` of the model on the host."""
        for layer in range(self.layers.n_layers):
            with self._window.module(layer) as block:
                x_btc = block(x_btc, None, mask_b1tt)
            self._window.ask_for(layer + 1)
        return x_btc

    def update(self, step: Callable[[int], None]) -> None:
        """Start `step(-1)` for the ends and `step(i)` for each layer i on the host; a layer's next load waits."""
        for layer in (ENDS, *range(self.layers.n_layers)):
            self._updates[layer] = self._link.host.submit(step, layer)

    def wait(self, *layers: int) -> None:
        """Wait until the host has updated these layers, or all."""
        for layer in self._updates.keys() & layers if layers else self._updates:
            self._updates[layer].result()

    def refresh(self, layer: int) -> None:
        """Use parameters of a layer, or of the ends, that were changed on the host."""
        (self.ends if layer == ENDS else self.layers).refresh(layer)

    def _sweep(self, batches: Sequence[Tensor], n_all: int, *, adds: bool, ends: bool) -> list[Tensor]:
        """Run a group of microbatches forward and backward through all layers; return their parts of the mean loss."""
        inputs_bt = [tokens_bt[:, :-1] for tokens_bt in batches]
        shape = (self.layers.n_layers, self.group, *inputs_bt[0].shape, self.model.config.n_embd)
        if self._inputs.shape != shape:
            self._inputs = self._link.host_zeros(shape, self.dtype)
        self._begin()
        template, parameters, sums = self._template, self._ends_parameters, self._ends_gradients.begin()
        x = self._forward(inputs_bt)
        losses = []
        for i, tokens_bt in enumerate(batches):
            x_btc, counted_bt = x[i].requires_grad_(), self.rules.counted(inputs_bt[i])
            loss = template.mean_loss(template.final_norm(x_btc), tokens_bt[:, 1:], counted_bt) / n_all
            losses.append(loss.detach())
            x[i] = _add_gradients(loss, None, x_btc, parameters, sums)
        how: dict[str, Any] = {"adds": adds, "then": self.on_gradients if ends else None}
        self._backward(x, inputs_bt, how)
        for i, tokens_bt in enumerate(inputs_bt):
            _add_gradients(template.embed(tokens_bt), x[i], None, parameters, sums)
        self._ends_gradients.send(ENDS, **how)
        return losses

    @torch.no_grad()
    def _forward(self, inputs_bt: Sequence[Tensor]) -> list[Tensor]:
        """Compute from tokens through all layers, storing each layer's inputs on the host."""
        leaving: deque[tuple[Event, Tensor]] = deque()
        x = [self._template.embed(tokens_bt) for tokens_bt in inputs_bt]
        for layer in range(self.layers.n_layers):
            with self._window.module(layer) as block:
                for i, x_btc in enumerate(x):
                    leaving.append((self._link.store(self._inputs[layer, i], x_btc), x_btc))
                    x[i] = self._layer(block, x_btc, inputs_bt[i])
                    if len(leaving) > len(x):
                        leaving[0][0].wait()
                        leaving.popleft()  # after the wait, because its memory is used again
            self._window.ask_for(layer + 1)
        for event, _ in leaving:
            event.wait()
        return x

    def _backward(self, slopes: list[Tensor], inputs_bt: Sequence[Tensor], how: dict[str, Any]) -> None:
        """Go back through all layers, updating `slopes` in place; each layer's gradients go to the host."""
        coming = self._load_inputs(self.layers.n_layers - 1, slopes)
        for layer in reversed(range(self.layers.n_layers)):
            inputs, coming = coming, self._load_inputs(layer - 1, slopes)
            with self._window.module(layer) as block:
                sums = self._gradients.begin()
                for i, (event, x_btc) in enumerate(inputs):
                    event.wait()
                    y_btc = self._layer(block, x_btc.requires_grad_(), inputs_bt[i])
                    slopes[i] = _add_gradients(y_btc, slopes[i], x_btc, block.parameters(), sums)
            self._window.ask_for(layer - 1)
            self._gradients.send(layer, **how)

    def _layer(self, block: nn.Module, x_btc: Tensor, tokens_bt: Tensor) -> Tensor:
        """Return the output of a layer for the input tokens, [b, t, c]."""
        documents_bt = self.rules.documents(tokens_bt)
        mask_b1tt = None if documents_bt is None else document_mask(documents_bt, x_btc.dtype)
        return cast(Tensor, block(x_btc, None, mask_b1tt))

    def _begin(self) -> None:
        """Load the ends and the first layer."""
        self.wait(ENDS)
        arrived = self._link.load(self._ends_row, self.ends.copies[ENDS], self._link.now())
        self._window.begin()
        arrived.wait()

    def _load_inputs(self, layer: int, like: Sequence[Tensor]) -> list[tuple[Event, Tensor]]:
        """Start loading a layer's inputs from the host."""
        if layer < 0:
            return []
        targets = [self._link.empty(x_btc.shape, self.dtype) for x_btc in like]
        return [(self._link.load(x, self._inputs[layer, i], self._link.now()), x) for i, x in enumerate(targets)]


def _add_gradients(
    output: Tensor, slope: Tensor | None, x_btc: Tensor | None, leaves: Iterable[Tensor], sums: dict[str, Tensor]
) -> Tensor:
    """Add the gradients of `leaves` to `sums`, which has the same order; return the gradient of `x_btc`."""
    wanted = [*leaves] + ([] if x_btc is None else [x_btc])
    slopes = torch.autograd.grad(output, wanted, slope, allow_unused=True)
    for total, gradient in zip(sums.values(), slopes, strict=x_btc is None):
        if gradient is not None:
            total.add_(gradient)
    return slopes[-1]
