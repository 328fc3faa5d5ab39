"""How many layers the window holds, and how long a step then takes on a link of known bandwidth and latency."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a group of `group` microbatches takes: bytes of each copy, seconds of one microbatch in one layer."""

    n_layer: int
    group: int
    layer_bytes: int
    input_bytes: int
    gradient_bytes: int
    ends_bytes: int
    ends_gradient_bytes: int
    forward_seconds: float
    backward_seconds: float
    bandwidth: float
    latency: float

    def copy_seconds(self, n_bytes: int) -> float:
        """One copy of so many bytes, alone on its way."""
        return self.latency + n_bytes / self.bandwidth


def choose_window(costs: Costs, free_bytes: int) -> int:
    """Layers that the device holds at once: the fewest with which a step takes as long as with any that fit, within 1 %.

    While one layer is computed the next ones come, so a window of w gives a copy the time of w - 1 of them (STRONGHOLD,
    section 3.2); a copy that takes longer than computing its layer is never hidden, but layers that are still there at
    the turn from forward to backward need none. ConfigError where fewer than two layers fit into `free_bytes`.
    """
    most = min(costs.n_layer, free_bytes // costs.layer_bytes)
    least = min(2, costs.n_layer)
    if most < least:
        raise ConfigError(
            f"{free_bytes:,} bytes are left for a window, and a layer has {costs.layer_bytes:,}",
            "choose a smaller microbatch_size, or give the device more memory",
        )
    sizes = {least, most} | {size for n in range(1, 20) for size in (2**n, 3 * 2**n) if least <= size <= most}
    seconds = {size: predict_seconds(costs, size) for size in sizes}
    return min(size for size in sizes if seconds[size] <= 1.01 * min(seconds.values()))


def predict_seconds(costs: Costs, window: int) -> float:
    """A step of one group, from the first load to the last gradient on the host, by the order in which `offloaded.py` asks."""
    clock = _Clock(costs)
    ends = clock.load(costs.ends_bytes)
    arrives = {layer: clock.load(costs.layer_bytes) for layer in range(min(window - 1, costs.n_layer))}
    clock.wait(ends)
    _forward(clock, costs, window, arrives)
    _backward(clock, costs, window, arrives)
    clock.wait(clock.store(costs.ends_gradient_bytes))
    return clock.now


class _Clock:
    """The time on the device, and when each way of the link is free."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self.now = self._load_free = self._store_free = 0.0

    def load(self, n_bytes: int) -> float:
        self._load_free = max(self.now, self._load_free) + self._costs.copy_seconds(n_bytes)
        return self._load_free

    def store(self, n_bytes: int) -> float:
        self._store_free = max(self.now, self._store_free) + self._costs.copy_seconds(n_bytes)
        return self._store_free

    def wait(self, until: float) -> None:
        self.now = max(self.now, until)


def _forward(clock: _Clock, costs: Costs, window: int, arrives: dict[int, float]) -> None:
    stored: deque[float] = deque()
    for layer in range(costs.n_layer):
        coming = layer + window - 1
        if coming < costs.n_layer:
            arrives[coming] = clock.load(costs.layer_bytes)
        clock.wait(arrives[layer])
        for _ in range(costs.group):
            stored.append(clock.store(costs.input_bytes))
            clock.now += costs.forward_seconds
            if len(stored) > costs.group:
                clock.wait(stored.popleft())
    clock.wait(stored[-1])


def _backward(clock: _Clock, costs: Costs, window: int, arrives: dict[int, float]) -> None:
    inputs = [clock.load(costs.input_bytes) for _ in range(costs.group)]
    gradient = 0.0
    for layer in reversed(range(costs.n_layer)):
        of_layer, inputs = inputs, [clock.load(costs.input_bytes) for _ in range(costs.group if layer else 0)]
        coming = layer - window + 1
        if 0 <= coming < costs.n_layer - window:  # those behind are still there
            arrives[coming] = clock.load(costs.layer_bytes)
        clock.wait(arrives[layer])
        for arrival in of_layer:
            clock.wait(arrival)
            clock.now += costs.backward_seconds
        clock.wait(gradient)
        gradient = clock.store(costs.gradient_bytes)
    clock.wait(gradient)
