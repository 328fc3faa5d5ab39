"""A training step with only a moving window of layers on the device (STRONGHOLD, Sun et al. 2022).

    host: parameters, gradients, moments, each layer's inputs     device: parameters of `window` layers
                 ── load, one layer ahead of the window ──►
                 ◄── store gradients and each layer's inputs ──

Each layer is computed for all microbatches of a group while it is loaded, so a step moves it twice, however many
microbatches it has. Nothing of a layer remains on the device: in the backward pass it is computed again from its inputs
(Chen et al. 2016), with one module as the template of all layers (MegaTrain, arXiv 2604.05091). The optimizer steps on
the host, layer by layer, while the next step's first layers are already computed. Memory on the device doesn't depend
on the number of layers.

With `group` 1, or one microbatch per step, gradients are summed in the order of the plain run, to the same bits.
Otherwise the shared embedding gets its two parts group by group.


Shape suffixes as in `gpt2.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from webtext.train.model.gpt2 import GPT2, Block, document_mask
from webtext.train.model.loss import WindowRules
from webtext.train.offload.embeddings import NAMES, Embeddings
from webtext.train.offload.host_layers import HostLayers
from webtext.train.offload.host_memory import HostMemory
from webtext.train.offload.link import Event, Link
from webtext.train.offload.moving_window import MovingWindow
from webtext.train.offload.replay import Replay

ENDS = -1
"""Layer number of the ends: embeddings and final norm."""
GRADIENT_ROWS = 2
"""Rows of gradients on the device: one being summed, one on its way to the host."""


class OffloadedModel:
    """A model on the host, computed on `device` through `link`; a step sets the parameters' `grad`."""

    def __init__(
        self,
        model: GPT2,
        link: Link,
        device: torch.device,
        *,
        dtype: torch.dtype,
        window: int = 2,
        group: int = 1,
        folder: Path | None = None,
        rules: WindowRules = WindowRules(),  # noqa: B008 - it is frozen
    ) -> None:
        self.model, self.link, self.device, self.dtype, self.group = model, link, device, dtype, group
        self.rules = rules
        pin = device.type == "cuda"
        self._memory, self._passing = HostMemory(pin=pin, folder=folder), HostMemory(pin=pin)
        rest = nn.Module()  # the ends: embeddings and final norm, on the device during the complete step
        for name in NAMES:
            rest.add_module(name, getattr(model, name))
        self.layers = HostLayers(list(model.blocks), dtype, self._memory)
        self.ends = HostLayers([rest], dtype, self._memory)
        self._ends = Embeddings(model.config)
        with torch.device("meta"):
            self._template = Block(model.config)
        self._replay = Replay(device, draws=model.config.dropout > 0)
        self._host = ThreadPoolExecutor(1, thread_name_prefix="webtext-offload")
        self._updated: dict[int, Future[None]] = {}
        self.resize_window(window)
        self._inputs = torch.empty(0)
        self._leaving: deque[tuple[Callable[[], None], Tensor]] = deque()
        self.share: Callable[[Tensor], None] | None = None
        """Called for each row of a step's gradients once it is on the host, in a thread, always in the same order."""
        self._sharing: list[Future[None]] = []

    def forward_backward(self, batches: Iterable[Tensor]) -> Tensor:
        """Set the gradients of a step's microbatches, [b, t + 1] each; return their mean loss."""
        batches = list(batches)
        losses: list[Tensor] = []
        for start in range(0, len(batches), self.group):
            end = start + self.group
            losses += self._sweep(batches[start:end], len(batches), adds=start > 0, ends=end >= len(batches))
        self._settle_gradients(0)
        while self._sharing:
            self._sharing.pop().result()
        return cast(Tensor, sum(losses))  # in the order of the plain run

    @torch.no_grad()
    def log_likelihood(
        self, tokens_bt: Tensor, documents_bt: Tensor | None = None, *, last: int | None = None
    ) -> Tensor:
        """Like `GPT2.log_likelihood`, without dropout; layer by layer for the complete batch."""
        self._train(False)
        parameters = self._begin()
        x_btc = self._ends.embed(parameters, tokens_bt[:, :-1])
        for layer in range(self.layers.n_layers):
            self.window.ask_for(layer + self.window.size - 1)
            x_btc = self.layer(self.window.parameters(layer), x_btc, documents_bt)
        return -self._ends.token_losses(parameters, x_btc, tokens_bt[:, 1:] if last is None else tokens_bt[:, -last:])

    def update(self, step: Callable[[int], None]) -> None:
        """Start `step(-1)` for the ends and `step(i)` for each layer i on the host; a layer's next load waits."""
        for layer in (ENDS, *range(self.layers.n_layers)):
            self._updated[layer] = self._host.submit(self._update, step, layer)

    def wait(self) -> None:
        """Wait until all parameters on the host are updated."""
        for future in self._updated.values():
            future.result()

    def refresh(self) -> None:
        """Use parameters that were changed on the host, e.g. by reading a checkpoint."""
        self._updated.clear()
        self.ends.refresh(0)
        for layer in range(self.layers.n_layers):
            self.layers.refresh(layer)

    def resize_window(self, size: int) -> None:
        """Set the window to `size` layers from the next step on."""
        self.window = MovingWindow(self.layers, self.link, self.device, size, self._updated)

    def _update(self, step: Callable[[int], None], layer: int) -> None:
        step(layer)
        if layer == ENDS:
            self.ends.refresh(0)
        else:
            self.layers.refresh(layer)

    def _sweep(self, batches: Sequence[Tensor], n_all: int, *, adds: bool, ends: bool) -> list[Tensor]:
        """Run a group of microbatches forward and backward through all layers; return their parts of the mean loss."""
        inputs_bt = [tokens_bt[:, :-1] for tokens_bt in batches]
        self._train(True)
        self._make_room(inputs_bt)
        parameters = {name: view.requires_grad_() for name, view in self._begin().items()}
        slopes = self._empty(self.ends.n_elements, self.ends.parameters.dtype).zero_()
        sums = self.ends.views(slopes)
        x = self._forward(parameters, inputs_bt)
        losses = []
        for i, tokens_bt in enumerate(batches):
            x_btc, counted_bt = x[i].requires_grad_(), self.rules.counted(inputs_bt[i])
            loss = self._ends.loss(parameters, x_btc, tokens_bt[:, 1:], counted_bt) / n_all
            losses.append(loss.detach())
            x[i] = add_gradients(loss, None, x_btc, parameters, sums)
        self._backward(x, inputs_bt, adds=adds, ends=ends)
        for i, tokens_bt in enumerate(inputs_bt):
            with self._replay.again((ENDS, i)):
                x_btc = self._ends.embed(parameters, tokens_bt)
            add_gradients(x_btc, x[i], None, parameters, sums)
        self._store_gradients(self.ends.gradients[0], slopes, adds=adds, ends=ends)
        return losses

    def _forward(self, ends_parameters: dict[str, Tensor], inputs_bt: Sequence[Tensor]) -> list[Tensor]:
        """Compute from tokens through all layers, storing each layer's inputs on the host."""
        x: list[Tensor] = []
        for i, tokens_bt in enumerate(inputs_bt):
            self._replay.remember((ENDS, i))
            with torch.no_grad():
                x.append(self._ends.embed(ends_parameters, tokens_bt))
        leaving: deque[tuple[Event, Tensor]] = deque()
        for layer in range(self.layers.n_layers):
            self.window.ask_for(layer + self.window.size - 1)
            parameters = self.window.parameters(layer)
            for i, x_btc in enumerate(x):
                leaving.append((self.link.store(self._inputs[layer, i], x_btc), x_btc))
                self._replay.remember((layer, i))
                with torch.no_grad():
                    x[i] = self.layer(parameters, x_btc, self.rules.documents(inputs_bt[i]))
                self.link.computed("forward")
                if len(leaving) > len(x):
                    leaving.popleft()[0].wait()
        for event, _ in leaving:
            event.wait()
        return x

    def _backward(self, slopes: list[Tensor], inputs_bt: Sequence[Tensor], *, adds: bool, ends: bool) -> None:
        """Go back through all layers, updating `slopes` in place; each layer's gradients go to the host."""
        coming = self._load_inputs(self.layers.n_layers - 1, slopes)
        for layer in reversed(range(self.layers.n_layers)):
            inputs, coming = coming, self._load_inputs(layer - 1, slopes)
            self.window.ask_for(layer - self.window.size + 1)
            parameters = {name: view.requires_grad_() for name, view in self.window.parameters(layer).items()}
            gradient = self._empty(self.layers.n_elements, self.layers.parameters.dtype).zero_()
            sums = self.layers.views(gradient)
            for i, (event, x_btc) in enumerate(inputs):
                event.wait()
                with self._replay.again((layer, i)):
                    y_btc = self.layer(parameters, x_btc.requires_grad_(), self.rules.documents(inputs_bt[i]))
                slopes[i] = add_gradients(y_btc, slopes[i], x_btc, parameters, sums)
                self.link.computed("backward")
            self._store_gradients(self.layers.gradients[layer], gradient, adds=adds, ends=ends)

    def layer(self, parameters: dict[str, Tensor], x_btc: Tensor, documents_bt: Tensor | None) -> Tensor:
        """Return the output of the layer with these parameters, [b, t, c]."""
        mask_b1tt = None if documents_bt is None else document_mask(documents_bt, x_btc.dtype)
        return cast(Tensor, functional_call(self._template, parameters, (x_btc, None, mask_b1tt)))

    def _train(self, mode: bool) -> None:
        self._template.train(mode)
        self._ends.train(mode)

    def _begin(self) -> dict[str, Tensor]:
        """Load the ends and the first layers; return the ends' parameters."""
        row = self._empty(self.ends.n_elements, self.dtype)
        arrived = self.link.load(row, self.ends.copies[0], self._updated.get(ENDS))
        self.window.begin()
        arrived.wait()
        return self.ends.views(row)

    def inputs_shape(self, tokens_bt: Tensor) -> tuple[int, ...]:
        """Return the shape [b, t, c] of a layer's inputs, for input tokens [b, t]."""
        return (*tokens_bt.shape, self.model.config.n_embd)

    def _make_room(self, inputs_bt: Sequence[Tensor]) -> None:
        """Allocate host memory for each layer's inputs."""
        shape = (self.layers.n_layers, self.group, *self.inputs_shape(inputs_bt[0]))
        if self._inputs.shape != shape:
            self._inputs = self._memory.zeros(shape, self.dtype)

    def _load_inputs(self, layer: int, like: Sequence[Tensor]) -> list[tuple[Event, Tensor]]:
        """Start loading a layer's inputs from the host."""
        if layer < 0:
            return []
        targets = [self._empty(x_btc.shape, self.dtype) for x_btc in like]
        return [(self.link.load(x_btc, self._inputs[layer, i]), x_btc) for i, x_btc in enumerate(targets)]

    def _store_gradients(self, target: Tensor, sums: Tensor, *, adds: bool, ends: bool) -> None:
        """Send a row of gradients to the host, replacing what is there or added to it; `ends`: it is complete then."""
        self._settle_gradients(GRADIENT_ROWS - 1)
        if adds:
            arrived = self._passing.zeros(sums.shape, sums.dtype)
            event = self.link.store(arrived, sums)
            done: Callable[[], None] = self._host.submit(_add_after, event, target, arrived).result
        else:
            done = self.link.store(target, sums).done
        self._leaving.append((done, sums))
        if ends and self.share is not None:
            self._sharing.append(self._host.submit(_share_after, done, target, self.share))

    def _settle_gradients(self, n_left: int) -> None:
        while len(self._leaving) > n_left:
            self._leaving.popleft()[0]()

    def _empty(self, shape: Any, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)


def add_gradients(
    output: Tensor, slope: Tensor | None, x_btc: Tensor | None, leaves: dict[str, Tensor], sums: dict[str, Tensor]
) -> Tensor:
    """Add the gradients of `leaves` to `sums`, which has the same order; return the gradient of `x_btc`."""
    wanted = [*leaves.values()] + ([] if x_btc is None else [x_btc])
    slopes = torch.autograd.grad(output, wanted, slope, allow_unused=True)
    for total, gradient in zip(sums.values(), slopes, strict=x_btc is None):
        if gradient is not None:
            total.add_(gradient)
    return slopes[-1]


def _add_after(event: Event, target: Tensor, arrived: Tensor) -> None:
    event.done()
    target.add_(arrived)


def _share_after(done: Callable[[], None], target: Tensor, share: Callable[[Tensor], None]) -> None:
    done()
    share(target)
