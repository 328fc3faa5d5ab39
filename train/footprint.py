"""`train plan`: the memory of the device that a run fills most, and the passes over its data. Needs no torch.

Tensors of the model, the loss and the optimizer are counted one by one at the end of a forward pass, when most are alive:
float32 master weights, gradients and AdamW's two moments (Rajbhandari et al. 2020, section 3.1) or Muon's one, a bfloat16
copy of all weights, and the inputs of the backward pass; not the overhead of allocator and libraries. dtype 'auto' counts
as bfloat16, device 'auto' as a GPU that torch compiles for. In a mesh the fullest rank counts; dp divides nothing:

pp    a rank has only its stages: the first has the embeddings, the last a copy of the token embedding and the logits.
      Under 1f1b, rank r of p keeps the activations of p - r microbatches (Narayanan et al. 2021, section 2.2). Torch
      allocates the inputs of a stage for all microbatches at once
fsdp  divides parameters, gradients and moments (Rajbhandari et al. 2020, stage 3), except the gradients in a pipeline,
      which reduces them after the last microbatch. Gathered parameters have the step's dtype: all are kept, or the
      embeddings and two blocks of models that have more than `LARGEST_GATHERED`, or are offloaded, not in a pipeline
tp    divides matrices, and activations except the gathered inputs of query, key and value and of the feed-forward
      layer (Korthikanti et al. 2022, section 4.2.2; they send those twice instead of keeping them)

Offloaded, parameters and moments are on the host. One process has two layers of the others on its device, and the
activations of as many microbatches as fit (`offload/engine.py`), but one at least; shards have their sums of gradients too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

from webtext.base.config import changed
from webtext.train.mesh import LARGEST_GATHERED, MeshShape, blocks_of_stage, n_stages, stages_of_rank
from webtext.train.settings import TrainSettings, check_trainable
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from webtext.train.data.sources import SourceUse

LOGITS_PER_CHUNK, MOST_CHUNKS = 2**27, 8  # as in cross_entropy.py, which needs torch
INPUTS = 3  # of a layer and one microbatch at once (`INPUTS_PER_MICROBATCH` in offload/engine.py, which needs torch)
GIB = 2**30
FLOAT32, BFLOAT16 = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one device, by purpose."""

    parameters: int
    gradients: int
    optimizer: int
    cast_parameters: int
    activations: int
    output_layer: int

    @property
    def total(self) -> int:
        return sum(astuple(self))


def memory_of(config: GPT2Config, settings: TrainSettings, shape: MeshShape, microbatch: int | None = None) -> Memory:
    """Return the bytes on the fullest device. Casts include gathered parameters, activations the inputs of stages.

    `microbatch` is a number of sequences, by default that of the settings; `MeshShape()` is one device.
    """
    microbatch = microbatch or settings.accumulation(shape.n_data)[0]
    of_ranks = (_memory_of_rank(config, settings, shape, microbatch, rank) for rank in range(shape.pp))
    return max(of_ranks, key=lambda memory: memory.total)


