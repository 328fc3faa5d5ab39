"""A step of a model of which only a moving window of layers is on the device (STRONGHOLD, Sun et al. 2022).

    host: parameters, gradients, moments, what went into each layer     device: `window` layers' parameters
                 ── load, one layer ahead of the window ──►
                 ◄── store gradients, and what went into each layer ──

Each layer is computed for all microbatches of a group while it is there, so a step moves it twice, however many microbatches
it has. Nothing of a layer stays on the device: going back it is computed once more from what went into it (Chen et al. 2016),
with one module as the template of all layers (MegaTrain, arXiv 2604.05091). The optimizer steps on the host, layer by layer,
while the next step's first layers are already computed. What the device holds does not depend on the number of layers.

Shape suffixes as in `model.py`.
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
from torch.utils._python_dispatch import _disable_current_modes

from webtext.train.model import GPT2, Block
from webtext.train.offload.host_layers import HostLayers
from webtext.train.offload.link import Event, Link
from webtext.train.parallel.stage import Stage

ENDS = -1
"""The number of what is no layer: embeddings and final norm."""
GRADIENT_ROWS = 2
"""Layers' gradients on the device: one that is summed up, one on its way to the host."""


class OffloadedModel:
    """A model on the host, computed on `device` through `link`; its parameters' `grad` are the step's."""

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
    ) -> None:
        self.model, self.link, self.device, self.dtype = model, link, device, dtype
        self.window, self.group = min(window, model.config.n_layer), group
        pin = device.type == "cuda"
        rest = nn.Module()  # the shared ends: embeddings and final norm, on the device for the whole of a step
        for name in ("token_embedding", "position_embedding", "final_norm"):
            rest.add_module(name, getattr(model, name))
        layers_folder, ends_folder = (folder / "layers", folder / "ends") if folder else (None, None)
        self.layers = HostLayers(list(model.blocks), dtype, pin=pin, folder=layers_folder)
        self.ends = HostLayers([rest], dtype, pin=pin, folder=ends_folder)
        with torch.device("meta"):
            template, whole = Block(model.config), GPT2(model.config)
        self._template = template.to(dtype)
        n_layer = model.config.n_layer
        self._first, self._last = Stage(whole, range(0, 0)), Stage(whole, range(n_layer, n_layer))
        self._host = ThreadPoolExecutor(1, thread_name_prefix="webtext-offload")
        self._updated: dict[int, Future[None]] = {}
        self._inputs = torch.empty(0)
        self._rows: list[Tensor] = []
        self._resident: dict[int, tuple[int, Event]] = {}
        self._leaving: deque[tuple[Callable[[], None], Tensor]] = deque()

    def forward_backward(self, batches: Iterable[Tensor]) -> Tensor:
        """Set the gradients of a step's microbatches, [b, t + 1] each; returns their mean loss."""
        batches = list(batches)
        self._resident.clear()  # what was there is of the step before
        losses = [
            self._sweep(batches[start : start + self.group], len(batches), adds=start > 0)
            for start in range(0, len(batches), self.group)
        ]
        self._settle_gradients(0)
        return torch.stack(losses).sum()

    def update(self, step: Callable[[int], None]) -> None:
        """Begin `step(-1)` for the ends and `step(i)` for each layer i on the host; a layer's next use waits for its own."""
        for layer in (ENDS, *range(self.layers.n_layers)):
            self._updated[layer] = self._host.submit(self._update, step, layer)

    def wait(self) -> None:
        """Wait until all parameters on the host are of the last step."""
        for future in self._updated.values():
            future.result()

    def _update(self, step: Callable[[int], None], layer: int) -> None:
        step(layer)
        if layer == ENDS:
            self.ends.refresh(0)
        else:
            self.layers.refresh(layer)

    def _sweep(self, batches: Sequence[Tensor], n_all: int, *, adds: bool) -> Tensor:
        """Forward and backward of a group of microbatches through all layers."""
        ends = self._empty(self.ends.n_elements, self.dtype)
        arrived = self.link.load(ends, self.ends.copies[0], self._updated.get(ENDS))
        self._begin(batches)
        arrived.wait()
        leaves = {f"model.{name}": view.requires_grad_() for name, view in self.ends.views(ends).items()}
        slopes = self._empty(self.ends.n_elements, self.ends.parameters.dtype).zero_()
        sums = self.ends.views(slopes)
        with torch.no_grad():
            x = [_call(self._first, leaves, (tokens[:, :-1], tokens[:, 1:])) for tokens in batches]
        self._forward(x)
        losses = []
        for i, tokens in enumerate(batches):
            x_btc = x[i].requires_grad_()
            loss = _call(self._last, leaves, (x_btc, tokens[:, 1:]))[0] / n_all
            losses.append(loss.detach())
            x[i] = _add_gradients(loss, None, x_btc, leaves, sums)
        self._backward(x, adds=adds)
        for tokens, slope_btc in zip(batches, x, strict=True):
            x_btc = _call(self._first, leaves, (tokens[:, :-1], tokens[:, 1:]))
            _add_gradients(x_btc, slope_btc, None, leaves, sums)
        self._store_gradients(self.ends.gradients[0], slopes, adds=adds)
        return torch.stack(losses).sum()

    def _forward(self, x: list[Tensor]) -> None:
        """Through all layers, in place; what goes into each is kept on the host."""
        leaving: deque[tuple[Event, Tensor]] = deque()
        for layer in range(self.layers.n_layers):
            self._request(layer + self.window - 1)
            parameters = self._parameters_of(layer)
            for i, x_btc in enumerate(x):
                leaving.append((self.link.store(self._inputs[layer, i], x_btc), x_btc))
                with torch.no_grad():
                    x[i] = functional_call(self._template, parameters, (x_btc,))
                self.link.computed("forward")
                if len(leaving) > len(x):
                    leaving.popleft()[0].wait()
        for event, _ in leaving:
            event.wait()

    def _backward(self, slopes: list[Tensor], *, adds: bool) -> None:
        """Back through all layers, in place; each layer's gradients go to the host."""
        coming = self._load_inputs(self.layers.n_layers - 1, slopes)
        for layer in reversed(range(self.layers.n_layers)):
            inputs, coming = coming, self._load_inputs(layer - 1, slopes)
            self._request(layer - self.window + 1)
            parameters = {name: view.requires_grad_() for name, view in self._parameters_of(layer).items()}
            gradient = self._empty(self.layers.n_elements, self.layers.parameters.dtype).zero_()
            sums = self.layers.views(gradient)
            for i, (event, x_btc) in enumerate(inputs):
                event.wait()
                y_btc = functional_call(self._template, parameters, (x_btc.requires_grad_(),))
                slopes[i] = _add_gradients(y_btc, slopes[i], x_btc, parameters, sums)
                self.link.computed("backward")
            self._store_gradients(self.layers.gradients[layer], gradient, adds=adds)

    def _begin(self, batches: Sequence[Tensor]) -> None:
        """Ask for the first layers, and make room for what goes into each layer."""
        shape = (self.layers.n_layers, self.group, len(batches[0]), batches[0].shape[1] - 1, self.model.config.n_embd)
        if self._inputs.shape != shape:
            self._inputs = self._on_host(shape, self.dtype)
        if not self._rows:  # a tensor each: autograd takes a copy to one row for a change of what it saved of another
            self._rows = [self._empty(self.layers.n_elements, self.dtype) for _ in range(self.window)]
        for layer in range(self.window - 1):
            self._request(layer)

    def _request(self, layer: int) -> None:
        """Let a layer's parameters come, into the row of one that is no longer needed."""
        row = layer % self.window
        if 0 <= layer < self.layers.n_layers and self._resident.get(row, (ENDS,))[0] != layer:
            event = self.link.load(self._rows[row], self.layers.copies[layer], self._updated.get(layer))
            self._resident[row] = (layer, event)

    def _parameters_of(self, layer: int) -> dict[str, Tensor]:
        found, event = self._resident[layer % self.window]
        assert found == layer
        event.wait()
        return self.layers.views(self._rows[layer % self.window].detach())

    def _load_inputs(self, layer: int, like: Sequence[Tensor]) -> list[tuple[Event, Tensor]]:
        """What went into a layer, on its way back."""
        if layer < 0:
            return []
        targets = [self._empty(x_btc.shape, self.dtype) for x_btc in like]
        return [(self.link.load(x_btc, self._inputs[layer, i]), x_btc) for i, x_btc in enumerate(targets)]

    def _store_gradients(self, target: Tensor, sums: Tensor, *, adds: bool) -> None:
        """Send a row of gradients to the host, in the place of what is there or added to it."""
        self._settle_gradients(GRADIENT_ROWS - 1)
        if adds:
            arrived = self._on_host(sums.shape, sums.dtype)
            event = self.link.store(arrived, sums)
            self._leaving.append((self._host.submit(_add_after, event, target, arrived).result, sums))
        else:
            self._leaving.append((self.link.store(target, sums).done, sums))

    def _settle_gradients(self, n_left: int) -> None:
        while len(self._leaving) > n_left:
            self._leaving.popleft()[0]()

    def _empty(self, shape: Any, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def _on_host(self, shape: Any, dtype: torch.dtype) -> Tensor:
        with _disable_current_modes():  # an arena does not count it
            return torch.empty(shape, dtype=dtype, pin_memory=self.device.type == "cuda")


def _call(stage: Stage, leaves: dict[str, Tensor], arguments: tuple[Tensor, Tensor]) -> Tensor:
    own = {name: leaves[name] for name, _ in stage.named_parameters()}
    return cast(Tensor, functional_call(stage, own, arguments))


def _add_gradients(
    output: Tensor, slope: Tensor | None, x_btc: Tensor | None, leaves: dict[str, Tensor], sums: dict[str, Tensor]
) -> Tensor:
    """Add the gradients of `leaves` to `sums`, which has them in the same order; returns that of `x_btc`."""
    wanted = [*leaves.values()] + ([] if x_btc is None else [x_btc])
    slopes = torch.autograd.grad(output, wanted, slope, allow_unused=True)
    for total, gradient in zip(sums.values(), slopes, strict=x_btc is None):
        if gradient is not None:
            total.add_(gradient)
    return slopes[-1]


def _add_after(event: Event, target: Tensor, arrived: Tensor) -> None:
    event.done()
    target.add_(arrived)
