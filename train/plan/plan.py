"""An estimate of a training run before it starts: memory of one device, floating-point operations, time, cost.

It is arithmetic and needs no torch. Time needs a speed that was measured: none is assumed.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webtext.base.config import changed
from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.train.checkpoint.checkpoint import find_checkpoint
from webtext.train.checkpoint.model_copy import local_model
from webtext.train.mesh import MeshShape
from webtext.train.metrics import METRICS, read_metrics
from webtext.train.model.flops import flops_per_token, recomputed_flops_per_token
from webtext.train.offload.window import offload_text
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.parallel.refusal import check_trainable
from webtext.train.plan.footprint import GIB, Memory, memory_on
from webtext.train.plan.layout import divisors
from webtext.train.plan.settings import PlanSettings
from webtext.train.settings import ACTIVATION_CHECKPOINTING, TrainSettings
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from webtext.train.data.sources import SourceUse


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """A run in numbers. `speed` is model FLOP/s of all processes together. Unknown speed, time and cost are None."""

    config: GPT2Config
    settings: TrainSettings
    processes: int
    microbatch: int
    accumulation: int
    memory: Memory
    memory_bytes: int | None
    max_microbatch: int | None
    speed: float | None
    price: float | None
    host_bandwidth: float | None
    sources: Sequence[SourceUse]

    @property
    def tokens(self) -> int:
        """Tokens that the entire run trains on."""
        return total_tokens(self.settings)

    @property
    def flops(self) -> int:
        """Model FLOPs of the entire run."""
        return self.tokens * flops_per_token(self.config)

    @property
    def seconds(self) -> float | None:
        """Duration of the run, without held-out measurements and checkpoints."""
        return None if self.speed is None else self.flops / self.speed

    @property
    def cost(self) -> float | None:
        """Price of all devices for that time, in the currency of `price`."""
        return None if self.seconds is None or self.price is None else self.seconds / 3600 * self.processes * self.price

    def to_json(self) -> dict[str, Any]:
        """Return the plan with bytes, FLOPs, tokens and seconds as plain numbers."""
        per_token = flops_per_token(self.config)
        recomputed = recomputed_flops_per_token(self.config, self.settings.machine.activation_checkpointing)
        return {
            "model": {**dataclasses.asdict(self.config), "parameters": self.config.n_parameters},
            "processes": self.processes,
            "microbatch_size": self.microbatch,
            "accumulation": self.accumulation,
            "tokens_per_step": self.settings.batch_size * self.settings.context,
            "steps": self.settings.steps,
            "tokens": self.tokens,
            "sources": [dataclasses.asdict(source) for source in self.sources],
            "memory": {**dataclasses.asdict(self.memory), "total": self.memory.total},
            "memory_of_device": self.memory_bytes,
            "max_microbatch_size": self.max_microbatch,
            "flops_per_token": per_token,
            "recomputed_flops_per_token": recomputed,
            "flops": self.flops,
            "flops_per_second": self.speed,
            "tokens_per_second": None if self.speed is None else self.speed / per_token,
            "seconds": self.seconds,
            "cost": self.cost,
        }


def plan_training(settings: TrainSettings, plan: PlanSettings, tokens: Sequence[str] = ()) -> TrainPlan:
    """Estimate what `train run` with these settings takes. The token sets `tokens` define the vocabulary and passes."""
    sources: Sequence[SourceUse] = ()
    vocab_size = plan.vocab_size
    if tokens:
        from webtext.train.data.sources import open_sources, source_uses

        opened = open_sources(tokens)
        vocab_size = opened[0].train.vocab_size
        sources = source_uses(opened, settings, total_tokens(settings))
    config = settings.config(vocab_size)
    processes = plan.processes if settings.machine.mesh is None else settings.machine.mesh_shape(plan.processes).size
    shape = check_trainable(config, settings, processes)
    microbatch, accumulation = settings.accumulation(shape.n_data)
    memory_bytes = None if plan.memory_gib is None else int(plan.memory_gib * GIB)
    return TrainPlan(
        config=config,
        settings=settings,
        processes=processes,
        microbatch=microbatch,
        accumulation=accumulation,
        memory=memory_on(config, settings, shape, microbatch),
        memory_bytes=memory_bytes,
        max_microbatch=None if memory_bytes is None else max_microbatch(config, settings, processes, memory_bytes),
        speed=_speed(config, plan, processes),
        price=plan.price,
        host_bandwidth=None if plan.host_gb_per_second is None else plan.host_gb_per_second * 1e9,
        sources=sources,
    )


def max_microbatch(config: GPT2Config, settings: TrainSettings, processes: int, memory_bytes: int) -> int | None:
    """Return the largest microbatch that divides a process's share of the first batch and fits, or None."""
    shape = settings.machine.mesh_shape(processes)
    sizes = divisors(settings.first_batch_size // shape.n_data)
    fitting = (size for size in reversed(sizes) if memory_on(config, settings, shape, size).total <= memory_bytes)
    return next(fitting, None)


def checkpointing_that_fits(
    config: GPT2Config, settings: TrainSettings, shape: MeshShape, microbatch: int, memory_bytes: int
) -> str | None:
    """Return the activation checkpointing to try next: the one that recomputes least and fits.

    If none fits it is the one that keeps least. Returns None if there is nothing more to try.
    """
    least = None
    for how in ACTIVATION_CHECKPOINTING[
        ACTIVATION_CHECKPOINTING.index(settings.machine.activation_checkpointing) + 1 :
    ]:
        try:
            chosen = changed(settings, activation_checkpointing=how)
            check_trainable(config, chosen, shape.size)
        except ConfigError:
            continue
        if memory_on(config, chosen, shape, microbatch).total <= memory_bytes:
            return how
        least = how
    return least


def _speed(config: GPT2Config, plan: PlanSettings, processes: int) -> float | None:
    """Return the model FLOP/s of all processes together."""
    if plan.tokens_per_second is not None:
        return plan.tokens_per_second * flops_per_token(config)
    if plan.peak_tflops is not None and plan.mfu_ratio is not None:
        return plan.peak_tflops * 1e12 * plan.mfu_ratio * processes
    if plan.measured is not None:
        return measured_speed(plan.measured) * processes
    return None


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
    config, settings, memory = plan.config, plan.settings, plan.memory
    ramp = f"{settings.first_batch_size:,} to " if settings.schedule.batch_ramp_steps else ""
    sizes = f"{ramp}{settings.batch_size:,}"
    lines = [
        shape_text(config),
        f"{settings.steps:,} steps of {sizes} sequences, {plan.tokens:,} tokens; processes: "
        f"{plan.processes}, each {plan.accumulation} x {plan.microbatch} sequences per step",
        *(f"  {source}" for source in plan.sources),
        "memory of one device, GiB",
    ]
    names = {"cast_parameters": "bfloat16 parameters", "output_layer": "output layer"}
    rows = [(names.get(name, name), n) for name, n in dataclasses.asdict(memory).items()]
    lines += [f"  {name:<20}{n / GIB:>9.2f}" for name, n in [*rows, ("total", memory.total)]]
    if plan.memory_bytes is not None:
        lines.append(_fit_text(plan, plan.memory_bytes))
    lines.append(f"{flops_per_token(config) / 1e9:,.3f} GFLOP per token, {plan.flops:.3g} FLOP in total")
    if recomputed := recomputed_flops_per_token(config, settings.machine.activation_checkpointing):
        lines.append(f"  and {recomputed / 1e9:,.3f} GFLOP per token recomputed")
    if plan.seconds is None or plan.speed is None:
        lines.append("time: unknown; give --tokens-per-second, --peak-tflops with --mfu-ratio, or --measured DIR")
    else:
        lines.append(f"{plan.speed / flops_per_token(config):,.0f} tokens/s: {time_text(plan.seconds)}")
    if settings.machine.offload is not None:
        rows_bytes = memory.parameters + memory.gradients + memory.optimizer + memory.cast_parameters
        speed = None if plan.speed is None else plan.speed / plan.processes
        lines.append(offload_text(config, settings, plan.processes, rows_bytes, speed, plan.host_bandwidth))
    if plan.cost is not None:
        lines.append(f"cost: {plan.cost:,.2f}")
    return "\n".join(lines)


def shape_text(config: GPT2Config) -> str:
    """Return a model's shape as one line."""
    return (
        f"{config.n_parameters:,} parameters: {config.n_layer} layers of {config.n_embd}, {config.n_head} heads, "
        f"vocabulary {config.vocab_size:,}, context {config.context:,}"
    )


def _fit_text(plan: TrainPlan, memory_bytes: int) -> str:
    fits = "fits" if plan.memory.total <= memory_bytes else "does not fit"
    if plan.max_microbatch is None:
        most = "not even one sequence fits"
        shape = plan.settings.machine.mesh_shape(plan.processes)
        more = checkpointing_that_fits(plan.config, plan.settings, shape, 1, memory_bytes)
        try_it = f": try --activation-checkpointing {more}" if more else ""
        return f"  {fits} in {memory_bytes / GIB:.1f} GiB; {most}{try_it}"
    return f"  {fits} in {memory_bytes / GIB:.1f} GiB; the largest microbatch_size that fits is {plan.max_microbatch}"


def time_text(seconds: float) -> str:
    """Format seconds in the largest unit of which there are at least two."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} seconds"
