"""Propose a mesh for a model on given devices: of all that divide and fit, the fastest by `cost.py`. Without torch.

Meshes within 1 % of the fastest count as equal; of these the simplest is taken, the one with the fewest axes.
A tenth of the memory is left to what isn't counted, the allocator's gaps and the libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from webtext.base.errors import ConfigError
from webtext.train.mesh import MeshShape
from webtext.train.model.flops import flops_per_token
from webtext.train.plan.cost import Link, Machine, StepTime, step_time
from webtext.train.plan.footprint import GIB, Memory, memory_of_layout
from webtext.train.plan.layout import Layout, layouts, meshes
from webtext.train.plan.plan import measured_speed, shape_text, time_text
from webtext.train.plan.settings import PlanSettings
from webtext.train.settings import ACTIVATION_CHECKPOINTING, TrainSettings
from webtext.train.shape import GPT2Config

USABLE_RATIO = 0.9
EQUAL_RATIO = 1.01
SIMPLEST_FIRST = ("dp", "fsdp", "tp", "pp")
SIMPLER = (("dp",), ("fsdp",), ("dp", "tp"), ("fsdp", "tp"), ("dp", "pp"), ("fsdp", "pp"), ("pp", "tp"))
MOST_DEVICES = 2**16

ASSUMED_TFLOPS = 137.0
"""Rate that an A100 reached with a 1.7B model without model parallel: Narayanan et al. 2021, table 1."""
INSIDE_LATENCY, BETWEEN_LATENCY = 10e-6, 20e-6
MEMORY_BANDWIDTH = 1.555e12
"""An A100's, like the latencies. They hardly change which mesh is best, so they aren't settings."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout with its memory and step time."""

    layout: Layout
    memory: Memory
    time: StepTime

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes of the mesh with more than one device."""
        return _axes(self.layout.shape)

    @property
    def simplicity(self) -> tuple[object, ...]:
        """Sort key: number and kind of axes, then least recomputation, then the largest microbatch, then time."""
        ranks = sorted((SIMPLEST_FIRST.index(axis) for axis in self.axes), reverse=True)
        twice = ACTIVATION_CHECKPOINTING.index(self.layout.activation_checkpointing)
        return len(ranks), ranks, twice, -self.layout.microbatch, self.time.total

    def flags(self) -> str:
        """Return the options for `train run`."""
        layout = self.layout
        mesh = f"--mesh {layout.shape} " if layout.shape.size > 1 else ""
        schedule = f" --pipeline-schedule {layout.schedule}" if layout.shape.pp > 1 else ""
        how = layout.activation_checkpointing
        checkpointing = "" if how == "none" else f" --activation-checkpointing {how}"
        return f"{mesh}--microbatch-size {layout.microbatch}{schedule}{checkpointing}"

    def to_json(self) -> dict[str, Any]:
        """Return the layout, its bytes and its seconds as plain numbers."""
        layout = {name: value for name, value in asdict(self.layout).items() if name != "shape"}
        return {
            "mesh": asdict(self.layout.shape),
            **layout,
            "memory": {**asdict(self.memory), "total": self.memory.total},
            "step_seconds": {**asdict(self.time), "total": self.time.total},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The best layout, the next best meshes, and why simpler ones weren't chosen."""

    config: GPT2Config
    settings: TrainSettings
    plan: PlanSettings
    machine: Machine
    best: Candidate
    next_best: Sequence[Candidate]
    simpler: Sequence[tuple[str, str]]

    @property
    def binds(self) -> str:
        """The largest cost besides computing once: memory (computing twice), the pipeline's bubble, or the links."""
        time = self.best.time
        losses = {
            "memory: blocks are computed twice": time.recompute,
            "the pipeline's bubble": time.bubble,
            "the links": time.tensor_parallel + time.messages + time.data_parallel,
        }
        name = max(losses, key=lambda loss: losses[loss])
        if losses[name] < 0.05 * time.total:
            return f"computing, {time.compute / time.total:.0%} of the step"
        return f"{name}, {losses[name] / time.total:.0%} of the step"

    def to_json(self) -> dict[str, Any]:
        """Return the model, the machine, the candidates and the reasons as plain values."""
        return {
            "model": {**asdict(self.config), "parameters": self.config.n_parameters},
            "devices": self.plan.devices,
            "devices_per_node": self.plan.devices_per_node,
            "memory_of_device": int((self.plan.memory_gib or 0) * GIB),
            "machine": asdict(self.machine),
            "best": self.best.to_json(),
            "binds": self.binds,
            "next_best": [candidate.to_json() for candidate in self.next_best],
            "simpler": dict(self.simpler),
        }


