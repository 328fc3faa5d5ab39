"""A layout: a mesh with the microbatch, the schedule and the recomputation of a run on it, and the memory it takes.

Arithmetic only, known without torch. Memory is counted as in `plan.py`, tensor by tensor, on the fullest rank of the mesh:

pp    a rank has its stages alone: the first the embeddings, the last a copy of the token embedding and the logits;
      under 1f1b rank r of p keeps the activations of p - r microbatches (Narayanan et al. 2021, section 2.2), and torch
      allocates what a stage receives for every microbatch at once
dp    divides nothing
fsdp  divides parameters, gradients and moments (Rajbhandari et al. 2020, stage 3). What is gathered is in the dtype of the
      step: a pipeline keeps its stage gathered, else there are the embeddings and two blocks. Gradients lie whole
      while microbatches are accumulated, since only the last one sends them around
tp    divides matrices, and activations but for the gathered inputs of query, key and value and of the feed-forward
      layer (Korthikanti et al. 2022, section 4.2.2; they send those twice instead of keeping them)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from webtext.base.errors import ConfigError
from webtext.train.parallel.mesh import MeshShape
from webtext.train.parallel.refusal import check_trainable
from webtext.train.parallel.stages import SCHEDULES, blocks_of_stage, n_stages, stages_of_rank
from webtext.train.plan import BFLOAT16, FLOAT32, LOGITS_PER_CHUNK, Memory, block_activations
from webtext.train.settings import ACTIVATION_CHECKPOINTING, TrainSettings
from webtext.train.shape import GPT2Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a model is spread over devices. `n_microbatches` are those that one device sees in a step."""

    shape: MeshShape
    microbatch: int
    n_microbatches: int
    schedule: str = "1f1b"
    activation_checkpointing: str = "none"

    @property
    def chunks(self) -> int:
        """Stages of one rank."""
        return n_stages(self.schedule, self.shape.pp) // self.shape.pp

    def blocks(self, config: GPT2Config, rank: int) -> int:
        """Blocks that a rank of the pipeline holds in all of its stages."""
        n, pp = n_stages(self.schedule, self.shape.pp), self.shape.pp
        return sum(len(blocks_of_stage(config.n_layer, n, i)) for i in stages_of_rank(self.schedule, rank, pp))

    def ends(self, rank: int) -> tuple[bool, bool]:
        """Whether a rank of the pipeline holds the first stage, and the last."""
        held = stages_of_rank(self.schedule, rank, self.shape.pp)
        return 0 in held, n_stages(self.schedule, self.shape.pp) - 1 in held

    def in_flight(self, rank: int) -> float:
        """Microbatches whose activations a rank holds at most, in units of all of its stages.

        1f1b: one for each stage from it on. Interleaved: its warm-up of 2 (p - r - 1) + (v - 1) p chunks and one
        (Narayanan et al. 2021, section 2.2, and Megatron-LM's schedule). ZB-V: 2 p half stages (Qi et al. 2024, section 6).
        """
        pp, chunks = self.shape.pp, self.chunks
        if pp == 1:
            return 1
        if self.schedule == "interleaved":
            held = 2 * (pp - rank - 1) + (chunks - 1) * pp + 1
        else:
            held = chunks * pp if self.schedule == "zbv" else pp - rank
        return min(held / chunks, self.n_microbatches)


