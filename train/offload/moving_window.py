"""The window: some layers' parameters on the device, while the next ones are loaded into rows that are free again."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

import torch
from torch import Tensor

from webtext.train.offload.host_layers import HostLayers
from webtext.train.offload.link import Event, Link


class MovingWindow:
    """`size` rows on `device`; a layer in `updated` is loaded after its update on the host has finished."""

    def __init__(
        self, layers: HostLayers, link: Link, device: torch.device, size: int, updated: Mapping[int, Future[None]]
    ) -> None:
        self.layers, self.link, self.device, self.size = layers, link, device, min(size, layers.n_layers)
        self._updated = updated
        self._rows: list[Tensor] = []
        self._resident: dict[int, tuple[int, Event]] = {}

    def begin(self) -> None:
        """Drop loaded layers, which the host may have changed, and load the first ones; one row remains free."""
        self._resident.clear()
        if not self._rows:  # one tensor each: autograd would take a copy into one row for a change of another saved row
            dtype = self.layers.copies.dtype
            self._rows = [
                torch.empty(self.layers.n_elements, dtype=dtype, device=self.device) for _ in range(self.size)
            ]
        for layer in range(self.size - 1):
            self.ask_for(layer)

    def ask_for(self, layer: int) -> None:
        """Start loading a layer's parameters, unless there is no such layer or it is loaded already."""
        row = layer % self.size
        if 0 <= layer < self.layers.n_layers and self._resident.get(row, (-1,))[0] != layer:
            event = self.link.load(self._rows[row], self.layers.copies[layer], self._updated.get(layer))
            self._resident[row] = (layer, event)

    def parameters(self, layer: int) -> dict[str, Tensor]:
        """Return a layer's parameters by name, for computing that is queued from now on."""
        found, event = self._resident[layer % self.size]
        assert found == layer
        event.wait()
        return self.layers.views(self._rows[layer % self.size].detach())
