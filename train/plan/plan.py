"""What a run takes, before it starts: memory, operations, time, cost; and the mesh of given devices that is fastest.

It is arithmetic and needs no torch. The time of a run as it is set comes from a measured speed, or from the data sheet
of a device, which no step exceeds (`cost.py`). Meshes are compared by the same model, on an H100 if no other is named.
Those within 3 % of the fastest count as equal, because the model isn't more exact; of these the simplest is taken, the
one with the fewest axes. A tenth of the memory is left to what isn't counted, the allocator's gaps and the libraries.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.train.checkpoint.checkpoint import find_checkpoint
from webtext.train.checkpoint.model_copy import local_model
from webtext.train.mesh import MeshShape
from webtext.train.metrics import METRICS, read_metrics
from webtext.train.model.flops import flops_per_token, recomputed_flops_per_token
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.parallel.refusal import check_trainable
from webtext.train.plan.cost import Link, Machine, StepTime, step_time
from webtext.train.plan.footprint import GIB, Memory, memory_of_layout, memory_on
from webtext.train.plan.layout import Layout, divisors, layouts, meshes
from webtext.train.plan.offloaded import offload_text
from webtext.train.plan.settings import DATA_SHEETS, PlanSettings
from webtext.train.settings import ACTIVATION_CHECKPOINTING, TrainSettings
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from webtext.train.data.sources import SourceUse

USABLE_RATIO = 0.9
EQUAL_RATIO = 1.03
SIMPLEST_FIRST = ("dp", "fsdp", "tp", "pp")
MOST_DEVICES = 2**16
COMPARED = "h100"
"""The device on which meshes are compared if none is named."""
INSIDE_LATENCY, BETWEEN_LATENCY, LAUNCH = 10e-6, 20e-6, 4e-6
"""Seconds of a message within a node and between nodes, and of the host for a kernel: assumptions, not measured. They
hardly change which mesh is best, so they aren't settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A step's time on the machine, and, if the layout was chosen, why simpler kinds of mesh weren't taken."""

    machine: Machine
    time: StepTime
    simpler: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """A run in numbers; unknown ones are None. `speed` is model FLOP/s of all devices together.

    `seconds` leaves out held-out measurements and checkpoints; `cost` is in the currency of the given price.
    `max_microbatch` is the largest that fits on the mesh that is set.
    """

    config: GPT2Config
    settings: TrainSettings
    given: PlanSettings
    layout: Layout
    memory: Memory
    max_microbatch: int | None
    sources: Sequence[SourceUse]
    tokens: int
    flops: int
    speed: float | None
    seconds: float | None
    cost: float | None
    proposed: Proposed | None

    def to_json(self) -> dict[str, Any]:
        """Return the plan with bytes, FLOPs, tokens and seconds as plain numbers."""
        per_token, layout, proposed = flops_per_token(self.config), self.layout, self.proposed
        answer = {
            "model": {**asdict(self.config), "parameters": self.config.n_parameters},
            "processes": layout.shape.size,
            "mesh": asdict(layout.shape),
            "microbatch_size": layout.microbatch,
            "accumulation": layout.n_microbatches,
            "pipeline_schedule": layout.schedule,
            "activation_checkpointing": layout.activation_checkpointing,
            "tokens_per_step": self.settings.batch_size * self.settings.context,
            "steps": self.settings.steps,
            "tokens": self.tokens,
            "sources": [asdict(source) for source in self.sources],
            "memory": {**asdict(self.memory), "total": self.memory.total},
            "memory_of_device": None if self.given.memory_gib is None else int(self.given.memory_gib * GIB),
            "max_microbatch_size": self.max_microbatch,
            "flops_per_token": per_token,
            "recomputed_flops_per_token": recomputed_flops_per_token(self.config, layout.activation_checkpointing),
            "flops": self.flops,
            "flops_per_second": self.speed,
            "tokens_per_second": None if self.speed is None else self.speed / per_token,
            "seconds": self.seconds,
            "cost": self.cost,
        }
        if proposed is None:
            return answer
        time = {**asdict(proposed.time), "total": proposed.time.total}
        reasons = {"bottleneck": proposed.time.bottleneck, "simpler": proposed.simpler}
        return {**answer, "machine": asdict(proposed.machine), "step_seconds": time, **reasons}