def propose(settings: TrainSettings, plan: PlanSettings, tokens: Sequence[str] = ()) -> Proposal:
    """Propose a mesh of `plan.devices` for these settings. If none divides or fits, a ConfigError names what would."""
    config = settings.config(_vocab_size(plan, tokens))
    devices, usable = plan.devices or 1, int((plan.memory_gib or 0) * GIB * USABLE_RATIO)
    machine = machine_of(plan)
    candidates = _candidates(config, settings, devices, machine)
    if not candidates:
        raise ConfigError(
            f"no mesh of {devices:,} devices divides {settings.first_batch_size:,} sequences, {config.n_layer} layers "
            f"and {config.n_head} heads as these settings need it",
            f"choose {_that_divides(config, settings, devices, machine)}",
        )
    fitting = sorted((c for c in candidates if c.memory.total <= usable), key=lambda c: c.time.total)
    if not fitting:
        raise _nothing_fits(config, settings, plan, machine, candidates)
    equal = [c for c in fitting if c.time.total <= EQUAL_RATIO * fitting[0].time.total]
    best = min(equal, key=lambda c: c.simplicity)
    return Proposal(
        config=config,
        settings=settings,
        plan=plan,
        machine=machine,
        best=best,
        next_best=_one_a_mesh([c for c in fitting if c.layout.shape != best.layout.shape])[:2],
        simpler=_simpler(settings, devices, candidates, usable, best),
    )


def machine_of(plan: PlanSettings) -> Machine:
    """Return the devices and links of a plan; missing values are an A100's."""
    flops = ASSUMED_TFLOPS * 1e12
    if plan.peak_tflops is not None and plan.mfu_ratio is not None:
        flops = plan.peak_tflops * 1e12 * plan.mfu_ratio
    elif plan.measured is not None:
        flops = measured_speed(plan.measured)
    return Machine(
        flops=flops,
        inside=Link(bandwidth=plan.inside_gb_per_second * 1e9, latency=INSIDE_LATENCY),
        between=Link(bandwidth=plan.between_gb_per_second * 1e9, latency=BETWEEN_LATENCY),
        devices_per_node=min(plan.devices_per_node, plan.devices or 1),
        memory_bandwidth=MEMORY_BANDWIDTH,
    )


def _vocab_size(plan: PlanSettings, tokens: Sequence[str]) -> int:
    if not tokens:
        return plan.vocab_size
    from webtext.train.data.sources import open_sources

    return open_sources(tokens)[0].train.vocab_size


def _candidates(config: GPT2Config, settings: TrainSettings, devices: int, machine: Machine) -> list[Candidate]:
    return [
        Candidate(layout, memory_of_layout(config, settings, layout), step_time(config, settings, layout, machine))
        for layout in _layouts(config, settings, devices, machine)
    ]


def _layouts(config: GPT2Config, settings: TrainSettings, devices: int, machine: Machine) -> Iterator[Layout]:
    for shape in meshes(config, settings.first_batch_size, devices, machine.devices_per_node):
        yield from layouts(config, settings, shape)


