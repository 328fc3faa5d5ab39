"""An offloaded model on the host, and the rows that travel between it and the device.

For each layer there are a row of parameters and one of gradients. They travel on a stream for each direction next to
the one that computes. Copies and computing are ordered by events, one for each row, and nothing waits for all of a
stream. On a CPU, whose streams do nothing (`torch.cpu`), a copy is made at once. Memory of the device belongs to the
current stream. It needs no `record_stream`, which keeps freed blocks while the host runs ahead: the current stream waits
for a copy's event before it drops or changes the source.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from webtext.train.host_memory import host_zeros

_ALIGNMENT = 128  # elements: full cache lines, and full tiles of a GPU's matrix units, in every dtype


class HostLayers:
    """Rows for the parameters of equal modules, which become views of `parameters` and `gradients`, [layer, element].

    Parameters on the meta device have no values, so their rows are zeros. `copies` has the parameters in the dtype that
    is computed in; it is `parameters` itself if the dtype is the same.
    """

    def __init__(self, modules: Sequence[nn.Module], dtype: torch.dtype, link: Link) -> None:
        self.n_layers = len(modules)
        self._places: list[tuple[str, torch.Size, slice]] = []
        end = 0
        for name, parameter in modules[0].named_parameters():
            self._places.append((name, parameter.shape, slice(end, end + parameter.numel())))
            end = math.ceil((end + parameter.numel()) / _ALIGNMENT) * _ALIGNMENT
        self.n_elements = end
        own, shape = next(modules[0].parameters()).dtype, (self.n_layers, end)
        self.gradients = torch.zeros(shape, dtype=own)
        self.copies = link.host_zeros(shape, dtype)
        self.parameters = self.copies if dtype == own else torch.zeros(shape, dtype=own)
        for i, module in enumerate(modules):
            values, slopes = self.views(self.parameters[i]), self.views(self.gradients[i])
            for name, parameter in module.named_parameters():
                if not parameter.is_meta:
                    values[name].copy_(parameter.data)
                torch.utils.swap_tensors(parameter, nn.Parameter(values[name]))  # type: ignore[no-untyped-call]
                parameter.grad = slopes[name]
            self.refresh(i)

    def views(self, row: Tensor) -> dict[str, Tensor]:
        """Return views of a row as the parameters of one layer, by name."""
        return {name: row[place].view(shape) for name, shape, place in self._places}

    def on_device(self, module: nn.Module, link: Link) -> Tensor:
        """Return an empty row on the device, of which views become the parameters of a module like the others."""
        row = link.empty((self.n_elements,), self.copies.dtype)
        for name, view in self.views(row).items():
            place, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(place), leaf, nn.Parameter(view))
        return row

    def refresh(self, layer: int) -> None:
        if self.copies is not self.parameters:
            self.copies[layer].copy_(self.parameters[layer])


Event = Any
"""A point in a stream's work, as `torch.cuda.Event`. `wait` makes the current stream wait for it, `synchronize` the host."""
OnGradients = Callable[[int], None]
"""Called in the host's thread with a layer whose row of gradients is complete."""


class Link:
    """The connection of a `device`: two of its streams, or of others that show their order, and a thread of the host."""

    def __init__(self, device: torch.device, streams: Any = None) -> None:
        self.device, self._streams = device, streams or torch.get_device_module(device)
        self._loads, self._stores = self._streams.Stream(), self._streams.Stream()
        # A thread begins with GPU 0 as its own, and would take memory there.
        self.host = ThreadPoolExecutor(1, "webtext-offload", self._streams.set_device, (device,))

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def host_zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return host_zeros(shape, dtype, pinned=self.device.type == "cuda")

    def now(self) -> Event:
        """Return an event after all work that is queued on the current stream."""
        event = self._streams.Event()
        event.record()
        return event

    def load(self, target: Tensor, source: Tensor, free: Event) -> Event:
        """Copy host memory to the device, once `free` says that nothing uses `target`; return the end of the copy."""
        return self._copy(self._loads, target, source, free)

    def store(self, target: Tensor, source: Tensor) -> Event:
        """Copy to host memory after all work that is queued until now; return the end of the copy."""
        return self._copy(self._stores, target, source, self.now())

    @torch.no_grad()
    def _copy(self, stream: Any, target: Tensor, source: Tensor, after: Event) -> Event:
        with self._streams.stream(stream):
            after.wait()
            target.copy_(source, non_blocking=True)
            return self.now()


