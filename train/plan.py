"""What a training run would take, before it is begun: memory of one device, floating-point operations, time, cost.

Arithmetic only, known without torch. Memory is what the tensors of `model.py`, `cross_entropy.py` and AdamW take, counted
one by one at the end of a forward pass, when most are alive; what the allocator and the libraries add is not in it.
Time needs a speed that somebody measured: none is assumed.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webtext.base.errors import ConfigError, InputError
from webtext.train.checkpoint import find_checkpoint
from webtext.train.offload.window import offload_text
from webtext.train.parallel.mesh import MeshShape
from webtext.train.parallel.refusal import check_trainable
from webtext.train.schedule import total_tokens
from webtext.train.settings import ACTIVATION_CHECKPOINTING, PlanSettings, TrainSettings
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from webtext.train.sources import SourceUse

LOGITS_PER_CHUNK = 2**26  # as in cross_entropy.py, which needs torch
GIB = 2**30
FLOAT32, BFLOAT16 = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one device, by what they are for."""

    parameters: int
    gradients: int
    optimizer: int
    cast_parameters: int
    activations: int
    output_layer: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(dataclasses.astuple(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """A run in numbers. `speed` is model FLOP/s of all processes together; it, `seconds` and `cost` may be unknown."""

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
        """Tokens that the whole run trains on."""
        return total_tokens(self.settings)

    @property
    def flops(self) -> int:
        """Model FLOPs of the whole run."""
        return self.tokens * flops_per_token(self.config)

    @property
    def seconds(self) -> float | None:
        """How long it takes, without held-out measurements and checkpoints."""
        return None if self.speed is None else self.flops / self.speed

    @property
    def cost(self) -> float | None:
        """The price of all devices over that time, in the currency of `price`."""
        return None if self.seconds is None or self.price is None else self.seconds / 3600 * self.processes * self.price

    def to_json(self) -> dict[str, Any]:
        """Bytes, FLOPs, tokens and seconds as plain numbers."""
        per_token = flops_per_token(self.config)
        recomputed = recomputed_flops_per_token(self.config, self.settings.activation_checkpointing)
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
    """What `train run` with these settings takes; `tokens` are token sets, which know their vocabulary and lengths."""
    sources: Sequence[SourceUse] = ()
    vocab_size = plan.vocab_size
    if tokens:
        from webtext.train.sources import open_sources, source_uses

        opened = open_sources(tokens)
        vocab_size = opened[0].train.vocab_size
        sources = source_uses(opened, settings, total_tokens(settings))
    config = settings.config(vocab_size)
    processes = plan.processes if settings.mesh is None else settings.mesh_shape(plan.processes).size
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


def flops_per_token(config: GPT2Config) -> int:
    """Floating-point operations of one token's forward and backward pass: 6 N + 12 L H Q T.

    Chowdhery et al. 2022 (PaLM), appendix B, which defines MFU by it: N parameters that multiply (here all but the
    positions, which are added; the shared embedding multiplies once, as the output layer), L layers, H heads of Q channels,
    T positions, the masked half of attention counted too. Kaplan et al. 2020 leave the second term out (6 N D).

    >>> flops_per_token(GPT2Config.named("124M"))
    855166464
    """
    multiplied = config.n_parameters - config.context * config.n_embd
    return 6 * multiplied + 12 * config.n_layer * config.n_embd * config.context


def recomputed_flops_per_token(config: GPT2Config, activation_checkpointing: str) -> int:
    """What activation checkpointing adds: all blocks forward once more, 2 FLOPs a weight and 4 L H Q T of attention.

    Selective adds no product, but with dropout that of attention. MFU does not count it (PaLM, appendix B), so checkpointing
    shows as a lower MFU.
    """
    is_full = activation_checkpointing == "full"
    is_selective = activation_checkpointing == "selective"
    blocks = 12 * config.n_layer * config.n_embd**2 * is_full
    attention = 4 * config.n_layer * config.n_embd * config.context
    return 2 * blocks + attention * (is_full or (is_selective and config.dropout > 0))


def memory_of(config: GPT2Config, settings: TrainSettings, microbatch: int) -> Memory:
    """Bytes on one device.

    float32 master weights, gradients and AdamW's two moments (Rajbhandari et al. 2020, section 3.1) or Muon's one, all
    weights once more in bfloat16, and what the backward pass needs; dtype 'auto' counts as bfloat16.
    """
    n_stored = config.n_parameters + (config.padded_vocab_size - config.vocab_size) * config.n_embd
    casts = settings.dtype != "float32"
    moments = 2 * n_stored - (12 * config.n_layer * config.n_embd**2 if settings.optimizer == "muon" else 0)
    return Memory(
        parameters=FLOAT32 * n_stored,
        gradients=FLOAT32 * n_stored,
        optimizer=FLOAT32 * moments,
        cast_parameters=BFLOAT16 * n_stored if casts else 0,
        activations=activation_bytes(config, settings, microbatch),
        output_layer=_output_layer_bytes(config, casts, microbatch * settings.context),
    )


def memory_on(config: GPT2Config, settings: TrainSettings, shape: MeshShape, microbatch: int) -> Memory:
    """Bytes on the device of a mesh that takes most (`parallel/layout.py`)."""
    from webtext.train.parallel.layout import Layout, memory_of_layout

    layout = Layout(
        shape=shape,
        microbatch=microbatch,
        n_microbatches=settings.batch_size // (shape.n_data * microbatch),
        schedule=settings.pipeline_schedule,
        activation_checkpointing=settings.activation_checkpointing,
    )
    return memory_of_layout(config, settings, layout)


def activation_bytes(config: GPT2Config, settings: TrainSettings, microbatch: int) -> int:
    """What `microbatch` sequences leave for the backward pass, up to the final norm, with flash attention.

    All blocks' (`block_activations`); the final norm's, token ids, a mask with dropout; document masks are one matrix a
    sequence for all layers.
    """
    width, n_tokens = config.n_embd, microbatch * settings.context
    size = FLOAT32 if settings.dtype == "float32" else BFLOAT16
    kept, beside = block_activations(config, settings.activation_checkpointing, size)
    ends = size * width + 2 * size + 8 + (width if config.dropout else 0)
    masks = size * settings.context if settings.document_masks else 0
    return int(n_tokens * (config.n_layer * kept + beside + ends + masks))


def block_activations(config: GPT2Config, how: str, size: int, tp: int = 1) -> tuple[float, float]:
    """Bytes a token that a block keeps on one of `tp` ranks, and those that one block at a time has beside them going back.

    A block has, of numbers of `size` bytes: the inputs of both norms with their mean and scale, the input of query, key and
    value, all three and their output with one float32 for each head (Dao et al. 2022), the inputs of expand, GELU and
    contract (C, 4 C, 4 C); dropout adds a byte for each channel of its two masks. Under full checkpointing it keeps its
    input alone; under selective that, query, key and value, the outputs of attention and of its projection (which is whole on
    each rank), and GELU's input. With dropout attention is computed once more, and contract's output kept.
    """
    width = size * config.n_embd
    heads = FLOAT32 * config.n_head / tp
    block = (
        (2 * (width + 2 * size) + 12 * width) / tp
        + 2 * width
        + heads
        + (2 * config.n_embd / tp if config.dropout else 0)
    )
    if how == "none":
        return block, 0
    if how == "full":
        return width / tp, block
    if config.dropout:
        return 8 * width / tp + 2 * width, block - 8 * width / tp
    kept = 9 * width / tp + heads
    return kept + width, block - kept


def max_microbatch(config: GPT2Config, settings: TrainSettings, processes: int, memory_bytes: int) -> int | None:
    """The largest microbatch that divides a process's share of the first batch and fits; None when one sequence does not."""
    shape = settings.mesh_shape(processes)
    share = settings.first_batch_size // shape.n_data
    fitting = (
        size
        for size in range(share, 0, -1)
        if share % size == 0 and memory_on(config, settings, shape, size).total <= memory_bytes
    )
    return next(fitting, None)


def checkpointing_that_fits(
    config: GPT2Config, settings: TrainSettings, shape: MeshShape, microbatch: int, memory_bytes: int
) -> str | None:
    """The activation checkpointing to try: that of least computing twice that fits, or what keeps least; None past it."""
    later = ACTIVATION_CHECKPOINTING[ACTIVATION_CHECKPOINTING.index(settings.activation_checkpointing) + 1 :]
    for how in later:
        try:
            chosen = replace(settings, activation_checkpointing=how)
            check_trainable(config, chosen, shape.size)
        except ConfigError:
            continue
        if memory_on(config, chosen, shape, microbatch).total <= memory_bytes:
            return how
    return later[-1] if later else None


def _output_layer_bytes(config: GPT2Config, casts: bool, n_tokens: int) -> int:
    """The final norm's output and its gradient, the weight's gradient, and one chunk of logits with its softmax."""
    table = config.padded_vocab_size * config.n_embd
    size = BFLOAT16 if casts else FLOAT32
    logits = min(n_tokens * config.padded_vocab_size, LOGITS_PER_CHUNK)
    return 2 * size * n_tokens * config.n_embd + FLOAT32 * table + logits * (size + FLOAT32)


def _speed(config: GPT2Config, plan: PlanSettings, processes: int) -> float | None:
    """Model FLOP/s of all processes together."""
    if plan.tokens_per_second is not None:
        return plan.tokens_per_second * flops_per_token(config)
    if plan.peak_tflops is not None and plan.mfu_ratio is not None:
        return plan.peak_tflops * 1e12 * plan.mfu_ratio * processes
    if plan.measured is not None:
        return measured_speed(Path(plan.measured)) * processes
    return None


def measured_speed(model_dir: Path) -> float:
    """Model FLOP/s that one process of an earlier run reached: the median of its steps, by the shape it trained."""
    checkpoint = find_checkpoint(model_dir)
    try:
        rows = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
        speeds = [float(row["tokens_per_second"]) for row in rows if "tokens_per_second" in row]
        processes = int(checkpoint.state["environment"]["processes"])
        return statistics.median(speeds) * flops_per_token(checkpoint.config) / processes
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"'{model_dir / 'metrics.jsonl'}' tells no speed ({error!r})", "name the folder of a run that made steps"
        ) from None


def plan_text(plan: TrainPlan) -> str:
    """A plan as aligned lines."""
    config, settings, memory = plan.config, plan.settings, plan.memory
    ramp = f"{settings.first_batch_size:,} to " if settings.batch_ramp_steps else ""
    sizes = f"{ramp}{settings.batch_size:,}"
    lines = [
        shape_text(config),
        f"{settings.steps:,} steps of {sizes} sequences, {plan.tokens:,} tokens; processes: "
        f"{plan.processes}, each {plan.accumulation} x {plan.microbatch} sequences a step",
        *(f"  {source}" for source in plan.sources),
        "memory of one device, GiB",
    ]
    names = {"cast_parameters": "bfloat16 parameters", "output_layer": "output layer"}
    rows = [(names.get(name, name), n) for name, n in dataclasses.asdict(memory).items()]
    lines += [f"  {name:<20}{n / GIB:>9.2f}" for name, n in [*rows, ("total", memory.total)]]
    if plan.memory_bytes is not None:
        lines.append(_fit_text(plan, plan.memory_bytes))
    lines.append(f"{flops_per_token(config) / 1e9:,.3f} GFLOP a token, {plan.flops:.3g} FLOP in all")
    if recomputed := recomputed_flops_per_token(config, settings.activation_checkpointing):
        lines.append(f"  and {recomputed / 1e9:,.3f} GFLOP a token computed twice")
    if plan.seconds is None or plan.speed is None:
        lines.append("time: not known; give --tokens-per-second, --peak-tflops with --mfu-ratio, or --measured DIR")
    else:
        lines.append(f"{plan.speed / flops_per_token(config):,.0f} tokens/s: {time_text(plan.seconds)}")
    if settings.offload is not None:
        rows_bytes = memory.parameters + memory.gradients + memory.optimizer + memory.cast_parameters
        speed = None if plan.speed is None else plan.speed / plan.processes
        lines.append(offload_text(config, settings, plan.processes, rows_bytes, speed, plan.host_bandwidth))
    if plan.cost is not None:
        lines.append(f"cost: {plan.cost:,.2f}")
    return "\n".join(lines)


def shape_text(config: GPT2Config) -> str:
    """A model's shape in a line."""
    return (
        f"{config.n_parameters:,} parameters: {config.n_layer} layers of {config.n_embd}, {config.n_head} heads, "
        f"vocabulary {config.vocab_size:,}, context {config.context:,}"
    )


def _fit_text(plan: TrainPlan, memory_bytes: int) -> str:
    fits = "fits" if plan.memory.total <= memory_bytes else "does not fit"
    if plan.max_microbatch is None:
        most = "not even one sequence does"
        shape = plan.settings.mesh_shape(plan.processes)
        more = checkpointing_that_fits(plan.config, plan.settings, shape, 1, memory_bytes)
        try_it = f": try --activation-checkpointing {more}" if more else ""
        return f"  it {fits} into {memory_bytes / GIB:.1f}; {most}{try_it}"
    return f"  it {fits} into {memory_bytes / GIB:.1f}; the largest microbatch_size that does is {plan.max_microbatch}"


def time_text(seconds: float) -> str:
    """Seconds in the largest unit of which there are two."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} seconds"