def _one_a_mesh(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the first candidate of each mesh, in order."""
    found: dict[MeshShape, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.layout.shape, candidate)
    return list(found.values())


def _simpler(
    settings: TrainSettings, devices: int, candidates: Sequence[Candidate], usable: int, best: Candidate
) -> list[tuple[str, str]]:
    """Return, for each simpler kind of mesh, why it wasn't chosen: its least memory, or its time if it fits."""
    reasons = []
    for axes in SIMPLER:
        ranks = sorted((SIMPLEST_FIRST.index(axis) for axis in axes), reverse=True)
        if devices == 1 or (len(axes), ranks) >= best.simplicity[:2]:
            continue
        name = ",".join(axes) if len(axes) > 1 else f"{axes[0]}={devices}"
        same = [c for c in candidates if c.axes == axes]
        fitting = [c for c in same if c.memory.total <= usable]
        if not same:
            reasons.append((name, f"{settings.first_batch_size:,} sequences, layers or heads do not divide this way"))
        elif not fitting:
            least = min(same, key=lambda c: c.memory.total)
            reasons.append((name, f"{least.memory.total / GIB:,.1f} GiB at least: {least.layout.shape}"))
        else:
            fastest = min(fitting, key=lambda c: c.time.total)
            reasons.append((name, f"{fastest.time.total / best.time.total:.2f} times as long: {fastest.layout.shape}"))
    return reasons


def _nothing_fits(
    config: GPT2Config, settings: TrainSettings, plan: PlanSettings, machine: Machine, candidates: Sequence[Candidate]
) -> ConfigError:
    least = min(candidates, key=lambda c: c.memory.total)
    memory_gib, devices = plan.memory_gib or 0.0, plan.devices or 1
    needed = least.memory.total / GIB / USABLE_RATIO
    choices = [f"--memory-gib {needed + 0.05:,.1f}"]
    more = 2 * devices
    while more <= MOST_DEVICES and (found := _candidates(config, settings, more, machine)):
        if min(c.memory.total for c in found) <= memory_gib * GIB * USABLE_RATIO:
            choices.append(f"--devices {more}")
            break
        more *= 2
    held = f"{devices:,} device{'s' * (devices > 1)} of {memory_gib:g} GiB"
    return ConfigError(
        f"no mesh of {held} fits {config.n_parameters:,} parameters: the least is {needed:,.1f} GiB per device, "
        f"with {least.layout.shape}",
        f"choose {' or '.join([*choices, 'a smaller model or context'])}",
    )


def _that_divides(config: GPT2Config, settings: TrainSettings, devices: int, machine: Machine) -> str:
    """Suggest the nearest smaller number of devices that some mesh takes, and a batch size for all devices."""
    fewer = next(n for n in range(devices - 1, 0, -1) if any(_layouts(config, settings, n, machine)))
    return f"--devices {fewer} or --batch-size {-(-settings.batch_size // devices) * devices}"


def _axes(shape: MeshShape) -> tuple[str, ...]:
    return tuple(axis for axis in SIMPLEST_FIRST if getattr(shape, axis) > 1)


def proposal_text(proposal: Proposal) -> str:
    """Format a proposal: the best layout, its bottleneck, the next two, why not simpler ones, the assumed speeds."""
    config, plan, best, time = proposal.config, proposal.plan, proposal.best, proposal.best.time
    settings, machine = proposal.settings, proposal.machine
    memory = ", ".join(f"{_NAMES[name]} {n / GIB:.1f}" for name, n in asdict(best.memory).items() if n >= GIB / 20)
    parts = ", ".join(f"{_PARTS[name]} {n:.3g}" for name, n in asdict(time).items() if n >= 0.001 * time.total)
    total = settings.steps * time.total
    lines = [
        shape_text(config),
        f"devices: {plan.devices:,} of {plan.memory_gib:g} GiB, {machine.devices_per_node} per node; "
        f"{settings.batch_size:,} sequences of {settings.context:,} tokens per step",
        f"  {best.flags()}",
        f"  {best.layout.n_microbatches:,} x {best.layout.microbatch} sequences per step for each"
        + (" pipeline" if best.layout.shape.pp > 1 else " device"),
        f"memory of the fullest device: {best.memory.total / GIB:.1f} GiB ({memory}), "
        f"of {(plan.memory_gib or 0) * USABLE_RATIO:.1f} that may be used",
        f"one step: {time.total:.3g} s ({parts})",
        f"  {settings.steps:,} steps: {time_text(total)}" + _cost_text(plan, total),
        f"  the model's own operations: {_flops(proposal) / 1e12:,.1f} TFLOP/s per device",
        f"bottleneck: {proposal.binds}",
    ]
    lines += [
        f"next: {other.flags()}: {other.time.total / time.total:.2f} times as long, {other.memory.total / GIB:.1f} GiB"
        for other in proposal.next_best
    ]
    for reason in dict.fromkeys(why for _, why in proposal.simpler):
        lines.append(f"simpler: {'; '.join(name for name, why in proposal.simpler if why == reason)}: {reason}")
    lines.append(
        f"at {machine.flops / 1e12:,.1f} TFLOP/s per device{_source(plan)}, links "
        f"of {machine.inside.bandwidth / 1e9:g} GB/s in a node and {machine.between.bandwidth / 1e9:g} between nodes"
    )
    return "\n".join(lines)


_NAMES = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "cast_parameters": "copies to compute with",
    "activations": "activations",
    "output_layer": "output layer",
}
_PARTS = {
    "compute": "computing",
    "recompute": "recomputation",
    "tensor_parallel": "tensor parallel",
    "bubble": "bubble",
    "messages": "messages between stages",
    "data_parallel": "gradients and parameters",
    "update": "update",
}


def _flops(proposal: Proposal) -> float:
    settings = proposal.settings
    flops = flops_per_token(proposal.config) * settings.batch_size * settings.context
    return flops / proposal.best.time.total / (proposal.plan.devices or 1)


def _cost_text(plan: PlanSettings, seconds: float) -> str:
    if plan.price is None:
        return ""
    return f", cost {seconds / 3600 * (plan.devices or 1) * plan.price:,.2f}"


def _source(plan: PlanSettings) -> str:
    if plan.peak_tflops is not None or plan.measured is not None:
        return ""
    return " (an A100's, assumed: give --peak-tflops and --mfu-ratio, or --measured)"