def plan_training(settings: TrainSettings, given: PlanSettings, tokens: Sequence[str] = ()) -> TrainPlan:
    """Estimate what `train run` with these settings takes, on the best mesh if `given.devices` is set.

    The token sets `tokens` define the vocabulary and passes. ConfigError if no mesh divides or fits; it names what would.
    """
    sources: Sequence[SourceUse] = ()
    vocab_size, n_tokens = given.vocab_size, total_tokens(settings)
    if tokens:
        from webtext.train.data.sources import open_sources, source_uses

        opened = open_sources(tokens)
        vocab_size = opened[0].train.vocab_size
        sources = source_uses(opened, settings, n_tokens)
    config = settings.config(vocab_size)
    per_token, proposed = flops_per_token(config), None
    if given.devices is not None:
        layout, proposed = _propose(config, settings, given, given.devices)
        speed: float | None = per_token * settings.batch_size * settings.context / proposed.time.total
    else:
        processes = given.processes if settings.machine.mesh is None else settings.machine.mesh_shape(1).size
        shape = check_trainable(config, settings, processes)
        layout = Layout.of(settings, shape, settings.accumulation(shape.n_data)[0])
        by_tokens = given.tokens_per_second
        speed = _speed(given, processes) if by_tokens is None else by_tokens * per_token
        if speed is None and given.data_sheet is not None and settings.machine.offload is None:
            machine = _machine(given, shape.size)
            proposed = Proposed(machine=machine, time=step_time(config, settings, layout, machine), simpler={})
            speed = per_token * settings.batch_size * settings.context / proposed.time.total
    n_bytes = None if given.memory_gib is None else int(given.memory_gib * GIB)
    seconds = None if speed is None else n_tokens * per_token / speed
    return TrainPlan(
        config=config,
        settings=settings,
        given=given,
        layout=layout,
        memory=memory_of_layout(config, settings, layout),
        max_microbatch=None
        if n_bytes is None or given.devices
        else max_microbatch(config, settings, layout.shape, n_bytes),
        sources=sources,
        tokens=n_tokens,
        flops=n_tokens * per_token,
        speed=speed,
        seconds=seconds,
        cost=None if seconds is None or given.price is None else seconds / 3600 * layout.shape.size * given.price,
        proposed=proposed,
    )


def _propose(config: GPT2Config, settings: TrainSettings, given: PlanSettings, devices: int) -> tuple[Layout, Proposed]:
    """Return the best layout on so many devices."""
    machine = _machine(given, devices)
    bytes_of, usable = _bytes_of_all(config, settings, machine, devices), (given.memory_gib or 0) * GIB * USABLE_RATIO
    times = {layout: step_time(config, settings, layout, machine) for layout, n in bytes_of.items() if n <= usable}
    if not times:
        raise _impossible(config, settings, machine, devices, usable)
    limit = EQUAL_RATIO * min(time.total for time in times.values())
    equal = [one for one, time in times.items() if time.total <= limit]
    best = min(equal, key=lambda one: (*_simplicity(one), times[one].total))
    simpler = [one for one in bytes_of if _simplicity(one)[:2] < _simplicity(best)[:2]]
    reasons: dict[str, str] = {}
    for one in sorted(simpler, key=lambda one: (one not in times, times[one].total if one in times else bytes_of[one])):
        why = f"{bytes_of[one] / GIB:,.1f} GiB at least"
        if one in times:
            why = f"{times[one].total / times[best].total:.2f} times as long"
        name = ",".join(axes) if len(axes := _axes(one.shape)) > 1 else str(one.shape)
        reasons.setdefault(name, f"{why}: {one.shape}")
    return best, Proposed(machine=machine, time=times[best], simpler=reasons)


def _machine(given: PlanSettings, devices: int) -> Machine:
    sheet = DATA_SHEETS[given.data_sheet or COMPARED]
    return Machine(
        flops=_speed(given, 1) or sheet.tflops * 1e12,
        inside=Link(bandwidth=(given.inside_gb_per_second or sheet.inside) * 1e9, latency=INSIDE_LATENCY),
        between=Link(bandwidth=(given.between_gb_per_second or sheet.between) * 1e9, latency=BETWEEN_LATENCY),
        devices_per_node=min(given.devices_per_node, devices),
        memory_bandwidth=sheet.memory * 1e9,
        launch=LAUNCH,
    )