@dataclass(slots=True)
class _Parameters:
    """The row of `module`: which layer it has, when that has arrived, and when computing with it has ended."""

    module: nn.Module
    values: Tensor
    arrived: Event
    free: Event
    layer: int = -1


class MovingWindow:
    """The parameters of two layers on the device, in `modules`. A layer is loaded after `updated` has returned for it.

    Layer i always takes row i % 2: a step goes up through the layers and down again, so the last two are still there when
    it turns back, and the row that a load fills is the one that was used longer ago.
    """

    def __init__(
        self, modules: Iterable[nn.Module], layers: HostLayers, link: Link, updated: Callable[[int], None]
    ) -> None:
        self._layers, self._link, self._updated = layers, link, updated
        # a tensor each: for autograd, a copy into one row would change the other
        rows = [(module, layers.on_device(module, link)) for module in modules]
        self._rows = [_Parameters(*row, link.now(), link.now()) for row in rows]

    def begin(self) -> None:
        """Drop loaded layers, which the host may have changed, and load the first one."""
        for loaded in self._rows:
            loaded.layer = -1
        self.ask_for(0)

    def ask_for(self, layer: int) -> None:
        """Start loading a layer's parameters, unless there is no such layer or it is loaded already."""
        row = self._rows[layer % 2]
        if 0 <= layer < self._layers.n_layers and row.layer != layer:
            self._updated(layer)
            row.arrived = self._link.load(row.values, self._layers.copies[layer], row.free)
            row.layer = layer

    @contextlib.contextmanager
    def module(self, layer: int) -> Iterator[nn.Module]:
        """Return the module with a layer's parameters, for the computing that is queued in this context."""
        row = self._rows[layer % 2]
        assert row.layer == layer
        row.arrived.wait()
        yield row.module
        row.free = self._link.now()


@dataclass(slots=True)
class _Gradients:
    """A row on both sides; `left`: when the device's may change again, `taken`: when the host's may."""

    sent: Tensor
    arriving: Tensor
    left: Event
    taken: Future[None]


class GradientRows:
    """`n_rows` rows on both sides: with two, a layer's gradients are summed while the previous ones leave.

    They are summed in the parameters' dtype, on the device and on the host, and sent in `dtype`. A single microbatch
    that was computed in `dtype` loses nothing by that.
    """

    def __init__(self, layers: HostLayers, link: Link, dtype: torch.dtype, n_rows: int) -> None:
        self._layers, self._link = layers, link
        shape, own = (layers.n_elements,), layers.gradients.dtype
        rows = [(link.empty(shape, dtype), link.host_zeros(shape, dtype)) for _ in range(n_rows)]
        self._rows = deque(_Gradients(*row, link.now(), link.host.submit(lambda: None)) for row in rows)
        self._sums = None if dtype == own else link.empty(shape, own)

    def begin(self) -> dict[str, Tensor]:
        """Return zeros to which the next layer's gradients are added, by name."""
        self._rows[0].left.wait()
        return self._layers.views((self._rows[0].sent if self._sums is None else self._sums).zero_())

    @torch.no_grad()
    def send(self, layer: int, *, adds: bool, then: OnGradients | None) -> None:
        """Send the sums to a layer's row on the host, replacing it or added to it; `then` is called with that."""
        row = self._rows[0]
        self._rows.rotate(-1)
        if self._sums is not None:
            row.sent.copy_(self._sums)
        row.taken.result()
        left = row.left = self._link.store(row.arriving, row.sent)
        target, arriving = self._layers.gradients[layer], row.arriving

        @torch.no_grad()
        def take() -> None:
            left.synchronize()
            target.add_(arriving) if adds else target.copy_(arriving)
            if then is not None:
                then(layer)

        row.taken = self._link.host.submit(take)

    def settle(self) -> None:
        """Wait until all gradients are on the host and `then` is done."""
        for row in self._rows:
            row.taken.result()