def memory_of_layout(config: GPT2Config, settings: TrainSettings, layout: Layout) -> Memory:
    """Bytes on the device that takes most, by what they are for; one device's are `plan.memory_of`.

    `cast_parameters` are what is gathered, too, and `activations` what stages receive.
    """
    ranks = sorted({0, 1, layout.shape.pp // 2, layout.shape.pp - 1} & set(range(layout.shape.pp)))
    return max((_memory_of_rank(config, settings, layout, rank) for rank in ranks), key=lambda memory: memory.total)


def _memory_of_rank(config: GPT2Config, settings: TrainSettings, layout: Layout, rank: int) -> Memory:
    shape, is_float32 = layout.shape, settings.dtype == "float32"
    size, n_tokens = FLOAT32 if is_float32 else BFLOAT16, layout.microbatch * settings.context
    is_first, is_last = layout.ends(rank)
    n_blocks = layout.blocks(config, rank)
    table = -(-config.padded_vocab_size * config.n_embd // shape.tp)
    block = block_parameters(config, shape.tp)
    ends = table * (is_first or is_last) + config.context * config.n_embd * is_first + 2 * config.n_embd * is_last
    if is_first and is_last and shape.pp > 1:
        ends += table  # the two stages of a V have a copy each
    whole = ends + n_blocks * block
    mine = -(-whole // shape.fsdp)
    n_hidden = 12 * n_blocks * config.n_embd**2 // shape.tp
    moments = 2 * mine - (-(-n_hidden // shape.fsdp) if settings.optimizer == "muon" else 0)
    gathered = whole if shape.pp > 1 else ends + min(2, n_blocks) * block
    is_whole = shape.fsdp == 1 or layout.n_microbatches > 1
    casts = (0 if is_float32 else BFLOAT16 * whole) if shape.fsdp == 1 else size * gathered
    return Memory(
        parameters=FLOAT32 * mine,
        gradients=FLOAT32 * (whole if is_whole else mine + min(2, n_blocks) * block),
        optimizer=FLOAT32 * moments,
        cast_parameters=casts,
        activations=_activations(config, settings, layout, rank, size)
        + _received(config, layout, rank, n_tokens * size),
        output_layer=_output_layer(config, shape.tp, table, size, n_tokens) if is_last else 0,
    )


def block_parameters(config: GPT2Config, tp: int) -> int:
    """Parameters of a block on one of `tp` ranks: matrices and their columns' biases are split, 6 vectors are not."""
    return -(-(12 * config.n_embd**2 + 7 * config.n_embd) // tp) + 6 * config.n_embd


def _activations(config: GPT2Config, settings: TrainSettings, layout: Layout, rank: int, size: int) -> int:
    """As `plan.activation_bytes`, split over tp, times the microbatches in flight."""
    width, tp, n_blocks = config.n_embd, layout.shape.tp, layout.blocks(config, rank)
    n_tokens = layout.microbatch * settings.context
    norm = (size * width + 2 * size) / tp
    dropout = 1 if config.dropout else 0
    kept, beside = block_activations(config, layout.activation_checkpointing, size, tp)
    is_first, is_last = layout.ends(rank)
    ends = (norm if is_last else 0) + (8 + (tp > 1) + width * dropout / tp if is_first else 0)  # ids; which lie here
    masks = size * settings.context if settings.document_masks else 0
    return math.ceil(n_tokens * (layout.in_flight(rank) * (n_blocks * kept + ends + masks) + beside))


def _received(config: GPT2Config, layout: Layout, rank: int, n_bytes: int) -> int:
    """Hidden states and their gradients from other ranks, for every microbatch."""
    if layout.shape.pp == 1:
        return 0
    is_first, is_last = layout.ends(rank)
    return (2 * layout.chunks - is_first - is_last) * layout.n_microbatches * n_bytes * config.n_embd // layout.shape.tp


def _output_layer(config: GPT2Config, tp: int, table: int, size: int, n_tokens: int) -> int:
    """As `plan.py` counts it: the final norm's output and its gradient, the weight's gradient, a chunk of logits."""
    logits = min(n_tokens * -(-config.padded_vocab_size // tp), LOGITS_PER_CHUNK)
    return 2 * size * n_tokens * config.n_embd + FLOAT32 * table + logits * (size + FLOAT32)


def meshes(config: GPT2Config, n_sequences: int, devices: int, devices_per_node: int) -> Iterator[MeshShape]:
    """All meshes of so many devices that divide a batch of `n_sequences` and leave no stage empty; tp stays inside a node.

    Its collectives are on the way of every layer, and links between nodes are slower (Narayanan et al. 2021, takeaway 1).
    """
    for tp in _divisors(devices):
        if tp > devices_per_node or devices_per_node % tp:
            continue
        for pp in _divisors(devices // tp):
            n_data = devices // tp // pp
            for fsdp in _divisors(n_data):
                shape = MeshShape(pp=pp, dp=n_data // fsdp, fsdp=fsdp, tp=tp)
                if n_sequences % n_data == 0 and pp <= config.n_layer:
                    yield shape


def layouts(config: GPT2Config, settings: TrainSettings, shape: MeshShape) -> Iterator[Layout]:
    """All on a mesh that can be trained: microbatches that divide a device's share, schedules, each kind of checkpointing.

    Where the settings ask for one, that and those that keep less.
    """
    mesh = str(shape) if shape.size > 1 else None
    kinds = ACTIVATION_CHECKPOINTING[ACTIVATION_CHECKPOINTING.index(settings.activation_checkpointing) :]
    for microbatch in _divisors(settings.first_batch_size // shape.n_data):
        for schedule in SCHEDULES if shape.pp > 1 else SCHEDULES[:1]:
            for checkpointing in kinds:
                chosen = replace(settings, mesh=mesh, microbatch_size=microbatch, pipeline_schedule=schedule)
                try:
                    check_trainable(config, replace(chosen, activation_checkpointing=checkpointing), shape.size)
                except ConfigError:
                    continue
                yield Layout(
                    shape=shape,
                    microbatch=microbatch,
                    n_microbatches=settings.batch_size // (shape.n_data * microbatch),
                    schedule=schedule,
                    activation_checkpointing=checkpointing,
                )


def _divisors(n: int) -> list[int]:
    return [i for i in range(1, n + 1) if n % i == 0]
