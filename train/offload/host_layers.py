"""The blocks of a model on the host: one contiguous row of parameters per layer, and one of gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from webtext.train.offload.host_memory import HostMemory

_ALIGNMENT = 128  # elements: full cache lines, and full tiles of a GPU's matrix units, in every dtype


class HostLayers:
    """Rows for the parameters of equal modules, which become views of `parameters` and `gradients`, [layer, element].

    Parameters on the meta device have no values, so their rows are zeros. `copies` has the parameters in the dtype that
    is computed in; it is `parameters` itself if the dtype is the same.
    """

    def __init__(self, modules: Sequence[nn.Module], dtype: torch.dtype, memory: HostMemory) -> None:
        self.n_layers, self.memory = len(modules), memory
        self._places: list[tuple[str, torch.Size, slice]] = []
        end = 0
        for name, parameter in modules[0].named_parameters():
            self._places.append((name, parameter.shape, slice(end, end + parameter.numel())))
            end = math.ceil((end + parameter.numel()) / _ALIGNMENT) * _ALIGNMENT
        self.n_elements = end
        own = next(modules[0].parameters()).dtype
        self.parameters, self.gradients = self.rows(own), self.rows(own)
        self.copies = self.parameters if dtype == own else self.rows(dtype)
        for i, module in enumerate(modules):
            values, slopes = self.views(self.parameters[i]), self.views(self.gradients[i])
            for name, parameter in module.named_parameters():
                if parameter.is_meta:
                    torch.utils.swap_tensors(parameter, nn.Parameter(values[name]))  # type: ignore[no-untyped-call]
                else:
                    values[name].copy_(parameter.data)
                    parameter.data = values[name]
                parameter.grad = slopes[name]
            self.refresh(i)

    def rows(self, dtype: torch.dtype) -> Tensor:
        """Return zeros for all layers, [layer, element]."""
        return self.memory.zeros((self.n_layers, self.n_elements), dtype)

    def views(self, row: Tensor) -> dict[str, Tensor]:
        """Return views of a row as the parameters of one layer, by name."""
        return {name: row[place].view(shape) for name, shape, place in self._places}

    def refresh(self, layer: int) -> None:
        """Copy a layer's parameters to `copies`."""
        if self.copies is not self.parameters:
            self.copies[layer].copy_(self.parameters[layer])
