"""Choose the window's size, and predict a step's time on a link of known bandwidth and latency."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from webtext.base.errors import ConfigError
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of a group of `group` microbatches: bytes of each copy, seconds of one microbatch in one layer."""

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
        """Return the seconds of one copy of `n_bytes` on a free link."""
        return self.latency + n_bytes / self.bandwidth


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step's seconds, the seconds in which it waited for copies, and the seconds of all copies."""

    seconds: float
    stalled_seconds: float
    copied_seconds: float

    @property
    def hidden_ratio(self) -> float:
        """Share of the copies' time that nothing waited for, in [0, 1]."""
        return 1 - self.stalled_seconds / self.copied_seconds


def choose_window(costs: Costs, free_bytes: int) -> int:
    """Return the number of layers on the device: the fewest with which a step is within 1 % of the fastest that fits.

    While one layer is computed the next ones arrive, so in a window of w layers a copy has the time of w - 1 of them
    (STRONGHOLD, section 3.2). A copy that takes longer than computing its layer is never hidden, but layers that are
    still loaded at the turn from forward to backward need no copy. ConfigError if fewer than two layers fit into
    `free_bytes`.
    """
    most = min(costs.n_layer, free_bytes // costs.layer_bytes)
    least = min(2, costs.n_layer)
    if most < least:
        raise ConfigError(
            f"{free_bytes:,} bytes are left for a window, but a layer has {costs.layer_bytes:,}",
            "choose a smaller microbatch_size, or give the device more memory",
        )
    sizes = {least, most} | {size for n in range(1, 20) for size in (2**n, 3 * 2**n) if least <= size <= most}
    seconds = {size: predict_step(costs, size).seconds for size in sizes}
    return min(size for size in sizes if seconds[size] <= 1.01 * min(seconds.values()))


def covering_bandwidth(costs: Costs) -> float:
    """Return the bytes per second, each way, from which computing a layer takes as long as the copies during it.

    Then a step waits only for its first and last copies. Latency isn't counted.
    """
    inputs = costs.group * costs.input_bytes
    forward, backward = costs.group * costs.forward_seconds, costs.group * costs.backward_seconds
    loads = max(costs.layer_bytes / forward, (costs.layer_bytes + inputs) / backward)
    return max(loads, inputs / forward, costs.gradient_bytes / backward)


def predict_step(costs: Costs, window: int) -> StepTime:
    """Predict a step of one group, from the first load to the last gradient on the host, with `offloaded.py`'s order.

    Computing of the ends, during which nothing is copied, isn't counted.
    """
    clock = _Clock(costs)
    ends = clock.load(costs.ends_bytes)
    arrives = {layer: clock.load(costs.layer_bytes) for layer in range(min(window - 1, costs.n_layer))}
    clock.wait(ends)
    _forward(clock, costs, window, arrives)
    _backward(clock, costs, window, arrives)
    clock.wait(clock.store(costs.ends_gradient_bytes))
    return StepTime(clock.now, clock.stalled, clock.copied)


def plan_costs(config: GPT2Config, settings: TrainSettings, n: int, speed: float, bandwidth: float) -> Costs:
    """Return the costs of a step for each of `n` replicas, in one group, at `speed` FLOP/s and `bandwidth` bytes/s."""
    microbatch, accumulation = settings.accumulation(n)
    size = 4 if settings.dtype == "float32" else 2
    layer, n_tokens = 12 * config.n_embd**2 + 13 * config.n_embd, microbatch * config.context
    ends = (config.padded_vocab_size + config.context + 2) * config.n_embd
    forward = n_tokens * (24 * config.n_embd**2 + 4 * config.n_embd * config.context) / speed
    return Costs(
        n_layer=config.n_layer,
        group=accumulation,
        layer_bytes=size * layer,
        input_bytes=size * n_tokens * config.n_embd,
        gradient_bytes=4 * layer,
        ends_bytes=size * ends,
        ends_gradient_bytes=4 * ends,
        forward_seconds=forward,
        backward_seconds=3 * forward,  # one of them to recompute the layer
        bandwidth=bandwidth,
        latency=0.0,
    )


def offload_text(
    config: GPT2Config, settings: TrainSettings, n: int, row_bytes: int, speed: float | None, bandwidth: float | None
) -> str:
    """Return a plan's line for each of `n` replicas: the bytes on its host, and a step's time at `speed` model FLOP/s.

    `row_bytes` is the size of parameters, gradients and moments. The time of the output layer, during which nothing is
    copied, is added. The optimizer, which works in parallel, and the summing of gradients aren't counted.
    """
    microbatch, accumulation = settings.accumulation(n)
    size = 4 if settings.dtype == "float32" else 2
    inputs = config.n_layer * accumulation * microbatch * config.context * config.n_embd * size
    text = f"offloaded: {(row_bytes + inputs) / 2**30:,.2f} GiB on the host"
    if speed is None or bandwidth is None:
        return f"{text}; one step: unknown; give the speed and --host-gb-per-second"
    costs = plan_costs(config, settings, n, speed, bandwidth)
    output = 6 * config.n_embd * config.vocab_size * accumulation * microbatch * config.context / speed
    computing = output + config.n_layer * costs.group * (costs.forward_seconds + costs.backward_seconds)
    return (
        f"{text}; one step: {predict_step(costs, 2).seconds + output:,.2f} s, of which {computing:,.2f} s computing, "
        f"which hides the copies on links of {covering_bandwidth(costs) / 1e9:,.3g} GB/s or more"
    )


class _Clock:
    """The time on the device, and the times when each way of the link is free."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self.now = self.stalled = self.copied = 0.0
        self._free_at = {"load": 0.0, "store": 0.0}

    def load(self, n_bytes: int) -> float:
        return self._copy("load", n_bytes)

    def store(self, n_bytes: int) -> float:
        return self._copy("store", n_bytes)

    def _copy(self, way: str, n_bytes: int) -> float:
        seconds = self._costs.copy_seconds(n_bytes)
        self.copied += seconds
        self._free_at[way] = max(self.now, self._free_at[way]) + seconds
        return self._free_at[way]

    def wait(self, until: float) -> None:
        stall = max(0.0, until - self.now)
        self.stalled += stall
        self.now += stall


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
        if 0 <= coming < costs.n_layer - window:  # the last ones are still loaded
            arrives[coming] = clock.load(costs.layer_bytes)
        clock.wait(arrives[layer])
        for arrival in of_layer:
            clock.wait(arrival)
            clock.now += costs.backward_seconds
        clock.wait(gradient)
        gradient = clock.store(costs.gradient_bytes)
    clock.wait(gradient)
