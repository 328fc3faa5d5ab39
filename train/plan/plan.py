"""What a run takes, before it starts: memory, operations, time; and the mesh of given devices that is fastest.

It is arithmetic and needs no torch. The time of a run as it is set comes from a known speed, or from the data sheet of a
device, which no step exceeds (`cost.py`). Meshes are compared by the same model, on an H100 if no other is named.
Those within 3 % of the fastest count as equal, because the model isn't more exact; of these the simplest is taken, the
one with the fewest axes. A tenth of the memory is left to what isn't counted, the allocator's gaps and the libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from webtext.base.errors import ConfigError
from webtext.train.mesh import MeshShape
from webtext.train.model.flops import flops_per_token, recomputed_flops_per_token
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.parallel.refusal import check_trainable
from webtext.train.plan.cost import DATA_SHEETS, Machine, StepTime, step_time
from webtext.train.plan.footprint import GIB, Memory, memory_of_layout, number_bytes
from webtext.train.plan.layout import Layout, layouts, meshes
from webtext.train.plan.settings import PlanSettings
from webtext.train.settings import ACTIVATION_CHECKPOINTING, TrainSettings
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from webtext.train.data.sources import SourceUse

USABLE_RATIO, EQUAL_RATIO = 0.9, 1.03
SIMPLEST_FIRST = ("dp", "fsdp", "tp", "pp")
MOST_DEVICES = 2**16
COMPARED = "h100"
"""The device on which meshes are compared if none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """A run in numbers; unknown ones are None.

    `seconds` leaves out held-out measurements and checkpoints. `time` is a step's on `machine`. If the layout was chosen,
    `simpler` says why simpler kinds of mesh weren't taken.
    """

    config: GPT2Config
    settings: TrainSettings
    given: PlanSettings
    layout: Layout
    memory: Memory
    sources: Sequence[SourceUse]
    tokens: int
    flops: int
    tokens_per_second: float | None
    seconds: float | None
    machine: Machine | None
    time: StepTime | None
    simpler: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return all of the plan, with bytes, FLOPs, tokens and seconds as plain numbers."""
        answer = asdict(self)
        answer["config"]["parameters"] = self.config.n_parameters
        answer["memory"]["total"] = self.memory.total
        if self.time is not None:
            answer["time"]["total"] = self.time.total
        return answer


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
    machine, time, speed = _machine(given), None, given.tokens_per_second
    simpler: dict[str, str] = {}
    if given.devices is not None:
        layout, time, simpler = _propose(config, settings, machine, given.devices, (given.memory_gib or 0) * GIB)
    else:
        processes = given.processes if settings.machine.mesh is None else settings.machine.mesh_shape(1).size
        layout = Layout.of(settings, check_trainable(config, settings, processes))
        if given.tflops is not None:
            speed = processes * machine.flops / flops_per_token(config)
        elif speed is None and given.data_sheet is not None and settings.machine.offload is None:
            time = step_time(config, settings, layout, machine)
    if time is not None:
        speed = settings.batch_size * settings.context / time.total
    return TrainPlan(
        config=config,
        settings=settings,
        given=given,
        layout=layout,
        memory=memory_of_layout(config, settings, layout),
        sources=sources,
        tokens=n_tokens,
        flops=n_tokens * flops_per_token(config),
        tokens_per_second=speed,
        seconds=None if speed is None else n_tokens / speed,
        machine=None if time is None else machine,
        time=time,
        simpler=simpler,
    )


def _propose(
    config: GPT2Config, settings: TrainSettings, machine: Machine, devices: int, memory: float
) -> tuple[Layout, StepTime, dict[str, str]]:
    """Return the best layout on so many devices, its time, and why simpler kinds of mesh aren't better."""
    bytes_of, usable = _bytes_of_all(config, settings, machine, devices), memory * USABLE_RATIO
    times = {one: step_time(config, settings, one, machine) for one, n in bytes_of.items() if n <= usable}
    if not times:
        raise _impossible(config, settings, machine, devices, usable)
    seconds = {one: time.total for one, time in times.items()}
    equal = [one for one in times if seconds[one] <= EQUAL_RATIO * min(seconds.values())]
    best = min(equal, key=lambda one: (*_simplicity(one), seconds[one]))
    simpler = [one for one in bytes_of if _simplicity(one)[:2] < _simplicity(best)[:2]]
    reasons: dict[str, str] = {}
    for one in sorted(simpler, key=lambda one: (one not in times, seconds.get(one, bytes_of[one]))):
        why = f"{bytes_of[one] / GIB:,.1f} GiB at least"
        if one in times:
            why = f"{seconds[one] / seconds[best]:.2f} times as long"
        reasons.setdefault(",".join(_axes(one.shape)) or "one process", f"{why}: {one.shape}")
    return best, times[best], reasons