def _bytes_of_all(config: GPT2Config, settings: TrainSettings, machine: Machine, devices: int) -> dict[Layout, int]:
    """Return all layouts on so many devices, and the memory of the device that each fills most."""
    shapes = meshes(config, settings.first_batch_size, devices, machine.devices_per_node)
    found = (layout for shape in shapes for layout in layouts(config, settings, shape))
    return {layout: memory_of_layout(config, settings, layout).total for layout in found}


def _impossible(
    config: GPT2Config, settings: TrainSettings, machine: Machine, devices: int, usable: float
) -> ConfigError:
    """Return the error that no mesh divides or fits; it names the nearest devices, batch or memory that would."""
    bytes_of = _bytes_of_all(config, settings, machine, devices)
    if not bytes_of:
        fewer = next(n for n in range(devices - 1, 0, -1) if _bytes_of_all(config, settings, machine, n))
        return ConfigError(
            f"no mesh of {devices:,} devices divides {settings.first_batch_size:,} sequences, {config.n_layer} layers "
            f"and {config.n_head} heads as these settings need it",
            f"choose --devices {fewer} or --batch-size {-(-settings.batch_size // devices) * devices}",
        )
    least, more, found = min(bytes_of, key=lambda layout: bytes_of[layout]), devices, bytes_of
    while found and min(found.values()) > usable and more < MOST_DEVICES:
        more *= 2
        found = _bytes_of_all(config, settings, machine, more)
    needed = bytes_of[least] / GIB / USABLE_RATIO
    fits = f"--devices {more} or " if found and min(found.values()) <= usable else ""
    return ConfigError(
        f"no mesh of {devices:,} device{'s' * (devices > 1)} of {usable / USABLE_RATIO / GIB:g} GiB fits "
        f"{config.n_parameters:,} parameters: the least is {needed:,.1f} GiB per device, with {least.shape}",
        f"choose --memory-gib {needed + 0.05:,.1f} or {fits}a smaller model or context",
    )


def _axes(shape: MeshShape) -> tuple[str, ...]:
    return tuple(axis for axis in SIMPLEST_FIRST if getattr(shape, axis) > 1)


def _simplicity(layout: Layout) -> tuple[Any, ...]:
    """Sort key: number and kind of axes, then least recomputation, then the largest microbatch."""
    kinds = sorted((SIMPLEST_FIRST.index(axis) for axis in _axes(layout.shape)), reverse=True)
    return len(kinds), kinds, ACTIVATION_CHECKPOINTING.index(layout.activation_checkpointing), -layout.microbatch


