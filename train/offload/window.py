"""How many layers the window holds, and how long a step then takes on a link of known bandwidth and latency."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from webtext.base.errors import ConfigError
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config


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


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step's time; that in which it waited for copies, which took so long altogether."""

    seconds: float
    stalled_seconds: float
    copied_seconds: float

    @property
    def hidden_ratio(self) -> float:
        """The share of the copies' time that nothing waited for."""
        return 1 - self.stalled_seconds / self.copied_seconds


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
    seconds = {size: predict_step(costs, size).seconds for size in sizes}
    return min(size for size in sizes if seconds[size] <= 1.01 * min(seconds.values()))


def covering_bandwidth(costs: Costs) -> float:
    """Bytes a second, each way, from which on computing a layer takes as long as any copies beside it, without latency.

    Only the first and the last copies of a step are then waited for.
    """
    inputs = costs.group * costs.input_bytes
    forward, backward = costs.group * costs.forward_seconds, costs.group * costs.backward_seconds
    loads = max(costs.layer_bytes / forward, (costs.layer_bytes + inputs) / backward)
    return max(loads, inputs / forward, costs.gradient_bytes / backward)


def predict_step(costs: Costs, window: int) -> StepTime:
    """A step of one group, from the first load to the last gradient on the host, by the order in which `offloaded.py` asks.

    The ends' own computing is left out, which nothing is copied beside.
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
    """What a step would take each of `n` replicas, all its microbatches in one group: model FLOP/s, bytes a second each way."""
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
        backward_seconds=3 * forward,  # one of them to compute it once more
        bandwidth=bandwidth,
        latency=0.0,
    )


def offload_text(
    config: GPT2Config, settings: TrainSettings, n: int, row_bytes: int, speed: float | None, bandwidth: float | None
) -> str:
    """A line of a plan of `n` replicas: what lies on the host of each, of which `row_bytes` are parameters, gradients and
    moments; a step's time, at `speed` model FLOP/s of each.

    The output layer's time, which nothing is copied beside, is added; the optimizer's is not, which works meanwhile, nor
    that of summing up gradients.
    """
    microbatch, accumulation = settings.accumulation(n)
    size = 4 if settings.dtype == "float32" else 2
    inputs = config.n_layer * accumulation * microbatch * config.context * config.n_embd * size
    text = f"offloaded: {(row_bytes + inputs) / 2**30:,.2f} GiB on the host"
    if speed is None or bandwidth is None:
        return f"{text}; a step: not known; give the speed and --host-gb-per-second"
    costs = plan_costs(config, settings, n, speed, bandwidth)
    output = 6 * config.n_embd * config.vocab_size * accumulation * microbatch * config.context / speed
    computing = output + config.n_layer * costs.group * (costs.forward_seconds + costs.backward_seconds)
    return (
        f"{text}; a step: {predict_step(costs, 2).seconds + output:,.2f} s, of which computing {computing:,.2f} s, "
        f"which covers the copies of a link from {covering_bandwidth(costs) / 1e9:,.3g} GB/s on"
    )


class _Clock:
    """The time on the device, and when each way of the link is free."""

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
        if 0 <= coming < costs.n_layer - window:  # those behind are still there
            arrives[coming] = clock.load(costs.layer_bytes)
        clock.wait(arrives[layer])
        for arrival in of_layer:
            clock.wait(arrival)
            clock.now += costs.backward_seconds
        clock.wait(gradient)
        gradient = clock.store(costs.gradient_bytes)
    clock.wait(gradient)