def _machine(given: PlanSettings) -> Machine:
    sheet = DATA_SHEETS[given.data_sheet or COMPARED]
    inside, between = given.inside_gb_per_second, given.between_gb_per_second
    return replace(
        sheet,
        flops=given.tflops * 1e12 if given.tflops else sheet.flops,
        inside=replace(sheet.inside, bandwidth=inside * 1e9) if inside else sheet.inside,
        between=replace(sheet.between, bandwidth=between * 1e9) if between else sheet.between,
        devices_per_node=given.devices_per_node,
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
    bytes_of = found = _bytes_of_all(config, settings, machine, devices)
    if not bytes_of:
        fewer = next(n for n in range(devices - 1, 0, -1) if _bytes_of_all(config, settings, machine, n))
        return ConfigError(
            f"no mesh of {devices:,} devices divides {settings.first_batch_size:,} sequences, {config.n_layer} layers "
            f"and {config.n_head} heads as these settings need it",
            f"choose --devices {fewer} or --batch-size {-(-settings.batch_size // devices) * devices}",
        )
    more = devices
    while found and min(found.values()) > usable and more < MOST_DEVICES:
        more *= 2
        found = _bytes_of_all(config, settings, machine, more)
    fits = f"--devices {more} or " if found and min(found.values()) <= usable else ""
    least = min(bytes_of, key=bytes_of.__getitem__)
    needed = bytes_of[least] / GIB / USABLE_RATIO
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


def advice(config: GPT2Config, settings: TrainSettings, shape: MeshShape, n_bytes: float, most: int) -> str:
    """Return what would fit: a microbatch of at most `most` sequences, activation checkpointing, or a smaller model.

    Estimates aren't exact: if none fits, the least is named.
    """
    now, offloads = Layout.of(settings, shape), settings.machine.offload is not None
    usable = 2**63 if offloads else n_bytes  # offloaded, the device never has the entire model
    bytes_of = {one: memory_of_layout(config, settings, one).total for one in layouts(config, settings, shape)}
    found = sorted(bytes_of, key=lambda one: (bytes_of[one] > usable, abs(usable - bytes_of[one])))
    found = [one for one in found if one.schedule == now.schedule]
    how = now.activation_checkpointing
    smaller = [one.microbatch for one in found if one.activation_checkpointing == how and one.microbatch <= most]
    others = [one.activation_checkpointing for one in found if one.microbatch == now.microbatch]
    other = [f"activation_checkpointing = '{one}'" for one in others if one != how]
    fewer = f"microbatch_size = {smaller[0]}" if smaller else "a smaller model or context"
    return " or ".join([fewer, *(["a larger device_memory_gib"] if offloads else other[:1])])


def plan_text(plan: TrainPlan) -> str:
    """Return a plan as aligned lines; a step's parts begin with the longest."""
    config, settings, given, memory, layout = plan.config, plan.settings, plan.given, plan.memory, plan.layout
    ramp = f"{settings.first_batch_size:,} to " if settings.schedule.batch_ramp_steps else ""
    rows = asdict(memory) | {"total": memory.total}
    lines = [
        f"{config.n_parameters:,} parameters: {config.n_layer} layers of {config.n_embd}, {config.n_head} heads, "
        f"vocabulary {config.vocab_size:,}, context {config.context:,}",
        f"{settings.steps:,} steps of {ramp}{settings.batch_size:,} sequences, {plan.tokens:,} tokens; processes: "
        f"{layout.shape.size}, each {layout.n_microbatches} x {layout.microbatch} sequences per step",
        *([f"  {layout.flags}"] if given.devices else []),
        *(f"  {source}" for source in plan.sources),
        "memory of one device, GiB",
        *(f"  {name.replace('_', ' '):<20}{n / GIB:>9.2f}" for name, n in rows.items()),
        *([] if given.memory_gib is None else [_fit_text(plan, given.memory_gib)]),
    ]
    if settings.machine.offload is not None:
        n_bytes = offloaded_bytes(config, settings, layout)
        lines.append(f"offloaded: {n_bytes / GIB:,.2f} GiB on the host")
    recomputed = recomputed_flops_per_token(config, layout.activation_checkpointing)
    lines.append(
        f"{flops_per_token(config) / 1e9:,.3f} GFLOP per token, {plan.flops:.3g} FLOP in total"
        + (f", and {recomputed / 1e9:,.3f} GFLOP per token recomputed" if recomputed else "")
    )
    if plan.seconds is None or plan.tokens_per_second is None:
        lines.append("time: unknown; give --tokens-per-second, --tflops, or a --data-sheet")
    else:
        lines.append(f"{plan.tokens_per_second:,.0f} tokens/s: {timedelta(seconds=round(plan.seconds))} (h:mm:ss)")
    if plan.time is not None and plan.machine is not None:
        lines += _step_text(plan, plan.time, plan.machine)
    return "\n".join(lines)


def _fit_text(plan: TrainPlan, memory_gib: float) -> str:
    if plan.memory.total <= memory_gib * GIB:
        return f"  fits in {memory_gib:.1f} GiB"
    what = advice(plan.config, plan.settings, plan.layout.shape, memory_gib * GIB, plan.layout.microbatch)
    return f"  does not fit in {memory_gib:.1f} GiB: choose {what}"


def _step_text(plan: TrainPlan, time: StepTime, machine: Machine) -> list[str]:
    parts = sorted(asdict(time).items(), key=itemgetter(1), reverse=True)
    texts = [f"{name.replace('_', ' ')} {n:.3g}" for name, n in parts if n >= 0.001 * time.total]
    sheet = f" ({plan.given.data_sheet or COMPARED}'s data sheet: no step is faster)"
    return [
        f"  one step: {time.total:.3g} s ({', '.join(texts)})",
        *(f"  simpler: {name}: {why}" for name, why in plan.simpler.items()),
        f"  at {machine.flops / 1e12:,.1f} TFLOP/s and {machine.memory_bandwidth / 1e9:,.0f} GB/s of memory per "
        f"device{'' if plan.given.tflops else sheet}, links of {machine.inside.bandwidth / 1e9:g} GB/s in a node and "
        f"{machine.between.bandwidth / 1e9:g} between nodes",
    ]


def offloaded_bytes(config: GPT2Config, settings: TrainSettings, layout: Layout) -> int:
    """Return what an offloaded run keeps on the host of a replica: parameters, gradients, moments, and layers' inputs."""
    memory = memory_of_layout(config, settings, layout)
    inputs = layout.n_microbatches * layout.microbatch * config.context * config.n_embd * number_bytes(settings)
    return memory.total - memory.activations - memory.output_layer + config.n_layer * inputs