def max_microbatch(config: GPT2Config, settings: TrainSettings, shape: MeshShape, memory_bytes: int) -> int | None:
    """Return the largest microbatch that divides a device's share of the first batch and fits, or None."""
    sizes = divisors(settings.first_batch_size // shape.n_data)
    fitting = (size for size in reversed(sizes) if memory_on(config, settings, shape, size).total <= memory_bytes)
    return next(fitting, None)


def checkpointing_that_fits(
    config: GPT2Config, settings: TrainSettings, shape: MeshShape, microbatch: int, memory_bytes: int
) -> str | None:
    """Return the activation checkpointing to try next: the one that recomputes least and fits.

    If none fits it is the one that keeps least. Returns None if there is nothing more to try.
    """
    machine = settings.machine
    other = [
        layout
        for layout in layouts(config, settings, shape)
        if (layout.microbatch, layout.schedule) == (microbatch, machine.pipeline_schedule if shape.pp > 1 else "1f1b")
        and layout.activation_checkpointing != machine.activation_checkpointing
    ]
    fitting = [layout for layout in other if memory_of_layout(config, settings, layout).total <= memory_bytes]
    return (fitting or other[-1:])[0].activation_checkpointing if other else None


def _speed(given: PlanSettings, processes: int) -> float | None:
    """Return the model FLOP/s of all processes together."""
    if given.peak_tflops is not None and given.mfu_ratio is not None:
        return given.peak_tflops * 1e12 * given.mfu_ratio * processes
    return None if given.measured is None else measured_speed(given.measured) * processes


def measured_speed(model: str) -> float:
    """Return the model FLOP/s per process of an earlier run: the median of its steps, for the shape it trained."""
    model_dir = local_model(model)
    checkpoint = find_checkpoint(model_dir)
    try:
        rows = read_metrics(Folder(model_dir), "")
        speeds = [float(row["tokens_per_second"]) for row in rows if "tokens_per_second" in row]
        processes = int(checkpoint.state["environment"]["processes"])
        return statistics.median(speeds) * flops_per_token(checkpoint.config) / processes
    except (InputError, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"'{model_dir / METRICS}' contains no speed ({error!r})", "name the folder of a run that made steps"
        ) from None


def plan_text(plan: TrainPlan) -> str:
    """Return a plan as aligned lines."""
    config, settings, given, memory, layout = plan.config, plan.settings, plan.given, plan.memory, plan.layout
    ramp = f"{settings.first_batch_size:,} to " if settings.schedule.batch_ramp_steps else ""
    names = {"cast_parameters": "bfloat16 parameters", "output_layer": "output layer"}
    rows = [*((names.get(name, name), n) for name, n in asdict(memory).items()), ("total", memory.total)]
    lines = [
        f"{config.n_parameters:,} parameters: {config.n_layer} layers of {config.n_embd}, {config.n_head} heads, "
        f"vocabulary {config.vocab_size:,}, context {config.context:,}",
        f"{settings.steps:,} steps of {ramp}{settings.batch_size:,} sequences, {plan.tokens:,} tokens; processes: "
        f"{layout.shape.size}, each {layout.n_microbatches} x {layout.microbatch} sequences per step",
        *([f"  {layout.flags}"] if given.devices else []),
        *(f"  {source}" for source in plan.sources),
        "memory of one device, GiB",
        *(f"  {name:<20}{n / GIB:>9.2f}" for name, n in rows),
        *([] if given.memory_gib is None else [_fit_text(plan, given.memory_gib)]),
        f"{flops_per_token(config) / 1e9:,.3f} GFLOP per token, {plan.flops:.3g} FLOP in total",
    ]
    if recomputed := recomputed_flops_per_token(config, layout.activation_checkpointing):
        lines.append(f"  and {recomputed / 1e9:,.3f} GFLOP per token recomputed")
    if plan.seconds is None or plan.speed is None:
        lines.append(
            "time: unknown; give --measured DIR, --tokens-per-second, --peak-tflops with --mfu-ratio, or a --data-sheet"
        )
    else:
        lines.append(f"{plan.speed / flops_per_token(config):,.0f} tokens/s: {time_text(plan.seconds)}")
    if plan.proposed is not None:
        time, machine = plan.proposed.time, plan.proposed.machine
        parts = [f"{name.replace('_', ' ')} {n:.3g}" for name, n in asdict(time).items() if n >= 0.001 * time.total]
        is_bound = given.peak_tflops is None and given.measured is None
        source = f" ({given.data_sheet or COMPARED}'s data sheet: no step is faster)" if is_bound else ""
        lines += [
            f"  one step: {time.total:.3g} s ({', '.join(parts)})",
            f"  bottleneck: {time.bottleneck}",
            *(f"  simpler: {name}: {why}" for name, why in plan.proposed.simpler.items()),
            f"  at {machine.flops / 1e12:,.1f} TFLOP/s and {machine.memory_bandwidth / 1e9:,.0f} GB/s of memory per "
            f"device{source}, links of {machine.inside.bandwidth / 1e9:g} GB/s in a node and "
            f"{machine.between.bandwidth / 1e9:g} between nodes",
        ]
    if settings.machine.offload is not None:
        on_host = memory.parameters + memory.gradients + memory.optimizer + memory.cast_parameters
        n, speed = layout.shape.size, None if plan.speed is None else plan.speed / layout.shape.size
        bandwidth = None if given.host_gb_per_second is None else given.host_gb_per_second * 1e9
        lines.append(offload_text(config, settings, n, on_host, speed, bandwidth))
    return "\n".join(lines if plan.cost is None else [*lines, f"cost: {plan.cost:,.2f}"])


def _fit_text(plan: TrainPlan, memory_gib: float) -> str:
    fits = f"  {'fits' if plan.memory.total <= memory_gib * GIB else 'does not fit'} in {memory_gib:.1f} GiB"
    if plan.given.devices is not None:
        return f"{fits}, of which {USABLE_RATIO:.0%} are planned with"
    if plan.max_microbatch is not None:
        return f"{fits}; the largest microbatch_size that fits is {plan.max_microbatch}"
    more = checkpointing_that_fits(plan.config, plan.settings, plan.layout.shape, 1, int(memory_gib * GIB))
    return f"{fits}; not even one sequence fits" + (f": try --activation-checkpointing {more}" if more else "")


def time_text(seconds: float) -> str:
    """Format seconds in the largest unit of which there are at least two."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} seconds"