def _memory_of_rank(
    config: GPT2Config, settings: TrainSettings, shape: MeshShape, microbatch: int, rank: int
) -> Memory:
    size, n_tokens = number_bytes(settings), microbatch * settings.context
    n_microbatches = settings.batch_size // (shape.n_data * microbatch)
    is_first, is_last = rank == 0, rank == shape.pp - 1
    n_blocks = blocks_of_rank(config, settings, shape.pp, rank)
    table = -(-config.padded_vocab_size * config.n_embd // shape.tp)  # the first rank and the last have one each
    ends = (is_first or is_last) * table + (config.context * is_first + 2 * is_last) * config.n_embd
    of_block = block_parameters(config, shape.tp)
    whole, two_blocks = ends + n_blocks * of_block, min(2, n_blocks) * of_block
    mine = -(-whole // shape.fsdp)
    n_hidden = 12 * n_blocks * config.n_embd**2 // shape.tp
    moments = 2 * mine - (-(-n_hidden // shape.fsdp) if settings.optimizer.optimizer == "muon" else 0)
    offloads = settings.machine.offload
    is_shared, is_alone = (shape.fsdp > 1 or offloads) and shape.pp == 1, offloads and shape.fsdp == 1
    casts = size * (ends + two_blocks if is_shared and (offloads or size * whole > LARGEST_GATHERED) else whole)
    chunks = n_stages(settings.machine.pipeline_schedule, shape.pp) // shape.pp
    # hidden states and their gradients, which torch allocates for every microbatch
    received = (2 * chunks - is_first - is_last) * n_microbatches * n_tokens * size * config.n_embd
    recomputes = settings.machine.activation_checkpointing or is_alone
    kept, beside = block_activations(config, recomputes, size, shape.tp)
    ids = 8 + (shape.tp > 1)  # with tp also who has the token
    norm = (size * config.n_embd + 2 * size) / shape.tp
    has_mask = settings.data.documents == "masked" and (is_alone or settings.device == "cpu" or not compiles(settings))
    mask = size * settings.context * has_mask  # for all layers together, where flex attention isn't used
    of_all = (INPUTS if is_alone else n_blocks) * kept + ids * is_first + norm * is_last + mask
    stored = min(in_flight(chunks, shape.pp, rank), n_microbatches)
    output_layer = _output_layer(config, settings, n_tokens, shape.tp) if is_last else 0
    gradients = FLOAT32 * (mine + two_blocks if is_shared else whole)
    if is_alone:  # rows that are sent and, of another dtype, sums; the loss has gone before a block is computed again
        gradients = size * (ends + two_blocks) + (FLOAT32 * (ends + of_block) if size < FLOAT32 else 0)
        output_layer = max(0, output_layer - math.ceil(n_tokens * beside))
    return Memory(
        parameters=0 if offloads else FLOAT32 * mine,
        gradients=gradients,
        optimizer=0 if offloads else FLOAT32 * moments,
        cast_parameters=0 if not is_shared and shape.fsdp == 1 and size == FLOAT32 else casts,
        activations=math.ceil(n_tokens * (stored * of_all + beside)) + received // shape.tp,
        output_layer=output_layer,
    )


def number_bytes(settings: TrainSettings) -> int:
    """Return the size of a number in the dtype of the matrix products."""
    return FLOAT32 if settings.dtype == "float32" else BFLOAT16


def blocks_of_rank(config: GPT2Config, settings: TrainSettings, pp: int, rank: int) -> int:
    """Return the number of blocks in all stages of a rank of the pipeline."""
    schedule = settings.machine.pipeline_schedule
    numbers = stages_of_rank(schedule, rank, pp)
    return sum(len(blocks_of_stage(config.n_layer, n_stages(schedule, pp), i)) for i in numbers)


def in_flight(chunks: int, pp: int, rank: int) -> float:
    """Return how many microbatches' activations a rank with `chunks` stages stores, in units of all of its stages.

    1f1b: one for each stage from this one to the last. Interleaved: the warm-up of 2 (p - r - 1) + (v - 1) p chunks, and
    one more (Narayanan et al. 2021, section 2.2, and Megatron-LM's schedule).
    """
    return (pp - rank if chunks == 1 else 2 * (pp - rank - 1) + (chunks - 1) * pp + 1) / chunks


def block_parameters(config: GPT2Config, tp: int) -> int:
    """Return a block's parameters on one of `tp` ranks: matrices and column biases are split, 6 vectors are not."""
    return -(-(12 * config.n_embd**2 + 7 * config.n_embd) // tp) + 6 * config.n_embd


def _output_layer(config: GPT2Config, settings: TrainSettings, n_tokens: int, tp: int) -> int:
    """Return the bytes of the final norm's output and gradient, of the weight's gradient, and of a chunk of logits."""
    size, columns = number_bytes(settings), -(-config.padded_vocab_size // tp)
    # Uncompiled, the chunk has a float32 copy too, except on a CPU, which takes a few rows at a time.
    copies = not compiles(settings) and (settings.device != "cpu" or tp > 1)
    logits = max(min(n := n_tokens * columns, LOGITS_PER_CHUNK), n // MOST_CHUNKS) * (size + FLOAT32 * copies)
    return 2 * size * n_tokens * config.n_embd + FLOAT32 * columns * config.n_embd + logits


def compiles(settings: TrainSettings) -> bool:
    """Return whether a run is compiled; 'auto' compiles on a GPU."""
    return settings.machine.compile == "on" or (settings.machine.compile == "auto" and settings.device != "cpu")


def block_activations(config: GPT2Config, recomputes: bool, size: int, tp: int = 1) -> tuple[float, float]:
    """Return the bytes per token that a block keeps on one of `tp` ranks, and the bytes that it recomputes going back.

    Only one block at a time recomputes. A block has, in numbers of `size` bytes: the inputs of both norms with their
    mean and scale, the input of query, key and value, all three and their output with one float32 per head (Dao et al.
    2022), and the inputs of expand, GELU and contract (C, 4 C, 4 C).
    """
    width, heads = size * config.n_embd, FLOAT32 * config.n_head / tp
    block = (14 * width + 4 * size) / tp + 2 * width + heads
    return (width / tp, block) if recomputes else (block, 0)


def advice(config: GPT2Config, settings: TrainSettings, shape: MeshShape, n_bytes: float) -> str:
    """Return a choice that would fit: a smaller microbatch, activation checkpointing, or a smaller model.

    Estimates aren't exact: if none fits, the least is named.
    """
    share = settings.batch_size // shape.n_data
    smaller = range(1, settings.accumulation(shape.n_data)[0])
    sizes = [n for n in smaller if share % n == 0 and share // n >= shape.pp]
    fitting = [n for n in sizes if memory_of(config, settings, shape, n).total <= n_bytes]
    what = f"microbatch_size = {max(fitting, default=1)}" if sizes else "a smaller model or context"
    is_least = settings.machine.activation_checkpointing or (settings.machine.offload and shape.size == 1)
    return what if is_least else f"{what} or activation_checkpointing = true"


def host_bytes(config: GPT2Config, settings: TrainSettings, shape: MeshShape) -> int:
    """Return the bytes that an offloaded process has on the host; one process also has copies and each layer's inputs."""
    plain = memory_of(config, changed(settings, offload=False), shape)
    inputs = settings.batch_size * config.context * config.n_embd * number_bytes(settings)
    of_layers = plain.cast_parameters + config.n_layer * inputs if shape.size == 1 else 0
    return 2 * plain.parameters + plain.optimizer + of_layers


def plan_training(
    settings: TrainSettings, tokens: Sequence[str] = (), processes: int = 1, memory_gib: float | None = None
) -> tuple[dict[str, Any], str]:
    """Estimate the memory and data of `train run` with these settings; return JSON values and aligned lines.

    There are as many processes as the settings' mesh has, or `processes`. The lines say whether `memory_gib` suffice.
    """
    sources: list[SourceUse] = []
    warning = None
    vocab_size = GPT2Config().vocab_size
    if tokens:
        from webtext.train.data.sources import open_sources, source_uses, warning_of_passes

        opened = open_sources(tokens)
        vocab_size = opened[0].train.vocab_size
        sources = source_uses(opened, settings)
        warning = warning_of_passes(sources, settings)
    config, n = settings.config(vocab_size), settings.machine.mesh_shape(processes).size
    shape = check_trainable(config, settings, n)
    microbatch, n_microbatches = settings.accumulation(shape.n_data)
    memory = memory_of(config, settings, shape)
    answer: dict[str, Any] = {
        "settings": asdict(settings),
        "layout": {"shape": asdict(shape), "microbatch": microbatch, "n_microbatches": n_microbatches},
        "config": asdict(config) | {"parameters": config.n_parameters},
        "memory": asdict(memory) | {"total": memory.total},
    }
    lines = [
        f"{config.n_parameters:,} parameters: {config.n_layer} layers of {config.n_embd}, {config.n_head} heads, "
        f"vocabulary {config.vocab_size:,}, context {config.context:,}",
        f"{settings.steps:,} steps of {settings.batch_size:,} sequences, {settings.total_tokens:,} tokens; processes: "
        f"{shape.size}, each {n_microbatches} x {microbatch} sequences per step",
        *(f"  {source}" for source in sources),
        *([f"  warning: {warning}"] if warning else []),
        "memory of one device, GiB",
        *(f"  {name.replace('_', ' '):<20}{n / GIB:>9.2f}" for name, n in answer["memory"].items()),
    ]
    if memory_gib is not None:
        what, fits = f"in {memory_gib:,g} GiB", memory.total <= memory_gib * GIB
        smaller = advice(config, settings, shape, memory_gib * GIB)
        lines.append(f"  fits {what}" if fits else f"  does not fit {what}: choose {smaller}")
    if settings.machine.offload:
        lines.append(f"offloaded: {host_bytes(config, settings, shape) / GIB:,.2f} GiB on the host, for each process")
    return answer | {"sources": list(map(asdict, sources)), "tokens": settings.total_tokens}, "\n".join(lines)
